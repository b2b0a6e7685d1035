// Package addrspace keeps the address space of a process as a set of intervals, each with the stack
// that mapped it. Its input is the system calls that changed the address space. Reconcile corrects
// the set by /proc/PID/maps, which is the truth. The package does no I/O.
package addrspace

import (
	"maps"
	"slices"
	"sort"

	"github.com/allocscope/allocscope/growth"
)

// Origin is how an interval became known.
type Origin int

// The origins.
const (
	// FromCall: from the system call that mapped it.
	FromCall Origin = iota

	// BeforeTracing: the maps had it when tracing started.
	BeforeTracing

	// Unobserved: the maps had it later, but no call was observed.
	Unobserved
)

// An Interval is a range of the address space with one origin.
type Interval struct {
	Start, End uint64 // End excluded
	Born       uint64 // ns, CLOCK_MONOTONIC, of the system call that mapped it; 0: unknown
	Stack      uint64 // ID of the stack that mapped it; 0: unknown
	Kind       growth.Kind
	Origin     Origin

	// ByAllocator: malloc or one of its relatives mapped it to serve the heap.
	ByAllocator bool
}

// Len is the size in bytes.
func (i Interval) Len() uint64 { return i.End - i.Start }

// An IntervalSet holds the intervals of one process. The zero value is empty.
type IntervalSet struct {
	intervals []Interval // sorted by address, disjoint
	brk       uint64     // the program break; 0: unknown
	startBrk  uint64     // the break at which the process began; 0: unknown
	mapped    map[Key]Total
	released  map[string]Total // by call: "munmap", "brk" or "madvise"
	short     map[Key]Total    // see CountPairs
	shortAll  Total
}

// A Key is a stack and the kind of memory it mapped.
type Key struct {
	Stack uint64
	Kind  growth.Kind
}

// A Total counts calls and bytes since tracing started.
type Total struct{ Calls, Bytes int64 }

func (t Total) plus(other Total) Total {
	return Total{t.Calls + other.Calls, t.Bytes + other.Bytes}
}

// Intervals returns the intervals in address order. The caller must not change them.
func (s *IntervalSet) Intervals() []Interval { return s.intervals }

// Mapped returns what each stack has mapped, later unmapped or not, without the allocator's calls.
func (s *IntervalSet) Mapped() map[Key]Total {
	sums := maps.Clone(s.short)
	if sums == nil {
		return s.mapped
	}
	for key, total := range s.mapped {
		sums[key] = sums[key].plus(total)
	}
	return sums
}

// Released returns what has been released by a call: "munmap", "brk" or "madvise".
func (s *IntervalSet) Released(call string) Total {
	if call == "munmap" {
		return s.released[call].plus(s.shortAll)
	}
	return s.released[call]
}

// insert adds an interval and removes whatever it overlaps.
func (s *IntervalSet) insert(interval Interval) {
	if interval.Start >= interval.End {
		return
	}
	s.remove(interval.Start, interval.End)
	s.intervals = slices.Insert(s.intervals, s.search(interval.Start), interval)
}

// remove removes [start, end), splits intervals that extend beyond it, and returns the removed
// parts.
func (s *IntervalSet) remove(start, end uint64) []Interval {
	if start >= end {
		return nil
	}

	first := s.search(start)
	last := first
	var removed, kept []Interval
	for ; last < len(s.intervals) && s.intervals[last].Start < end; last++ {
		interval := s.intervals[last]
		if interval.Start < start {
			left := interval
			left.End = start
			kept = append(kept, left)
		}
		if interval.End > end {
			right := interval
			right.Start = end
			kept = append(kept, right)
		}

		interval.Start, interval.End = max(interval.Start, start), min(interval.End, end)
		removed = append(removed, interval)
	}

	s.intervals = slices.Replace(s.intervals, first, last, kept...)
	return removed
}

// search returns the index of the first interval that ends after an address.
func (s *IntervalSet) search(address uint64) int {
	return sort.Search(len(s.intervals), func(i int) bool { return s.intervals[i].End > address })
}

// countMapped adds one call to the totals of a stack.
func (s *IntervalSet) countMapped(stack uint64, kind growth.Kind, bytes uint64) {
	if s.mapped == nil {
		s.mapped = make(map[Key]Total)
	}
	key := Key{stack, kind}
	s.mapped[key] = s.mapped[key].plus(Total{1, int64(bytes)})
}

// countReleased adds calls to the totals, unless they have released nothing.
func (s *IntervalSet) countReleased(call string, calls, bytes uint64) {
	if bytes == 0 {
		return
	}
	if s.released == nil {
		s.released = make(map[string]Total)
	}
	s.released[call] = s.released[call].plus(Total{int64(calls), int64(bytes)})
}
