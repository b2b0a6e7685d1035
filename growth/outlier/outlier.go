// Package outlier finds the rank of a job that grows unlike the others.
package outlier

// A Member is one of several that are expected to grow alike: its growth in bytes a second, and the
// standard error of that; 0: it is exact, NaN: it is unknown, so that the growth may be any.
type Member struct{ Growth, Error float64 }

// A Score is how far a member is from the others.
type Score struct {
	// Z is the robust z-score (Iglewicz and Hoaglin 1993): the distance from the median in units of
	// the scaled MAD. It is infinite where the others do not differ at all.
	Z float64
	// Chance is the probability that one of as many members without an outlier has such a score.
	Chance float64
}

// A Result is the scores of members, in their order. Median and MAD (median absolute deviation) are
// of their growth.
type Result struct {
	Median, MAD float64
	Scores      []Score

	members []Member
}
