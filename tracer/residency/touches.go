package residency

import (
	"cmp"
	"slices"

	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/residency/pages"
	"github.com/allocscope/allocscope/tracer/source"
)

// maxTouches bounds the stacks of Rows.Touches, which are all named. The largest are kept.
const maxTouches = 256

// A Touch is heap memory that a stack has brought into RAM in a spike of RSS.
type Touch struct {
	Stack uint64 // ID
	Bytes int64
}

// findTouches divides the heap memory that came into RAM since before a spike among the stacks that
// have touched it first, in proportion to the bytes that their sampled page faults represent.
//
// First touch says nothing about what keeps memory, as elsewhere. But RSS rises by first touches
// alone, so that the stacks of a spike are those that made it.
func (r *Rows) findTouches(faults []source.Fault) {
	if !r.inSpike || r.stacks == nil {
		return
	}

	fresh := r.freshHeap().Subtract(r.usual)
	var total float64
	for _, span := range fresh {
		if segment := r.segmentAt(span.Start); segment != nil {
			total += float64(span.Len()) * segment.factor
		}
	}

	weights, sum := r.touchWeights(fresh, faults)
	if !(sum > 0) {
		return
	}
	for stack, weight := range weights {
		r.Touches = append(r.Touches, Touch{Stack: stack, Bytes: round(total * weight / sum)})
	}
	slices.SortFunc(r.Touches, func(a, b Touch) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Stack, b.Stack))
	})
	r.Touches = r.Touches[:min(maxTouches, len(r.Touches))]
}

// freshHeap returns the private memory of the heap that came into RAM since tracing started, but for
// objects whose allocation site is known by their mapping.
func (r *Rows) freshHeap() pages.Spans {
	var fresh []pages.Span
	for i := range r.Segments {
		segment := &r.Segments[i]
		if !segment.Heap || segment.isMappedObject() {
			continue
		}
		for _, run := range r.runs.Clip(segment.Region.Start, segment.Region.End) {
			if !run.File && !run.Swapped && run.Origin == pages.SinceTracing {
				fresh = append(fresh, run.Span)
			}
		}
	}
	return pages.MergeSpans(fresh)
}

// touchWeights returns the bytes that the faults of each stack in some memory represent, and their
// sum.
func (r *Rows) touchWeights(
	memory pages.Spans, faults []source.Fault,
) (weights map[uint64]float64, sum float64) {
	var hugeRuns pages.Spans // in order
	for _, run := range r.runs {
		if run.Huge {
			hugeRuns = append(hugeRuns, run.Span)
		}
	}
	huge := hugePages{pages: float64(hugeRuns.Intersect(memory).Len()) / hugePageBytes}

	small, large := make(map[uint64]float64), make(map[uint64]float64) // faults
	for _, f := range faults {
		if _, ok := memory.Find(f.Page); !ok {
			continue
		}
		if run, ok := r.runs.Find(f.Page); ok && run.Huge {
			large[f.Stack] += f.Weight
			huge.faults += f.Weight
		} else {
			small[f.Stack] += f.Weight
		}
	}

	weights = make(map[uint64]float64)
	for stack, faults := range small {
		weights[stack] += faults * float64(process.PageSize)
	}
	for stack, faults := range large {
		weights[stack] += faults * huge.bytesPerFault()
	}
	for _, weight := range weights {
		sum += weight
	}
	return weights, sum
}
