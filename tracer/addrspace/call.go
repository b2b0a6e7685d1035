package addrspace

import (
	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/process"
)

// A Call has the fields that all calls that change the address space share.
type Call struct {
	Time        uint64 // ns, CLOCK_MONOTONIC
	Stack       uint64 // ID of the caller's stack; 0: unknown
	ByAllocator bool   // made by malloc or one of its relatives
}

// A Release is memory that madvise(2) has released.
type Release struct {
	mem.Span
	Time uint64 // ns, CLOCK_MONOTONIC
}

// Apply records calls, and returns the ranges that madvise(2) has released at once. maps show the
// program break, as brk(2) is not traced. isAllocator reports whether the code that made a call is
// an allocator's, by the call's stack. It is nil if no allocator is traced.
func (s *IntervalSet) Apply(
	calls []bpf.Event, maps []process.Mapping, isAllocator func(stack uint64) bool,
) (released []Release) {
	for _, c := range calls {
		call := Call{Time: c.Time, Stack: c.Stack}
		if isAllocator != nil {
			call.ByAllocator = c.ByAllocator != 0 || isAllocator(c.Stack)
		}

		switch c.Kind {
		case bpf.EventMmap:
			s.Mmap(call, c.Start, c.Length, c.Flags, c.Descriptor)
		case bpf.EventMunmap:
			s.Munmap(c.Start, c.Length)
		case bpf.EventMremap:
			s.Mremap(call, c.OldStart, c.OldLength, c.Start, c.Length, c.Flags)
		case bpf.EventMadvise:
			s.Madvise(c.Calls, c.Start, c.Length, bpf.ReleaseFlags(c.Flags))
			if c.Flags&uint32(bpf.ReleaseLazy) == 0 {
				released = append(released, Release{pageSpan(c.Start, c.Length), c.Time})
			}
		}
	}

	if len(maps) > 0 {
		s.readBreak(maps)
	}
	return released
}

// A Pair counts mappings that were unmapped as a whole before their calls were read.
type Pair struct {
	bpf.MappingPair
	bpf.Tally
}

// CountPairs sets the mappings since tracing started that came and went between two readings. Only
// totals include them. heapTraced is set if there are probed functions; an allocator is not
// recognised by its stacks, which would be named for nothing else.
func (s *IntervalSet) CountPairs(pairs []Pair, heapTraced bool) {
	s.short, s.shortAll = make(map[Key]Total), Total{}
	for _, p := range pairs {
		sum := Total{int64(p.Objects), int64(p.Bytes)}
		s.shortAll = s.shortAll.plus(sum)
		if !heapTraced || p.ByAllocator == 0 {
			key := Key{p.Stack, kindOfFlags(p.Flags, p.Descriptor)}
			s.short[key] = s.short[key].plus(sum)
		}
	}
}

// Mmap records an mmap(2) of length bytes that returned start. descriptor is negative for memory
// without a file. flags are MAP_*.
func (s *IntervalSet) Mmap(call Call, start, length uint64, flags uint32, descriptor int32) {
	length = roundUp(length)
	interval := Interval{
		Start: start, End: start + length, Born: call.Time, Stack: call.Stack,
		Kind: kindOfFlags(flags, descriptor), ByAllocator: call.ByAllocator,
	}
	if interval.End < start {
		return
	}

	s.insert(interval)
	if !call.ByAllocator {
		s.countMapped(call.Stack, interval.Kind, length)
	}
}

// kindOfFlags returns the kind of memory that an mmap(2) makes.
func kindOfFlags(flags uint32, descriptor int32) growth.Kind {
	switch anonymous := flags&unix.MAP_ANONYMOUS != 0; {
	case anonymous && flags&unix.MAP_SHARED != 0:
		return growth.KindShmem
	case anonymous && flags&unix.MAP_STACK != 0:
		return growth.KindStack
	case anonymous || descriptor < 0:
		return growth.KindMmap
	}
	return growth.KindFile // or shared memory: only the maps have the name, see Reconcile
}

// Munmap records a munmap(2).
func (s *IntervalSet) Munmap(start, length uint64) {
	end := start + roundUp(length)
	if end < start {
		return
	}

	var bytes uint64
	for _, removed := range s.remove(start, end) {
		bytes += removed.Len()
	}
	s.countReleased("munmap", 1, bytes)
}

// Mremap records an mremap(2). The old memory keeps its stacks at its new address. New memory at
// its end belongs to the caller; memory cut off is gone. A mapping that an allocator moves belongs
// to the caller as a whole: realloc frees the old object.
func (s *IntervalSet) Mremap(call Call, oldStart, oldLength, start, length uint64, flags uint32) {
	oldLength, length = roundUp(oldLength), roundUp(length)
	if oldStart+oldLength < oldStart || start+length < start {
		return
	}

	caller := Interval{
		Start: start, End: start + length, Born: call.Time, Stack: call.Stack,
		Kind: s.kindAt(oldStart), ByAllocator: call.ByAllocator,
	}
	moved := s.remove(oldStart, oldStart+oldLength)
	if flags&unix.MREMAP_DONTUNMAP != 0 { // the old range stays mapped, without its pages
		for _, m := range moved {
			s.insert(m)
		}
	}

	s.insert(caller)
	for _, m := range moved {
		if offset := m.Start - oldStart; offset < length && !call.ByAllocator {
			m.Start, m.End = start+offset, start+min(offset+m.Len(), length)
			s.insert(m)
		}
	}

	if length > oldLength && !call.ByAllocator {
		s.countMapped(call.Stack, caller.Kind, length-oldLength)
	}
}

// kindAt returns the kind of the interval at an address; growth.KindMmap if there is none.
func (s *IntervalSet) kindAt(address uint64) growth.Kind {
	if i, ok := s.at(address); ok {
		return i.Kind
	}
	return growth.KindMmap
}

// readBreak reads the program break from the maps. They have no [heap] if it is where it began.
func (s *IntervalSet) readBreak(maps []process.Mapping) {
	end := s.startBrk
	for _, m := range maps {
		if m.Path == "[heap]" {
			end = m.End
		}
	}
	if end != 0 {
		s.Brk(end)
	}
}

// Brk records that the program break is at end. Only the allocator moves it.
func (s *IntervalSet) Brk(end uint64) {
	old := s.brk
	s.brk = end
	switch {
	case old == 0 || end == old:
	case end > old:
		s.insert(Interval{
			Start: roundUp(old), End: roundUp(end), Kind: growth.KindHeap, ByAllocator: true,
		})
	default:
		s.remove(roundUp(end), roundUp(old))
		s.countReleased("brk", 1, old-end)
	}
}

// Madvise records that calls of madvise(2) have released the contents of a range of length bytes,
// which stays mapped. In a range with holes, the parts mapped by now count.
func (s *IntervalSet) Madvise(calls, start, length uint64, flags bpf.ReleaseFlags) {
	bytes := roundUp(length)
	if flags&bpf.ReleaseHoles != 0 {
		bytes = s.bytesIn(start, start+bytes)
	}
	s.countReleased("madvise", calls, calls*bytes)
}

// roundUp rounds up to whole pages.
func roundUp(length uint64) uint64 {
	return mem.AlignUp(length, process.PageSize)
}
