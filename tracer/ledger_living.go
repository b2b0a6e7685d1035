package tracer

import (
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/residency"
)

// living is an estimate of what objects that are alive have in memory.
type living struct {
	bytes             [residency.Tags]float64
	variance, swapped float64
	newest            cluster
}

// A cluster is what was found of one stack's objects in one block of a sampled mapping.
type cluster struct {
	at    uint64 // the block
	bytes float64
}

// add adds so many objects of a size.
func (e *living) add(tag residency.Tag, size, objects float64) {
	bytes := size * objects
	e.bytes[tag] += bytes
	e.variance += bytes * max(0, bytes-size)
}

// spread adds to the variance what comes of having looked at some blocks of a sampled mapping alone: what lies in one of them
// was looked at together. Objects come in order, and no run of pages is of two blocks.
func (e *living) spread(a *area, runs residency.Runs, objects float64) {
	for _, run := range runs {
		if at := run.Start &^ (a.block - 1); at != e.newest.at {
			e.newest = cluster{at: at}
		}
		if run.Swapped {
			continue
		}
		before := e.newest.bytes
		e.newest.bytes += float64(run.Len()) * objects
		e.variance += a.blockVariance(e.newest.bytes*e.newest.bytes - before*before)
	}
}

// scaled is all bytes, those of each tag multiplied by its factor.
func (e *living) scaled(factors [residency.Tags]float64) int64 {
	var sum float64
	for tag, bytes := range e.bytes {
		sum += bytes * factors[tag]
	}
	return round(sum)
}

// addLiving adds what living objects hold. Estimates that exceed what there is, of all heaps together, are scaled down to it.
func (l *ledger) addLiving() {
	factors := residency.Fit(l.heaps)
	for stack, of := range l.living {
		l.hold(l.target.stacks.get(stack), growth.KindHeap, of.scaled(factors), round(of.swapped), of.variance)
	}
	l.name(growth.KindMetadata, l.headers.scaled(factors), 0, l.headers.variance, rootMetadata)
}
