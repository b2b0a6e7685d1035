package verdict

import (
	"cmp"
	"math"
	"slices"
	"sort"
)

// A Series is one size over time, such as the RSS of a process. X is in seconds, or in training
// steps; Y is in bytes. Both have the same length. The samples may be in any order. There is a gap
// where X is not a number, or Y no size (not a number, infinite, negative). Samples that are less than
// resolution apart are of one moment.
type Series struct {
	X, Y []float64
}

// A Setting has the facts besides the series. All X are in the series' own unit. The zero value
// knows nothing.
type Setting struct {
	// Age of the process at the series' first sample.
	Age float64
	// Limit of Y in bytes; 0: unknown.
	Limit float64
	// Start of the process on the X axis, where earlier samples are of another process; nil:
	// unknown.
	Start *float64
	// EpochEnd is when the first pass over the data ended, or is due to end; nil: unknown.
	EpochEnd *float64
	// Cycle is the period of epochs or validations, the longer of them; 0: unknown.
	Cycle float64
	// Tolerable is growth in bytes per X that the user calls harmless.
	Tolerable float64
}

// resolution of X.
const resolution = 1e-9

// clean returns the series without gaps, in the order of X, with one X for each moment.
func (s Series) clean() Series {
	isReadable := func(i int) bool {
		return math.Abs(s.X[i]) < 1e18 && s.Y[i] >= 0 && s.Y[i] < 1<<63
	}
	isClean := true
	for i := 0; i < len(s.X) && isClean; i++ {
		isClean = isReadable(i) && (i == 0 || s.X[i-1] == s.X[i] || s.X[i-1]+resolution <= s.X[i])
	}
	if isClean {
		return s
	}

	var c Series
	for i := range s.X {
		if isReadable(i) {
			c.X, c.Y = append(c.X, s.X[i]), append(c.Y, s.Y[i])
		}
	}
	c = c.sorted()
	for i := 1; i < len(c.X); i++ {
		if c.X[i] < c.X[i-1]+resolution {
			c.X[i] = c.X[i-1]
		}
	}
	return c
}

// sorted sorts the series in place by X, then Y.
func (s Series) sorted() Series {
	type sample struct{ x, y float64 }
	samples := make([]sample, len(s.X))
	for i := range samples {
		samples[i] = sample{s.X[i], s.Y[i]}
	}

	slices.SortFunc(samples, func(a, b sample) int {
		return cmp.Or(cmp.Compare(a.x, b.x), cmp.Compare(a.y, b.y))
	})
	for i, sample := range samples {
		s.X[i], s.Y[i] = sample.x, sample.y
	}

	return s
}

// from returns the samples from an X on.
func (s Series) from(x float64) Series {
	i := sort.SearchFloat64s(s.X, x)
	return Series{X: s.X[i:], Y: s.Y[i:]}
}

// until returns the samples before an X.
func (s Series) until(x float64) Series {
	n := sort.SearchFloat64s(s.X, x)
	return Series{X: s.X[:n], Y: s.Y[:n]}
}

// end is the X of the last sample.
func (s Series) end() float64 { return s.X[len(s.X)-1] }

// sinceStart drops samples of an earlier process: those before the known start, else those before
// the last fall that looks like a restart. The new process has no age, and an epoch mark before its
// first sample is the earlier one's.
func (s Series) sinceStart(setting Setting) (Series, Setting, bool) {
	if len(s.X) < minSamples {
		return s, setting, false
	}

	cut := 0
	if setting.Start != nil {
		cut = sort.SearchFloat64s(s.X, *setting.Start)
	} else {
		cut = lastRestart(s.Y)
	}
	if cut == 0 {
		return s, setting, false
	}

	s = Series{X: s.X[cut:], Y: s.Y[cut:]}
	setting.Age = 0
	if len(s.X) > 0 && setting.EpochEnd != nil && *setting.EpochEnd <= s.X[0] {
		setting.EpochEnd = nil
	}

	return s, setting, true
}

// lastRestart returns the index of the first sample after the last restart, by size alone, or 0. At
// a restart, the lowest sample of a bucket lies 40% below all of the 8 buckets before it. Spikes do
// not fall so deep, as the series visits its lower envelope between them.
func lastRestart(y []float64) int {
	const maxBuckets, bucketsBefore, maxLevel = 96, 8, 0.6
	n := min(maxBuckets, len(y))
	lows := make([]float64, n)
	cut := 0
	for k := range n {
		bucket := y[partStart(len(y), n, k):partStart(len(y), n, k+1)]
		lows[k] = slices.Min(bucket)
		if k >= 3 && lows[k] < maxLevel*slices.Min(lows[max(0, k-bucketsBefore):k]) {
			cut = partStart(len(y), n, k) + slices.Index(bucket, lows[k])
		}
	}
	return cut
}

// partStart is where the k-th of n parts of a whole begins. The first parts are longer by one where
// they cannot be equal.
func partStart(whole, n, k int) int {
	return whole/n*k + min(whole%n, k)
}
