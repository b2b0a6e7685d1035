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
	chunks   [][]Interval // none is empty; all intervals are sorted by address and disjoint
	count    int          // of intervals
	lost     uint64       // mappings that were not inserted, because there were too many
	brk      uint64       // the program break; 0: unknown
	startBrk uint64       // the break at which the process began; 0: unknown
	mapped   map[Key]Total
	released map[string]Total // by call: "munmap", "brk" or "madvise"
	short    map[Key]Total    // see CountPairs
	shortAll Total
}

// maxChunk bounds the intervals of a chunk. A call moves the intervals of its chunk alone: a
// process may have 60,000 mappings and change them thousands of times a second. A test makes it
// smaller.
var maxChunk = 512

// maxIntervals bounds the intervals of a process: 20 MiB. By default Linux allows 65,530 mappings,
// but it merges adjacent ones, of which a process may have any number. A test makes it smaller.
var maxIntervals = 1 << 18

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

// Intervals returns the intervals in address order.
func (s *IntervalSet) Intervals() []Interval { return slices.Concat(s.chunks...) }

// Break returns the program break as of the last maps; 0: unknown.
func (s *IntervalSet) Break() uint64 { return s.brk }

// Lost returns how many mappings could not be kept with their stacks.
func (s *IntervalSet) Lost() uint64 { return s.lost }

// Mapped returns the mappings that each stack has made, later unmapped or not, without the
// allocator's calls.
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

// Released returns the ranges that a call has released: "munmap", "brk" or "madvise".
func (s *IntervalSet) Released(call string) Total {
	if call == "munmap" {
		return s.released[call].plus(s.shortAll)
	}
	return s.released[call]
}

// insert adds an interval and removes all that it overlaps.
func (s *IntervalSet) insert(interval Interval) {
	if interval.Start >= interval.End {
		return
	}
	s.remove(interval.Start, interval.End)

	switch {
	case s.count >= maxIntervals: // the maps will show it
		s.lost++
		return
	case len(s.chunks) == 0:
		s.set([]Interval{interval})
		return
	}
	n := min(s.chunkAt(interval.Start), len(s.chunks)-1)
	s.replace(n, search(s.chunks[n], interval.Start), 0, interval)
}

// remove removes [start, end), splits intervals that extend beyond it, and returns the removed
// parts.
func (s *IntervalSet) remove(start, end uint64) (removed []Interval) {
	if start >= end {
		return nil
	}

	for n := s.chunkAt(start); n < len(s.chunks) && s.chunks[n][0].Start < end; {
		chunk := s.chunks[n]
		first := search(chunk, start)
		last := first
		var kept []Interval
		for ; last < len(chunk) && chunk[last].Start < end; last++ {
			interval := chunk[last]
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
		n += s.replace(n, first, last-first, kept...)
	}
	return removed
}

// replace replaces so many intervals of a chunk from an index on. It returns how many chunks the
// chunk is now: none, one or two.
func (s *IntervalSet) replace(n, first, count int, by ...Interval) int {
	chunk := slices.Replace(s.chunks[n], first, first+count, by...)
	s.chunks[n] = chunk
	s.count += len(by) - count

	switch {
	case len(chunk) == 0:
		s.chunks = slices.Delete(s.chunks, n, n+1)
		return 0
	case len(chunk) > maxChunk:
		half := len(chunk) / 2
		s.chunks[n] = chunk[:half:half] // so that it cannot grow into the other half
		s.chunks = slices.Insert(s.chunks, n+1, chunk[half:])
		return 2
	}
	return 1
}

// chunkAt returns the index of the first chunk that ends after an address.
func (s *IntervalSet) chunkAt(address uint64) int {
	return sort.Search(len(s.chunks), func(n int) bool {
		return s.chunks[n][len(s.chunks[n])-1].End > address
	})
}

// search returns the index of the first interval that ends after an address.
func search(chunk []Interval, address uint64) int {
	return sort.Search(len(chunk), func(i int) bool { return chunk[i].End > address })
}

// at returns the interval that contains an address.
func (s *IntervalSet) at(address uint64) (Interval, bool) {
	n := s.chunkAt(address)
	if n == len(s.chunks) {
		return Interval{}, false
	}
	i := s.chunks[n][search(s.chunks[n], address)]
	return i, i.Start <= address
}

// bytesIn returns how many bytes of [start, end) are mapped.
func (s *IntervalSet) bytesIn(start, end uint64) (bytes uint64) {
	for n := s.chunkAt(start); n < len(s.chunks) && s.chunks[n][0].Start < end; n++ {
		for _, i := range s.chunks[n][search(s.chunks[n], start):] {
			if i.Start >= end {
				break
			}
			bytes += min(i.End, end) - max(i.Start, start)
		}
	}
	return bytes
}

// set sets all intervals, and takes over the slice.
func (s *IntervalSet) set(all []Interval) {
	s.chunks, s.count = s.chunks[:0], len(all)
	for len(all) > 0 {
		size := min(maxChunk, len(all))
		s.chunks = append(s.chunks, all[:size:size])
		all = all[size:]
	}
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
