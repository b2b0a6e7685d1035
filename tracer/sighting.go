package tracer

import "github.com/allocscope/allocscope/growth"

// sightings is the evidence for what a stack holds, of objects that were seen in windows.
type sightings struct {
	windows  map[int]float64    // bytes by the window of birth
	classes  map[uint64]float64 // bytes by the size of chunks
	exposure float64
	deaths   int
}

func (g *sightings) add(window int, size uint64, bytes float64) {
	if g.windows == nil {
		g.windows, g.classes = make(map[int]float64), make(map[uint64]float64)
	}
	g.windows[window] += bytes
	g.classes[chunkClass(size)] += bytes
}

// merge adds those of another stack that looks the same.
func (g *sightings) merge(other *sightings) {
	if g.windows == nil {
		g.windows, g.classes = make(map[int]float64), make(map[uint64]float64)
	}
	for window, bytes := range other.windows {
		g.windows[window] += bytes
	}
	for class, bytes := range other.classes {
		g.classes[class] += bytes
	}
	g.exposure += other.exposure
	g.deaths += other.deaths
}

// chunkClass is the size of the C library's chunk for so many bytes (checked_request2size, malloc/malloc.c).
func chunkClass(size uint64) uint64 {
	const header, align, least = 8, 16, 32
	return max(least, (size+header+align-1)&^(align-1))
}

func (g *sightings) sighting() *growth.Sighting {
	told := &growth.Sighting{Windows: len(g.windows), Exposure: g.exposure, Deaths: g.deaths}
	most := 0.0
	for class, bytes := range g.classes {
		if bytes > most || bytes == most && class > told.SizeClass {
			told.SizeClass, most = class, bytes
		}
	}
	return told
}
