package residency

import (
	"cmp"
	"slices"
	"sort"

	"github.com/allocscope/allocscope/tracer/addrspace"
	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/source"
	"github.com/allocscope/allocscope/tracer/stack"
)

// maxTouches bounds the stacks of Rows.Touches, which are all named. The largest are kept.
const maxTouches = 256

// A Touch is heap memory that a stack has brought into RAM in a spike of RSS.
type Touch struct {
	Stack uint64 // ID
	Bytes int64
}

// findTouches divides the heap memory that came into RAM since before a spike. Where calls of brk(2)
// have made the main heap grow meanwhile, it belongs to their stacks. The rest is divided among the
// stacks that have touched it first, in proportion to the bytes that their sampled page faults
// represent.
//
// Neither shows the keeper of memory. But RSS rises by first touches alone, so that these stacks
// are those that made the spike.
func (r *Rows) findTouches(faults []source.Fault, extents []addrspace.Extent) {
	if !r.inSpike || r.stacks == nil {
		return
	}

	bytes := make(map[uint64]float64)
	fresh := r.freshHeap().Subtract(r.usual)
	var grown mem.Spans
	for _, e := range extents {
		if e.Stack != stack.LostID && e.Last >= r.keepFaultsFrom {
			bytes[e.Stack] += r.scaled(clip(fresh, e.Span))
			grown = append(grown, e.Span)
		}
	}

	rest := fresh.Subtract(mem.MergeSpans(grown))
	if weights, sum := r.touchWeights(rest, faults); sum > 0 {
		total := r.scaled(rest)
		for stack, weight := range weights {
			bytes[stack] += total * weight / sum
		}
	}

	for stack, part := range bytes {
		if part >= 1 {
			r.Touches = append(r.Touches, Touch{Stack: stack, Bytes: round(part)})
		}
	}
	slices.SortFunc(r.Touches, func(a, b Touch) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Stack, b.Stack))
	})
	r.Touches = r.Touches[:min(maxTouches, len(r.Touches))]
}

// scaled returns the bytes of some memory, extrapolated where its mapping was sampled.
func (r *Rows) scaled(memory mem.Spans) (bytes float64) {
	for _, span := range memory {
		if segment := r.segmentAt(span.Start); segment != nil {
			bytes += float64(span.Len()) * segment.factor
		}
	}
	return bytes
}

// clip returns the part of some memory within a span.
func clip(memory mem.Spans, span mem.Span) (inside mem.Spans) {
	first := sort.Search(len(memory), func(i int) bool { return memory[i].End > span.Start })
	for _, m := range memory[first:] {
		if m.Start >= span.End {
			break
		}
		inside = append(inside, mem.Span{
			Start: max(m.Start, span.Start), End: min(m.End, span.End),
		})
	}
	return inside
}

// freshHeap returns the private memory of the heap that came into RAM since tracing started, but for
// objects whose allocation site is known by their mapping.
func (r *Rows) freshHeap() mem.Spans {
	var fresh []mem.Span
	for i := range r.Segments {
		segment := &r.Segments[i]
		if !segment.Heap || segment.isMappedObject() {
			continue
		}
		for _, run := range r.runs.Clip(segment.Region.Start, segment.Region.End) {
			if !run.File && !run.Swapped && run.Origin == mem.SinceTracing {
				fresh = append(fresh, run.Span)
			}
		}
	}
	return mem.MergeSpans(fresh)
}

// touchWeights returns the bytes that the faults of each stack in some memory represent, and their
// sum.
func (r *Rows) touchWeights(
	memory mem.Spans, faults []source.Fault,
) (weights map[uint64]float64, sum float64) {
	var hugeRuns mem.Spans // in order
	for _, run := range r.runs {
		if run.Huge {
			hugeRuns = append(hugeRuns, run.Span)
		}
	}
	huge := hugePages{pages: float64(hugeRuns.Intersect(memory).Len()) / float64(sizes.huge())}

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
		weights[stack] += faults * float64(sizes.small)
	}
	for stack, faults := range large {
		weights[stack] += faults * huge.bytesPerFault(sizes)
	}
	for _, weight := range weights {
		sum += weight
	}
	return weights, sum
}
