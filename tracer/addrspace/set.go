// Package mapping keeps the address space of a process as a set of intervals, each with the stack that mapped it. It is
// fed with the system calls that changed the address space and reconciled with /proc/PID/maps, which is the truth. It does
// no I/O.
package mapping

import (
	"slices"
	"sort"

	"github.com/allocscope/allocscope/growth"
)

// Origin says how an interval came to be known.
type Origin int

// The origins.
const (
	Seen         Origin = iota // by the system call that made it
	BeforeAttach               // in the maps when the trace began
	Unseen                     // in the maps later, without a call having been seen
)

// An Interval is a piece of the address space.
type Interval struct {
	Start, End uint64
	// Stack ID of the call that mapped it; 0 if unknown.
	Stack  uint64
	Kind   growth.Kind
	Origin Origin
	// ByAllocator: mapped by malloc or a relative to serve the heap.
	ByAllocator bool
}

// Len is the size in bytes.
func (i Interval) Len() uint64 { return i.End - i.Start }

// A Set holds the intervals of one process. The zero Set is empty.
type Set struct {
	intervals []Interval // sorted, disjoint
	brk       uint64     // the program break; 0: unknown
	tallies   map[Holder]Tally
	releases  map[Releaser]Tally
}

// A Holder is a stack and the kind of memory it mapped.
type Holder struct {
	Stack uint64
	Kind  growth.Kind
}

// A Releaser is a stack and the call by which it gave memory back.
type Releaser struct {
	Stack uint64
	Call  string // "munmap", "brk", "madvise"
}

// A Tally counts calls and bytes since the attach.
type Tally struct{ Calls, Bytes int64 }

// Intervals in the order of addresses. The caller must not change them.
func (s *Set) Intervals() []Interval { return s.intervals }

// Tallies counts what each stack has mapped, unmapped since or not; what the allocator mapped is not in it.
func (s *Set) Tallies() map[Holder]Tally { return s.tallies }

// Releases counts what each stack has given back.
func (s *Set) Releases() map[Releaser]Tally { return s.releases }

// insert puts an interval in the place of whatever was there.
func (s *Set) insert(interval Interval) {
	if interval.Start >= interval.End {
		return
	}
	s.remove(interval.Start, interval.End)
	at := s.search(interval.Start)
	s.intervals = slices.Insert(s.intervals, at, interval)
}

// remove takes [start, end) out, splitting what reaches over it, and returns the pieces.
func (s *Set) remove(start, end uint64) []Interval {
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

// search gives the index of the first interval that ends after an address.
func (s *Set) search(address uint64) int {
	return sort.Search(len(s.intervals), func(i int) bool { return s.intervals[i].End > address })
}

func (s *Set) tally(stack uint64, kind growth.Kind, bytes uint64) {
	if s.tallies == nil {
		s.tallies = make(map[Holder]Tally)
	}
	key := Holder{stack, kind}
	t := s.tallies[key]
	s.tallies[key] = Tally{t.Calls + 1, t.Bytes + int64(bytes)}
}

func (s *Set) release(stack uint64, call string, bytes uint64) {
	if bytes == 0 {
		return
	}
	if s.releases == nil {
		s.releases = make(map[Releaser]Tally)
	}
	key := Releaser{stack, call}
	t := s.releases[key]
	s.releases[key] = Tally{t.Calls + 1, t.Bytes + int64(bytes)}
}
