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

// minOutlierRatio is the rate of an outlier, as a multiple of the others' rate, that is worth a word.
// Ranks that do the same work can be so alike that a hundredth more is no noise.
const minOutlierRatio = 1.2

// outlierOf is the traced rank that grows unlike the others; nil: none does, or there are too few to
// tell. A rank whose verdict is no growth is none.
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

	found := outlier.Find(rates)
	for _, i := range found.Outliers(outlier.MaxChance) {
		if ranks[i].Class.Grows() && ranks[i].Rate > minOutlierRatio*found.Median {
			others := slices.Delete(slices.Clone(ranks), i, i+1)
			return describeOutlier(ranks[i], others, found.Scores[i])
		}
	}
	return nil
}

// describeOutlier compares a rank with the one of the others whose rate is the median.
func describeOutlier(rank ProcessVerdict, others []ProcessVerdict, score outlier.Score) *summary.Outlier {
	slices.SortStableFunc(others, func(a, b ProcessVerdict) int { return cmp.Compare(a.Rate, b.Rate) })
	middle := others[len(others)/2]

	const perMin = 60
	o := &summary.Outlier{
		PID: rank.Process.PID, Rank: rank.Process.Rank, Ranks: len(others) + 1,
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
