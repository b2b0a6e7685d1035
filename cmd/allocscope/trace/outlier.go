package trace

import (
	"cmp"
	"math"
	"slices"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/outlier"
)

// minOthersShare is the rate of the other ranks, as a share of the outlier's, from which on they grow
// to speak of.
const minOthersShare = 0.01

// outlierOf is the traced rank that grows most unlike the others; nil: none does, or there are too few
// to tell. A rank whose verdict is no growth is none.
func outlierOf(all []ProcessVerdict) *summary.Outlier {
	var ranks []ProcessVerdict
	var rates []outlier.Member
	for _, v := range all {
		if v.Process.Role == growth.RoleRank && !math.IsNaN(v.Rate) {
			ranks = append(ranks, v)
			rates = append(rates, outlier.Member{
				Growth: v.Rate, Error: outlier.ErrorOf(v.RateLow, v.RateHigh),
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
	var others []ProcessVerdict
	for i, v := range ranks {
		if !slices.Contains(found, i) {
			others = append(others, v)
		}
	}
	return describeOutlier(ranks[found[0]], others, len(ranks), scored.Scores[found[0]])
}

// describeOutlier compares a rank with the one of the others whose rate is the median.
func describeOutlier(
	rank ProcessVerdict, others []ProcessVerdict, ranks int, score outlier.Score,
) *summary.Outlier {
	slices.SortStableFunc(others, func(a, b ProcessVerdict) int { return cmp.Compare(a.Rate, b.Rate) })
	middle := others[len(others)/2]

	const perMin = 60
	o := &summary.Outlier{
		PID: rank.Process.PID, Rank: rank.Process.Rank, Ranks: ranks, Others: len(others),
		RateBytesPerMin:   int64(math.Round(rank.Rate * perMin)),
		OthersBytesPerMin: int64(math.Round(middle.Rate * perMin)),
		Chance:            score.Chance, Site: siteOf(rank, middle),
	}
	if middle.Rate >= minOthersShare*rank.Rate {
		ratio := rank.Rate / middle.Rate
		o.Ratio = &ratio
	}
	if !math.IsInf(score.Z, 0) {
		o.Z = &score.Z
	}
	return o
}

// siteOf is whether another rank grows by the call site of the first suspect of one; empty: the call
// sites are not known.
func siteOf(rank, other ProcessVerdict) string {
	switch {
	case len(rank.Suspects) == 0, len(other.Suspects) == 0 && other.Class.Grows():
		return ""
	case slices.ContainsFunc(other.Suspects, rank.Suspects[0].IsAt):
		return summary.SiteSame
	}
	return summary.SiteOnlyThere
}
