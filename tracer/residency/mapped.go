package residency

import (
	"cmp"
	"maps"
	"slices"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/addrspace"
	"github.com/allocscope/allocscope/tracer/estimate"
	"github.com/allocscope/allocscope/tracer/heap/glibc"
	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/residency/region"
	"github.com/allocscope/allocscope/tracer/stack"
)

// AddMappings adds the touched bytes of the mappings that the program has made since tracing
// started, and returns the kind of each, for AddTallies. Mappings of the allocator count nothing:
// the live map has their contents.
func (r *Rows) AddMappings(totals *growth.MappingTotals) map[addrspace.Key]growth.Kind {
	kinds := make(map[addrspace.Key]growth.Kind)
	lastInterval := uint64(0)
	for i := range r.Segments {
		segment := &r.Segments[i]
		if !segment.HasInterval || segment.Origin == addrspace.BeforeTracing {
			continue
		}

		length := int64(segment.Span().Len())
		totals.Reserved += length
		totals.Unmeasured += int64(r.Unread.Intersect(mem.Spans{segment.Span()}).Len())
		if segment.Origin == addrspace.Unobserved {
			totals.Unknown += length
			segment.Stack = stack.UnobservedID
		}
		if segment.Heap {
			totals.Allocator += length
			if r.HeapTraced && segment.isMappedObject() {
				kinds[addrspace.Key{Stack: segment.Stack, Kind: segment.Kind}] = growth.KindHeap
			}
			continue
		}

		bytes := r.Bytes(segment)
		touched := bytes.InMemory() + bytes.Swapped
		totals.Touched += touched
		kind := segment.mappedKind()
		kinds[addrspace.Key{Stack: segment.Stack, Kind: segment.Kind}] = kind

		h := r.holdings.Get(segment.stackUnderName(r.stacks(segment.Stack)), kind)
		if segment.Interval.Start != lastInterval { // an interval may have several segments
			h.InuseObjects++
			h.Samples++
		}
		lastInterval = segment.Interval.Start
		h.InuseBytes += touched
	}
	return kinds
}

// MappedObjects returns the objects of malloc that have a mapping of their own, if a stack is known
// that mapped them. A mapping that realloc has moved is one object for each stack.
func (s *Scan) MappedObjects() (objects []estimate.MappedObject) {
	for i := range s.Segments {
		segment := &s.Segments[i]
		if !segment.isMappedObject() {
			continue
		}

		object := glibc.UserOf(segment.Span())
		objects = append(objects, estimate.MappedObject{
			LiveObject: estimate.LiveObject{
				Address: object.Start, Size: object.Len(), Stack: segment.Stack, Weight: 1,
			},
			Born:     segment.Born,
			Resident: s.Bytes(segment).InMemory(),
		})
	}
	return objects
}

// isMappedObject reports whether a segment is an object of MappedObjects. A mapping made in a call
// that is probed has no stack: the live map has the object, if it is sampled.
func (s *Segment) isMappedObject() bool {
	return s.Class == region.MmappedChunk && s.hasMapper() && s.Stack != 0
}

// mappedKind returns the kind of a mapping that the program has made, as its contents show it.
func (s *Segment) mappedKind() growth.Kind {
	if s.Kind == growth.KindMmap {
		return s.rowKind().kind
	}
	return s.Kind
}

// AddTallies adds the memory that has been mapped since tracing started, whether it still is or
// not. kinds are the kinds of mappings that still are. cheap names the stacks of the rest as far as
// there is CPU time for it: a program may map and unmap under thousands of stacks. The largest come
// first.
func AddTallies(
	held estimate.Holdings, space *addrspace.IntervalSet, stacks, cheap func(id uint64) *growth.Stack,
	kinds map[addrspace.Key]growth.Kind,
) {
	mapped := space.Mapped()
	keys := slices.SortedFunc(maps.Keys(mapped), func(a, b addrspace.Key) int {
		return cmp.Compare(mapped[b].Bytes, mapped[a].Bytes)
	})

	for _, key := range keys {
		kind, isMapped := kinds[key]
		stackOf := cheap
		if isMapped {
			stackOf = stacks
		}

		h := held.Get(stackOf(key.Stack), cmp.Or(kind, key.Kind))
		h.AllocObjects += float64(mapped[key].Calls)
		h.AllocBytes += float64(mapped[key].Bytes)
	}
}

// AddReleases adds the memory that the process has given back to the kernel.
func AddReleases(totals *growth.MappingTotals, space *addrspace.IntervalSet) {
	totals.Released += space.Released("madvise").Bytes
	totals.Unmapped += space.Released("munmap").Bytes + space.Released("brk").Bytes
}
