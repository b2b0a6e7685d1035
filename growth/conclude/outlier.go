package conclude

import (
	"cmp"
	"math"
	"slices"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/outlier"
)

// An Outlier is the traced rank that grows most unlike the others.
type Outlier struct {
	Rank Process
	// Ranks that were compared, this one included. Others are the ranks that do not stand out.
	// Middle is the one of them that grows at the median rate.
	Ranks, Others int
	Middle        Process
	Score         outlier.Score
	Site          Site
}

// A Site says whether the other ranks grow at the call site of an outlier.
type Site string

// The sites; empty: the call sites are not known.
const (
	SiteSame      Site = "same"       // the rank with the median rate grows there, too
	SiteOnlyThere Site = "only-there" // it does not
)

// minOthersShare is the least rate of the other ranks that counts as growth, as a share of the
// outlier's rate.
const minOthersShare = 0.01

// Ratio of the rate to the median rate of the others; false where their rate does not count as
// growth.
func (o *Outlier) Ratio() (ratio float64, ok bool) {
	return o.Rank.Rate / o.Middle.Rate, o.Middle.Rate >= minOthersShare*o.Rank.Rate
}

// outlierOf finds the rank that stands out; nil: none does, or there are too few to tell. A rank
// whose verdict is no growth is none.
func outlierOf(all []Process) *Outlier {
	var ranks []Process
	var rates []outlier.Member
	for _, p := range all {
		if p.History.Role == growth.RoleRank && !math.IsNaN(p.Rate) {
			ranks = append(ranks, p)
			rates = append(rates, outlier.Member{
				Growth: p.Rate, Error: outlier.ErrorOf(p.RateLow, p.RateHigh),
			})
		}
	}

	scored := outlier.Find(rates)
	found := slices.DeleteFunc(scored.Outliers(outlier.MaxChance), func(i int) bool {
		return !ranks[i].Class.Grows()
	})
	if len(found) == 0 {
		return nil
	}

	var others []Process
	for i, p := range ranks {
		if !slices.Contains(found, i) {
			others = append(others, p)
		}
	}
	slices.SortStableFunc(others, func(a, b Process) int { return cmp.Compare(a.Rate, b.Rate) })

	o := &Outlier{
		Rank: ranks[found[0]], Ranks: len(ranks), Others: len(others),
		Middle: others[len(others)/2], Score: scored.Scores[found[0]],
	}
	o.Site = siteOf(o.Rank, o.Middle)
	return o
}

// siteOf says whether another rank grows at the call site of the first suspect of a rank.
func siteOf(rank, other Process) Site {
	switch {
	case len(rank.Suspects) == 0, len(other.Suspects) == 0 && other.Class.Grows():
		return ""
	case slices.ContainsFunc(other.Suspects, rank.Suspects[0].IsAt):
		return SiteSame
	}
	return SiteOnlyThere
}
