package estimate

import (
	"maps"
	"slices"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/liveness"
)

// sightings is the evidence for what a stack holds, of objects that were seen in windows.
type burstEvidence struct {
	bursts  map[int]*growth.BurstSum
	classes map[uint64]float64 // bytes by the size of chunks
	hazard  growth.HazardRate
	prints  fingerprints
}

// window of those that objects were born in.
func (g *burstEvidence) burst(place int) *growth.BurstSum {
	if g.bursts == nil {
		g.bursts, g.classes = make(map[int]*growth.BurstSum), make(map[uint64]float64)
	}
	if g.bursts[place] == nil {
		g.bursts[place] = &growth.BurstSum{Burst: place}
	}
	return g.bursts[place]
}

// add notes an object.
func (g *burstEvidence) add(size uint64, r Estimate, bytes, variance float64) {
	w := g.burst(r.Burst)
	w.Bytes += bytes
	w.Variance += variance
	w.Error += r.Weight * float64(size) * r.aliveError
	g.classes[chunkClass(size)] += bytes
	g.prints.add(r.tracked)
}

// merge adds those of another stack that looks the same.
func (g *burstEvidence) merge(other *burstEvidence) {
	for place, from := range other.bursts {
		to := g.burst(place)
		to.Bytes += from.Bytes
		to.Variance += from.Variance
		to.Error += from.Error
	}
	for class, bytes := range other.classes {
		g.classes[class] += bytes
	}
	g.hazard.Add(&other.hazard)
	g.prints.merge(&other.prints)
}

// chunkClass is the size of the C library's chunk for so many bytes (checked_request2size, malloc/malloc.c).
func chunkClass(size uint64) uint64 {
	const header, align, least = 8, 16, 32
	return max(least, (size+header+align-1)&^(align-1))
}

// weigh makes the evidence of a holding, and takes into its variance that windows differ.
func (g *burstEvidence) apply(h *growth.Holding, b *Estimator) {
	told := &growth.BurstEvidence{Bursts: len(g.bursts), Hazard: g.hazard}
	g.prints.summarize(told)
	var sums []growth.BurstSum
	for _, place := range slices.Sorted(maps.Keys(g.bursts)) {
		sums = append(sums, *g.bursts[place])
	}
	told.Dispersion = growth.Dispersion(sums, b.burstSeconds)
	h.Variance *= told.Dispersion
	for i := range h.Births {
		h.Births[i].Variance *= told.Dispersion
	}
	most := 0.0
	for class, bytes := range g.classes {
		if bytes > most || bytes == most && class > told.SizeClass {
			told.SizeClass, most = class, bytes
		}
	}
	h.Evidence = told
}

// prints are those of the objects of a stack.
type fingerprints struct {
	seen           map[liveness.Fingerprint]int
	all, unchanged int
}

func (p *fingerprints) add(f liveness.Tracked) {
	if f.Fingerprint == 0 {
		return
	}
	if p.seen == nil {
		p.seen = make(map[liveness.Fingerprint]int)
	}
	p.seen[f.Fingerprint]++
	p.all++
	if !f.Changed {
		p.unchanged++
	}
}

func (p *fingerprints) merge(other *fingerprints) {
	for print, n := range other.seen {
		if p.seen == nil {
			p.seen = make(map[liveness.Fingerprint]int)
		}
		p.seen[print] += n
	}
	p.all += other.all
	p.unchanged += other.unchanged
}

// tell what they say.
func (p *fingerprints) summarize(s *growth.BurstEvidence) {
	s.Fingerprinted, s.Unchanged = p.all, p.unchanged
	alike := 0.0
	for _, n := range p.seen {
		alike += float64(n) * float64(n-1)
	}
	if n := float64(p.all); n > 1 {
		s.Diversity = 1 - alike/(n*(n-1))
	}
}
