package verdict

import (
	"math"
	"slices"
	"sort"
)

const (
	// minSpikeHeight above the lower envelope, as a share of the level; lower excursions are noise.
	minSpikeHeight = 0.02
	// minSamplesForBuckets: shorter series are not grouped, each moment is a bucket.
	minSamplesForBuckets = 64
)

// An envelope is the lower envelope of a series: one point per bucket of time, without spikes.
type envelope struct {
	x, y   []float64
	spikes Spikes
}

// envelopeOf returns the lower envelope of a series of at least one sample. A first one is a low
// percentile of each bucket, smoothed by a morphological opening. The envelope has the median of
// the samples near the first one, if they are at least a tenth of the bucket.
func envelopeOf(s Series) envelope {
	bounds := bucketBounds(s.X)
	scratch := slices.Clone(s.Y)
	level := quantile(scratch, 0.5)
	first := opening(bucketLows(s, bounds, scratch), (len(bounds)-1)/12)

	above := heightsAbove(s, bounds, first)
	copy(scratch, above)
	cut := max(5*quantile(scratch, 0.25), minSpikeHeight*level)

	var e envelope
	for k := range first {
		from, to := bounds[k], bounds[k+1]
		near, x := scratch[:0], 0.0
		for i := from; i < to; i++ {
			if above[i] <= cut {
				near = append(near, s.Y[i])
				x += s.X[i] - s.X[from]
			}
		}
		if len(near) > 0 && 10*len(near) >= to-from {
			e.x = append(e.x, s.X[from]+x/float64(len(near)))
			e.y = append(e.y, quantile(near, 0.5))
		}
	}

	e.spikes = e.spikesOf(s, above, cut)

	return e
}

// start, end and length of the envelope in X.
func (e envelope) start() float64  { return e.x[0] }
func (e envelope) end() float64    { return e.x[len(e.x)-1] }
func (e envelope) length() float64 { return e.end() - e.start() }

// bucketBounds returns the indices at which the buckets of a series begin, and its length. Buckets
// have equal time without gaps, or one moment each where there are few samples.
func bucketBounds(x []float64) []int {
	n := len(x)
	if n < minSamplesForBuckets {
		bounds := []int{0}
		for i := 1; i < n; i++ {
			if x[i] > x[i-1] {
				bounds = append(bounds, i)
			}
		}
		return append(bounds, n)
	}

	buckets := min(96, max(24, n/10))
	at := withoutGaps(x, buckets)
	width := (at[n-1] - at[0]) / float64(buckets)
	bounds := make([]int, buckets+1)
	for k := 1; k < buckets; k++ {
		bounds[k] = sort.SearchFloat64s(at, at[0]+float64(k)*width)
	}
	bounds[buckets] = n

	return bounds
}

// withoutGaps returns X as if each gap were one bucket long, where gaps take half of the series or
// more. A gap is a distance of more than minGapBuckets of so many buckets: it would leave most
// buckets empty, and the samples to a few.
func withoutGaps(x []float64, buckets int) []float64 {
	const minGapBuckets, maxPasses = 5, 8
	for range maxPasses { // where a long one is closed, shorter ones show
		length := x[len(x)-1] - x[0]
		width := length / float64(buckets)
		closed := make([]float64, len(x))
		for i := 1; i < len(x); i++ {
			distance := x[i] - x[i-1]
			if distance > minGapBuckets*width {
				distance = width
			}
			closed[i] = closed[i-1] + distance
		}

		if closed[len(x)-1] > length/2 {
			return x
		}
		x = closed
	}

	return x
}

// bucketLows returns the tenth percentile of each bucket, or its minimum if it has few samples. It
// is infinite for a bucket without samples.
func bucketLows(s Series, bounds []int, scratch []float64) []float64 {
	copy(scratch, s.Y)
	lows := make([]float64, len(bounds)-1)
	for k := range lows {
		switch bucket := scratch[bounds[k]:bounds[k+1]]; {
		case len(bucket) == 0:
			lows[k] = math.Inf(1)
		case len(bucket) < 5:
			lows[k] = slices.Min(bucket)
		default:
			slices.Sort(bucket)
			lows[k] = bucket[int(math.Ceil(0.1*float64(len(bucket)-1)))]
		}
	}

	return lows
}

// opening is a morphological opening: the running maximum of the running minimum over half buckets
// to each side. It drops spikes and keeps ramps, except for half buckets at the ends.
func opening(low []float64, half int) []float64 {
	around := func(values []float64, k int) []float64 {
		return values[max(0, k-half):min(len(values), k+half+1)]
	}

	eroded := make([]float64, len(low))
	for k := range low {
		eroded[k] = slices.Min(around(low, k))
		if math.IsInf(low[k], 1) { // its neighbours, on the edge of a gap, may be spikes alone
			eroded[k] = math.Inf(-1)
		}
	}

	opened := make([]float64, len(low))
	for k := range low {
		opened[k] = slices.Max(around(eroded, k))
	}
	return opened
}

// heightsAbove returns the height of each sample above a first lower envelope.
func heightsAbove(s Series, bounds []int, first []float64) []float64 {
	above := make([]float64, len(s.Y))
	for k := range first {
		for i := bounds[k]; i < bounds[k+1]; i++ {
			above[i] = s.Y[i] - first[k]
		}
	}
	return above
}

// spikesOf returns the excursions higher than cut above the first lower envelope, and higher than
// half of it above the line through the envelope: the first one lags behind a ramp, in each bucket
// and at the end. It overwrites above.
func (e envelope) spikesOf(s Series, above []float64, cut float64) Spikes {
	spikes := above[:0]
	var spans []Span
	last := -1
	l := lineThrough(e.x, e.y)
	for i, h := range above {
		height := min(h, s.Y[i]-l.at(s.X[i]))
		if h <= cut || height <= cut/2 {
			continue
		}
		spikes = append(spikes, height)
		if last < 0 || last != i-1 {
			spans = append(spans, Span{From: s.X[i]})
		}
		spans[len(spans)-1].To, last = s.X[i], i
	}

	if len(spikes) == 0 {
		return Spikes{}
	}

	return Spikes{
		Share:  float64(len(spikes)) / float64(len(s.Y)),
		Height: quantile(spikes, 0.95),
		Spans:  spans,
	}
}
