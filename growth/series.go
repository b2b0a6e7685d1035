package growth

import (
	"cmp"
	"math"
	"slices"
	"sort"
)

// A Series is one size over time, such as the resident memory of a process. X is in seconds, or in training steps where the
// file has no times; Y is in bytes. Both have the same length. The samples may come in any order; where X is not a number, or Y
// no size (not a number, infinite, negative), there is a gap.
type Series struct {
	X, Y []float64
}

// A Setting is what is known besides the series. All X are in the series' own unit; the zero value knows nothing.
type Setting struct {
	// Age of the process at the series' first sample.
	Age float64
	// Limit in bytes that Y cannot pass; 0: unknown.
	Limit float64
	// Start of the process on the X axis where the series reaches further back, to an earlier process; nil: unknown.
	Start *float64
	// EpochEnd is when the first pass over the data ended, or is due to end; nil: unknown.
	EpochEnd *float64
	// Cycle is the period of epochs or validations, the longer of them; 0: unknown.
	Cycle float64
	// Tolerable is growth in bytes per X that the user calls harmless; 0: none is.
	Tolerable float64
}

// clean is the series without gaps, in the order of X.
func (s Series) clean() Series {
	readable := func(i int) bool { return math.Abs(s.X[i]) < 1e18 && s.Y[i] >= 0 && s.Y[i] < 1<<63 }
	fine := true
	for i := 0; i < len(s.X) && fine; i++ {
		fine = readable(i) && (i == 0 || s.X[i-1] <= s.X[i])
	}
	if fine {
		return s
	}
	var c Series
	for i := range s.X {
		if readable(i) {
			c.X, c.Y = append(c.X, s.X[i]), append(c.Y, s.Y[i])
		}
	}
	return c.sorted()
}

// sorted is the series in the order of X.
func (s Series) sorted() Series {
	type sample struct{ x, y float64 }
	samples := make([]sample, len(s.X))
	for i := range samples {
		samples[i] = sample{s.X[i], s.Y[i]}
	}
	slices.SortFunc(samples, func(a, b sample) int { return cmp.Or(cmp.Compare(a.x, b.x), cmp.Compare(a.y, b.y)) })
	for i, sample := range samples {
		s.X[i], s.Y[i] = sample.x, sample.y
	}
	return s
}

// from are the samples from an X on.
func (s Series) from(x float64) Series {
	i := sort.SearchFloat64s(s.X, x)
	return Series{X: s.X[i:], Y: s.Y[i:]}
}

// until are the samples before an X.
func (s Series) until(x float64) Series {
	n := len(s.X) - len(s.from(x).X)
	return Series{X: s.X[:n], Y: s.Y[:n]}
}

// end is the X of the last sample.
func (s Series) end() float64 { return s.X[len(s.X)-1] }
