package mapping

import (
	"strings"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/process"
)

// New starts a set with what is mapped when the trace begins. brk is where the program break was when the process began,
// which counts as long as there is no [heap]; 0 if that is unknown.
func New(maps []process.Mapping, brk uint64) *Set {
	s := &Set{brk: brk}
	for _, m := range maps {
		if isTracked(m) {
			s.intervals = append(s.intervals, Interval{Start: m.Start, End: m.End, Kind: KindOf(m), Origin: BeforeAttach})
		}
		if m.Path == "[heap]" {
			s.brk = m.End
		}
	}
	return s
}

// Corrections counts what Reconcile had to change, in bytes.
type Corrections struct {
	// Missed are mapped without a call having been seen, and are from now on intervals of origin Unseen; Vanished were believed to be mapped and are not.
	Missed, Vanished int64
}

// Reconcile makes the set agree with the process's maps, which are read when no call is under way.
func (s *Set) Reconcile(maps []process.Mapping) Corrections {
	var c Corrections
	old := s.intervals
	s.intervals = make([]Interval, 0, len(old))
	next := 0
	for _, m := range maps {
		if !isTracked(m) {
			continue
		}
		if m.Path == "[heap]" && roundUp(s.brk) != m.End { // the maps know the break by pages only
			s.brk = m.End
		}
		at := m.Start
		for next < len(old) && old[next].End <= m.Start {
			next++
		}
		for i := next; i < len(old) && old[i].Start < m.End; i++ {
			start, end := max(old[i].Start, m.Start), min(old[i].End, m.End)
			c.Missed += s.appendUnseen(m, at, start)
			s.appendPiece(old[i], m, start, end)
			at = end
		}
		c.Missed += s.appendUnseen(m, at, m.End)
	}
	c.Vanished = length(old) + c.Missed - length(s.intervals)
	return c
}

func length(intervals []Interval) (bytes int64) {
	for _, i := range intervals {
		bytes += int64(i.Len())
	}
	return bytes
}

// appendPiece keeps the part of a known interval that is mapped, and takes its kind from what the maps tell.
func (s *Set) appendPiece(known Interval, m process.Mapping, start, end uint64) {
	inside := start > known.Start
	known.Start, known.End = start, end
	if m.IsFile() {
		s.rename(known, KindOf(m))
		known.Kind = KindOf(m)
	}
	s.append(known, inside)
}

// rename moves what was tallied of an interval to the kind that the maps tell: a call shows a descriptor, not what it is of.
func (s *Set) rename(i Interval, kind growth.Kind) {
	from, to := Holder{i.Stack, i.Kind}, Holder{i.Stack, kind}
	rest := s.tallies[from]
	if i.Kind != growth.KindFile || kind == growth.KindFile || rest.Calls == 0 {
		return
	}
	moved := Tally{1, min(int64(i.Len()), rest.Bytes)}
	rest, sum := Tally{rest.Calls - 1, rest.Bytes - moved.Bytes}, s.tallies[to]
	s.tallies[from], s.tallies[to] = rest, Tally{sum.Calls + 1, sum.Bytes + moved.Bytes}
	if rest == (Tally{}) {
		delete(s.tallies, from)
	}
}

func (s *Set) appendUnseen(m process.Mapping, start, end uint64) int64 {
	if start >= end {
		return 0
	}
	s.append(Interval{Start: start, End: end, Kind: KindOf(m), Origin: Unseen}, true)
	return int64(end - start)
}

// append adds an interval at the end, joined to its neighbour if that is allowed and they differ in nothing else. What two
// calls have mapped stays two; what mprotect has split stays one.
func (s *Set) append(i Interval, join bool) {
	if n := len(s.intervals); n > 0 && join {
		last := &s.intervals[n-1]
		joined := *last
		joined.End = i.End
		next := i
		next.Start = last.Start
		if last.End == i.Start && joined == next {
			last.End = i.End
			return
		}
	}
	s.intervals = append(s.intervals, i)
}

// isTracked leaves out what the kernel maps and grows by itself.
func isTracked(m process.Mapping) bool {
	switch m.Path {
	case "[stack]", "[vdso]", "[vvar]", "[vvar_vclock]", "[vsyscall]", "[uprobes]":
		return false
	}
	return true
}

// KindOf classes a mapping by what /proc/PID/maps tells of it.
func KindOf(m process.Mapping) growth.Kind {
	switch path := m.Path; {
	case path == "[heap]":
		return growth.KindHeap
	case strings.HasPrefix(path, "/dev/shm/"), strings.HasPrefix(path, "/memfd:"), strings.HasPrefix(path, "/SYSV"),
		strings.HasPrefix(path, "/dev/zero"), strings.HasPrefix(path, "[anon_shmem"):
		return growth.KindShmem
	case strings.HasPrefix(path, "/dev/"):
		return growth.KindDevice
	case m.IsFile():
		return growth.KindFile
	case path == "[stack]":
		return growth.KindStack
	}
	return growth.KindMmap
}
