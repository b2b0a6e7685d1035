package mapping

import (
	"github.com/allocscope/allocscope/growth"
	"golang.org/x/sys/unix"
)

const pageSize = 4096 // the smallest there is; lengths are rounded up to it

// A Call is what all calls that change the address space have in common.
type Call struct {
	// Stack ID of the caller; 0 if unknown.
	Stack uint64
	// ByAllocator: made from inside malloc or a relative.
	ByAllocator bool
}

// Map records an mmap of length bytes that returned start. descriptor is negative for memory without a file; flags are
// MAP_*.
func (s *Set) Map(call Call, start, length uint64, flags uint32, descriptor int32) {
	length = roundUp(length)
	interval := Interval{
		Start: start, End: start + length, Stack: call.Stack, Kind: kindOf(flags, descriptor), ByAllocator: call.ByAllocator,
	}
	if interval.End < start {
		return
	}
	s.insert(interval)
	if !call.ByAllocator {
		s.tally(call.Stack, interval.Kind, length)
	}
}

func kindOf(flags uint32, descriptor int32) growth.Kind {
	switch anonymous := flags&unix.MAP_ANONYMOUS != 0; {
	case anonymous && flags&unix.MAP_SHARED != 0:
		return growth.KindShmem
	case anonymous && flags&unix.MAP_STACK != 0:
		return growth.KindStack
	case anonymous || descriptor < 0:
		return growth.KindMmap
	}
	return growth.KindFile // or shared memory: Reconcile sees the name
}

// Unmap records a munmap.
func (s *Set) Unmap(call Call, start, length uint64) {
	end := start + roundUp(length)
	if end < start {
		return
	}
	var bytes uint64
	for _, removed := range s.remove(start, end) {
		bytes += removed.Len()
	}
	s.release(call.Stack, "munmap", bytes)
}

// Remap records an mremap: the old memory keeps its stacks where it is now, what it grew by belongs to the caller, what
// it shrank by is gone.
func (s *Set) Remap(call Call, oldStart, oldLength, start, length uint64, flags uint32) {
	oldLength, length = roundUp(oldLength), roundUp(length)
	if oldStart+oldLength < oldStart || start+length < start {
		return
	}
	grown := Interval{Start: start, End: start + length, Stack: call.Stack, Kind: s.kindAt(oldStart), ByAllocator: call.ByAllocator}
	moved := s.remove(oldStart, oldStart+oldLength)
	const dontUnmap = 4 // MREMAP_DONTUNMAP: the old range stays, without its pages
	if flags&dontUnmap != 0 {
		for _, m := range moved {
			s.insert(m)
		}
	}
	s.insert(grown)
	for _, m := range moved {
		if from := m.Start - oldStart; from < length {
			m.Start, m.End = start+from, start+min(from+m.Len(), length)
			s.insert(m)
		}
	}
	if length > oldLength && !call.ByAllocator {
		s.tally(call.Stack, grown.Kind, length-oldLength)
	}
}

// kindAt is the kind of what is mapped at an address.
func (s *Set) kindAt(address uint64) growth.Kind {
	if i := s.search(address); i < len(s.intervals) && s.intervals[i].Start <= address {
		return s.intervals[i].Kind
	}
	return growth.KindMmap
}

// Break records a brk after which the program break is at end.
func (s *Set) Break(call Call, end uint64) {
	old := s.brk
	s.brk = end
	switch {
	case old == 0 || end == old:
	case end > old:
		s.insert(Interval{Start: roundUp(old), End: roundUp(end), Stack: call.Stack, Kind: growth.KindHeap, ByAllocator: call.ByAllocator})
		if !call.ByAllocator {
			s.tally(call.Stack, growth.KindHeap, end-old)
		}
	default:
		s.remove(roundUp(end), roundUp(old))
		s.release(call.Stack, "brk", old-end)
	}
}

// Advise records that the contents of a range were given back by madvise; the range stays mapped.
func (s *Set) Advise(call Call, length uint64) {
	s.release(call.Stack, "madvise", roundUp(length))
}

func roundUp(length uint64) uint64 { return (length + pageSize - 1) &^ (pageSize - 1) }
