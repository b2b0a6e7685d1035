package tracer

import (
	"maps"
	"slices"

	"github.com/allocscope/allocscope/growth"
)

// sightings is the evidence for what a stack holds, of objects that were seen in windows.
type sightings struct {
	windows map[int]*growth.WindowSum
	classes map[uint64]float64 // bytes by the size of chunks
	hazard  growth.Hazard
	prints  prints
}

// window of those that objects were born in.
func (g *sightings) window(place int) *growth.WindowSum {
	if g.windows == nil {
		g.windows, g.classes = make(map[int]*growth.WindowSum), make(map[uint64]float64)
	}
	if g.windows[place] == nil {
		g.windows[place] = &growth.WindowSum{Window: place}
	}
	return g.windows[place]
}

// add notes an object.
func (g *sightings) add(size uint64, r record, bytes, variance float64) {
	w := g.window(r.window)
	w.Bytes += bytes
	w.Variance += variance
	w.Error += r.weight * float64(size) * r.err
	g.classes[chunkClass(size)] += bytes
	g.prints.add(r.followed)
}

// merge adds those of another stack that looks the same.
func (g *sightings) merge(other *sightings) {
	for place, from := range other.windows {
		to := g.window(place)
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
func (g *sightings) weigh(h *growth.Holding, b *books) {
	told := &growth.Sighting{Windows: len(g.windows), Hazard: g.hazard}
	g.prints.tell(told)
	var sums []growth.WindowSum
	for _, place := range slices.Sorted(maps.Keys(g.windows)) {
		sums = append(sums, *g.windows[place])
	}
	told.Dispersion = growth.Dispersion(sums, b.stand)
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
	h.Sighting = told
}
