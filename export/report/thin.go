package report

import (
	"slices"

	"github.com/allocscope/allocscope/growth"
)

// mostPoints are drawn as they are: four hours at one a second.
const mostPoints = 15_000

// thinned leaves no more than so many rows: of each of equally long runs those with the least and the most RSS, of the traced
// processes and of the tree, and device memory, where there is any, and one at which RSS is not known. So spikes and gaps stay.
func thinned(rows []growth.Row) []growth.Row {
	if len(rows) <= mostPoints {
		return rows
	}
	of := []func(*growth.Row) int64{
		func(r *growth.Row) int64 { return r.RSS },
		func(r *growth.Row) int64 { return r.Tree.RSS },
	}
	if main, ok := mainMeasure(rows); ok {
		of = append(of, main.of)
	}
	runs := mostPoints / (2*len(of) + 1)
	var kept []growth.Row
	for i := range runs {
		kept = append(kept, extremes(rows[i*len(rows)/runs:(i+1)*len(rows)/runs], of)...)
	}
	return kept
}

// extremes of a run of rows in some values, in order. What is read seldom is taken along, at the last of them.
func extremes(run []growth.Row, values []func(*growth.Row) int64) []growth.Row {
	at := []int{slices.IndexFunc(run, func(r growth.Row) bool { return r.RSS == growth.Unknown })}
	for _, of := range values {
		at = append(at, extreme(run, of, func(a, b int64) bool { return a < b }), extreme(run, of, func(a, b int64) bool { return a > b }))
	}
	slices.Sort(at)
	var kept []growth.Row
	for _, i := range slices.Compact(at) {
		if i >= 0 {
			kept = append(kept, run[i])
		}
	}
	last := &kept[len(kept)-1]
	for _, r := range run {
		fill(&last.Private, r.Private)
		fill(&last.PSS, r.PSS)
	}
	return kept
}

// fill takes a value over what is unknown.
func fill(to *int64, value int64) {
	if *to == growth.Unknown {
		*to = value
	}
}

// extreme is where a value is first before all others, by less; -1 where none is known.
func extreme(run []growth.Row, of func(*growth.Row) int64, less func(a, b int64) bool) int {
	best := -1
	for i := range run {
		value := of(&run[i])
		if value != growth.Unknown && (best < 0 || less(value, of(&run[best]))) {
			best = i
		}
	}
	return best
}
