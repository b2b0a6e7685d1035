package residency

import (
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/residency/pages"
)

// living is an estimate of what objects that are alive have in memory.
type stackResident struct {
	bytes    [pages.OriginCount]float64
	variance float64
	// sampled is the part of bytes in mappings of which only some blocks were looked at, and doubt that of their factor.
	sampled, doubt float64
	// clusters are what was found in each block of those, by its address: bytes.
	clusters map[uint64]float64
}

// add adds so many objects of a size.
func (e *stackResident) add(tag pages.Origin, size, objects float64) {
	bytes := size * objects
	e.bytes[tag] += bytes
	e.variance += bytes * max(0, bytes-size)
}

// spread adds to the variance what comes of having looked at some blocks of a sampled mapping alone: what lies in one of them
// was looked at together.
func (e *stackResident) spread(a *Segment, runs pages.Runs, objects float64) {
	if e.clusters == nil {
		e.clusters = make(map[uint64]float64)
	}
	e.doubt = a.factorRelVar
	for _, run := range runs {
		if run.Swapped {
			continue
		}
		e.sampled += float64(run.Len()) * objects * a.factor
		for start := run.Start; start < run.End; {
			at := start &^ (a.groupSize - 1)
			end := min(run.End, at+a.groupSize)
			before := e.clusters[at]
			after := before + float64(end-start)*objects
			e.clusters[at] = after
			e.variance += a.blockVariance(after*after - before*before)
			start = end
		}
	}
}

// scaled is all bytes, those of each tag multiplied by its factor.
func (e *stackResident) scaled(factors [pages.OriginCount]float64) int64 {
	var sum float64
	for tag, bytes := range e.bytes {
		sum += bytes * factors[tag]
	}
	return round(sum)
}

// addLiving adds what living objects hold. Estimates that exceed what there is, of all heaps together, are scaled down to it.
func (l *Rows) addLive() {
	factors := pages.FitFactors(l.heaps)
	for stack, of := range l.live {
		l.hold(l.stacks(stack), growth.KindHeap, of.scaled(factors), 0, of.variance+of.sampled*of.sampled*of.doubt)
	}
	l.name(growth.KindMetadata, l.headers.scaled(factors), 0, l.headers.variance, rootMetadata)
}
