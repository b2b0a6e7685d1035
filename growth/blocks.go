package growth

import (
	"math"
	"slices"
	"sort"
)

const (
	// spikeHeight is the height above the floor, as a share of the level, below which an excursion is noise.
	spikeHeight = 0.02
	// fewSamples: so few are not grouped, each is a block.
	fewSamples = 64
)

// A base is a series without its spikes: one point for each block of time.
type base struct {
	x, y   []float64
	spikes Spikes
}

// baseOf finds the base of a series of at least one sample.
func baseOf(s Series) base {
	bounds := blockBounds(s.X)
	scratch := slices.Clone(s.Y)
	level := quantile(scratch, 0.5)
	floor := opening(lows(s, bounds, scratch), (len(bounds)-1)/12)
	above := heights(s, bounds, floor)
	copy(scratch, above)
	cut := max(5*quantile(scratch, 0.25), spikeHeight*level)

	var b base
	for k := range floor {
		from, to := bounds[k], bounds[k+1]
		near, x := scratch[:0], 0.0
		for i := from; i < to; i++ {
			if above[i] <= cut {
				near = append(near, s.Y[i])
				x += s.X[i] - s.X[from]
			}
		}
		if len(near) > 0 && 10*len(near) >= to-from {
			b.x = append(b.x, s.X[from]+x/float64(len(near)))
			b.y = append(b.y, quantile(near, 0.5))
		}
	}
	b.spikes = b.spikesAmong(s, above, cut)
	return b
}

// start, end and length are those of the base in X.
func (b base) start() float64  { return b.x[0] }
func (b base) end() float64    { return b.x[len(b.x)-1] }
func (b base) length() float64 { return b.end() - b.start() }

// blockBounds are where the blocks of a series begin, and its end: blocks of equal time, or each moment where there are few
// samples.
func blockBounds(x []float64) []int {
	n := len(x)
	if n < fewSamples {
		bounds := []int{0}
		for i := 1; i < n; i++ {
			if x[i] > x[i-1] {
				bounds = append(bounds, i)
			}
		}
		return append(bounds, n)
	}
	blocks := min(96, max(24, n/10))
	width := (x[n-1] - x[0]) / float64(blocks)
	bounds := make([]int, blocks+1)
	for k := 1; k < blocks; k++ {
		bounds[k] = sort.SearchFloat64s(x, x[0]+float64(k)*width)
	}
	bounds[blocks] = n
	return bounds
}

// lows are the tenth percentiles of the blocks, never the single lowest of many samples; infinite for a block without samples.
func lows(s Series, bounds []int, scratch []float64) []float64 {
	copy(scratch, s.Y)
	low := make([]float64, len(bounds)-1)
	for k := range low {
		switch block := scratch[bounds[k]:bounds[k+1]]; {
		case len(block) == 0:
			low[k] = math.Inf(1)
		case len(block) < 5:
			low[k] = slices.Min(block)
		default:
			low[k] = nth(block, int(math.Ceil(0.1*float64(len(block)-1))))
		}
	}
	return low
}

// opening is the running maximum of the running minimum over half blocks to each side: it keeps ramps, but for as many blocks at
// the ends, and drops spikes.
func opening(low []float64, half int) []float64 {
	around := func(values []float64, k int) []float64 {
		return values[max(0, k-half):min(len(values), k+half+1)]
	}
	lowest := make([]float64, len(low))
	for k := range low {
		lowest[k] = slices.Min(around(low, k))
	}
	floor := make([]float64, len(low))
	for k := range low {
		floor[k] = slices.Max(around(lowest, k))
	}
	return floor
}

// heights are those of the samples above the floor of their block.
func heights(s Series, bounds []int, floor []float64) []float64 {
	above := make([]float64, len(s.Y))
	for k := range floor {
		for i := bounds[k]; i < bounds[k+1]; i++ {
			above[i] = s.Y[i] - floor[k]
		}
	}
	return above
}

// spikesAmong are the excursions: higher above the floor than cut, and above the line of the base as well, for the floor lags
// behind what rises, in each block and at the end. It changes the heights.
func (b base) spikesAmong(s Series, above []float64, cut float64) Spikes {
	spikes := above[:0]
	var spans []Span
	last := -1
	l := lineThrough(b.x, b.y)
	for i, h := range above {
		if height := min(h, s.Y[i]-l.at(s.X[i])); h > cut && height > cut/2 {
			spikes = append(spikes, height)
			if last < 0 || last != i-1 {
				spans = append(spans, Span{From: s.X[i]})
			}
			spans[len(spans)-1].To, last = s.X[i], i
		}
	}
	if len(spikes) == 0 {
		return Spikes{}
	}
	return Spikes{Share: float64(len(spikes)) / float64(len(s.Y)), Height: quantile(spikes, 0.95), Spans: spans}
}
