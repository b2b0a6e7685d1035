package growth

import "time"

// A HeapCoverage is how the allocator of the heap was probed. The zero value: every call, all the
// time.
type HeapCoverage struct {
	// Bursts of probing; 0: the allocator was probed all the time. Open is their total length.
	Bursts int
	Open   time.Duration
	// Lag is the age at which an object counts: younger ones may be about to be freed. The birth of
	// an object is reported as so much later.
	Lag time.Duration
	// Since is when the bursts began, from the start of the trace. Before, every call was probed.
	Since time.Duration
	// Extrapolation is the mean, over the bursts, of the time that a burst represents divided by
	// its length.
	Extrapolation float64
	// Slowdown is how many times slower the program was taken to run in bursts.
	Slowdown float64
	// Untrackable is the reason why liveness cannot be checked from outside; empty where it can.
	Untrackable string
}

// Settled returns the time after which growth is estimated from bursts only. Earlier growth mixes
// full probing (counted at once) with bursts (counted Lag later).
func (w *HeapCoverage) Settled() time.Duration {
	if w.Bursts == 0 {
		return 0
	}
	return w.Since + w.Lag
}

// burstRatio returns the weight of an object from a burst in a later snapshot as a multiple of its
// weight in this one: the slowdown is known better by then.
func (w *HeapCoverage) burstRatio(later *HeapCoverage) float64 {
	if !(w.Slowdown > 0 && later.Slowdown > 0 && w.Extrapolation > 1) {
		return 1
	}
	pauses := (w.Extrapolation - 1) / w.Slowdown
	return (1 + later.Slowdown*pauses) / w.Extrapolation
}

// RescaledInuse returns InuseBytes of a snapshot by the slowdown of a later one, so that objects
// alive in both cancel in a difference.
func (h *Holding) RescaledInuse(of, later *HeapCoverage) int64 {
	if h.Evidence == nil {
		return h.InuseBytes
	}
	return h.InuseBytes + int64(h.Evidence.Bytes*(of.burstRatio(later)-1))
}

// A BurstEvidence is the evidence for a Holding whose allocations were sampled in bursts.
type BurstEvidence struct {
	// Bursts with births of live objects.
	Bursts int
	// Bytes is the part of InuseBytes that objects born in bursts represent.
	Bytes float64
	// HazardRate of the stack's objects.
	HazardRate HazardRate
	// Fingerprinted objects had their contents hashed when their burst ended. Unchanged of these
	// hash the same now. Diversity is the probability that two of them hash differently.
	Fingerprinted, Unchanged int
	Diversity                float64
	// Dispersion is the result of the function Dispersion, which Variance includes; 0 means 1.
	Dispersion float64
	// SizeClass of the allocator's chunks that has most of the bytes, in bytes. Objects of one
	// class can reuse each other's chunks between bursts.
	SizeClass uint64
}

// Join adds the evidence for another stack. The bursts of the two may be the same.
//
// The probability that two objects hash differently is no smaller than in the less diverse of the
// two stacks, as the Gini-Simpson index is concave.
func (e *BurstEvidence) Join(other *BurstEvidence) {
	switch {
	case e.Fingerprinted == 0:
		e.Diversity = other.Diversity
	case other.Fingerprinted > 0:
		e.Diversity = min(e.Diversity, other.Diversity)
	}
	if other.Bytes > e.Bytes {
		e.SizeClass = other.SizeClass
	}

	e.Bursts = max(e.Bursts, other.Bursts)
	e.Bytes += other.Bytes
	e.HazardRate.Add(&other.HazardRate)
	e.Fingerprinted += other.Fingerprinted
	e.Unchanged += other.Unchanged
	e.Dispersion = max(e.Dispersion, other.Dispersion)
}

// A BurstSum is the live objects of one stack that were born in one burst, weighted by the time
// that the burst represents: bytes, and the sum of w(w - s) over objects of s bytes and weight w.
type BurstSum struct {
	// Burst is its index among all bursts.
	Burst           int
	Bytes, Variance float64
	// Error of Bytes that all bursts have in common, in bytes: the error of the survival
	// probability.
	Error float64
}

// Dispersion returns the overdispersion, at least 1, of a stack's per-burst sums relative to
// Poisson sampling of objects that are born evenly: a step or an epoch allocates in bulk, and a
// burst meets it or not. sums are in the order of their bursts; stand has the time that each burst
// represents.
//
// The variance between bursts is estimated from successive differences (von Neumann 1941), so a
// slow drift does not count as dispersion. The common error of the bursts is added.
func Dispersion(sums []BurstSum, stand []float64) float64 {
	n := len(stand)
	if n < 2 {
		return 1
	}

	// pairVariance is half the squared difference between a burst and the next, in bytes² of a sum
	// over all bursts.
	pairVariance := func(burst int, here, next float64) float64 {
		f, g := stand[burst], stand[burst+1]
		if !(f > 0 && g > 0) {
			return 0
		}
		d := here/f - next/g
		return d * d / 2 * (f*f + g*g) / 2
	}

	var between, poisson, common float64
	for i, sum := range sums {
		if sum.Burst < 0 || sum.Burst >= n {
			continue
		}
		poisson += sum.Variance
		common += sum.Error
		if before := sum.Burst - 1; before >= 0 && (i == 0 || sums[i-1].Burst != before) {
			between += pairVariance(before, 0, sum.Bytes)
		}
		if after := sum.Burst + 1; after < n {
			next := 0.0
			if i+1 < len(sums) && sums[i+1].Burst == after {
				next = sums[i+1].Bytes
			}
			between += pairVariance(sum.Burst, sum.Bytes, next)
		}
	}
	if !(poisson > 0) {
		return 1
	}

	return max(1, between*float64(n)/float64(n-1)/poisson) + common*common/poisson
}

// A Trend is the behaviour of a stack's memory over a window of time.
type Trend string

// The trends of stacks.
const (
	TrendAccumulating Trend = "accumulating" // keeps its allocations, at a steady rate
	TrendSaturating   Trend = "saturating"   // grew in the first half of the window, hardly since
	TrendTransient    Trend = "transient"    // live objects are young: allocated and freed
	TrendReplaced     Trend = "replaced"     // a constant number of objects, replaced by larger ones
	TrendRefilled     Trend = "refilled"     // falls and rises again
	TrendNoGrowth     Trend = "no-growth"    // growth is not proven
	TrendUndecided    Trend = "undecided"    // grows, but the evidence from bursts is insufficient
)

// An UndecidedReason is why the evidence from bursts cannot prove that a stack grows.
type UndecidedReason string

// The reasons, in the order in which they are checked.
const (
	UndecidedUntrackable  UndecidedReason = "untrackable"   // the liveness of its objects cannot be checked
	UndecidedFewSamples   UndecidedReason = "few-samples"   // too few objects
	UndecidedFewBursts    UndecidedReason = "few-bursts"    // born in too few bursts
	UndecidedUnseenDeaths UndecidedReason = "unseen-deaths" // most objects may have been freed between bursts
	UndecidedSizeClass    UndecidedReason = "size-class"    // a larger stack of its class may have its chunks
	UndecidedHeapGrowth   UndecidedReason = "heap-growth"   // the resident heap has not grown by as much
)
