package estimate

import (
	"maps"
	"slices"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/liveness"
)

// burstEvidence is the evidence for the objects of a stack that were born in bursts.
type burstEvidence struct {
	bursts       map[int]*growth.BurstSum // by Estimate.Burst
	classes      map[uint64]float64       // bytes by Estimate.sizeClass
	hazardRate   growth.HazardRate
	fingerprints fingerprints
}

// burst returns the sums of a burst, new ones if there were none.
func (e *burstEvidence) burst(index int) *growth.BurstSum {
	if e.bursts == nil {
		e.bursts, e.classes = make(map[int]*growth.BurstSum), make(map[uint64]float64)
	}
	if e.bursts[index] == nil {
		e.bursts[index] = &growth.BurstSum{Burst: index}
	}
	return e.bursts[index]
}

// add adds an object of a size. bytes is the number of bytes that it represents, and variance the
// variance of bytes.
func (e *burstEvidence) add(size uint64, estimate Estimate, bytes, variance float64) {
	sum := e.burst(estimate.Burst)
	sum.Bytes += bytes
	sum.Variance += variance
	sum.Error += estimate.Weight * float64(size) * estimate.aliveError

	e.classes[estimate.sizeClass] += bytes
	e.fingerprints.add(estimate.tracked)
}

// merge adds the evidence of another stack that has the same frames.
func (e *burstEvidence) merge(other *burstEvidence) {
	for index, from := range other.bursts {
		to := e.burst(index)
		to.Bytes += from.Bytes
		to.Variance += from.Variance
		to.Error += from.Error
	}
	for class, bytes := range other.classes {
		e.classes[class] += bytes
	}

	e.hazardRate.Add(&other.hazardRate)
	e.fingerprints.merge(&other.fingerprints)
}

// apply sets the evidence of a holding, and multiplies its variances by the overdispersion of the
// bursts. burstSeconds is the time that each burst represents.
func (e *burstEvidence) apply(h *growth.Holding, burstSeconds []float64) {
	evidence := &growth.BurstEvidence{Bursts: len(e.bursts), HazardRate: e.hazardRate}
	e.fingerprints.summarize(evidence)

	var sums []growth.BurstSum
	for _, index := range slices.Sorted(maps.Keys(e.bursts)) {
		sums = append(sums, *e.bursts[index])
		evidence.Bytes += e.bursts[index].Bytes
	}
	evidence.Dispersion = growth.Dispersion(sums, burstSeconds)
	h.Variance *= evidence.Dispersion
	for i := range h.Births {
		h.Births[i].Variance *= evidence.Dispersion
	}

	most := 0.0
	for class, bytes := range e.classes {
		if bytes > most || bytes == most && class > evidence.SizeClass {
			evidence.SizeClass, most = class, bytes
		}
	}
	h.Evidence = evidence
}

// fingerprints counts the fingerprints of the tracked objects of a stack.
type fingerprints struct {
	counts           map[liveness.Fingerprint]int
	total, unchanged int
}

// add counts an object, unless it has no fingerprint.
func (f *fingerprints) add(o liveness.TrackedObject) {
	if o.Fingerprint == 0 {
		return
	}
	if f.counts == nil {
		f.counts = make(map[liveness.Fingerprint]int)
	}

	f.counts[o.Fingerprint]++
	f.total++
	if !o.Changed {
		f.unchanged++
	}
}

func (f *fingerprints) merge(other *fingerprints) {
	for fingerprint, n := range other.counts {
		if f.counts == nil {
			f.counts = make(map[liveness.Fingerprint]int)
		}
		f.counts[fingerprint] += n
	}
	f.total += other.total
	f.unchanged += other.unchanged
}

// summarize sets the fingerprint fields of the evidence. The diversity is the Gini-Simpson index
//
//	1 − Σ nᵢ(nᵢ−1) / (n(n−1)),
//
// the probability that two objects have different fingerprints: where it is small, an unchanged
// fingerprint proves little.
func (f *fingerprints) summarize(evidence *growth.BurstEvidence) {
	evidence.Fingerprinted, evidence.Unchanged = f.total, f.unchanged

	equalPairs := 0.0
	for _, n := range f.counts {
		equalPairs += float64(n) * float64(n-1)
	}
	if n := float64(f.total); n > 1 {
		evidence.Diversity = 1 - equalPairs/(n*(n-1))
	}
}
