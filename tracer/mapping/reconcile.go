package mapping

import (
	"strings"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/process"
)

// New starts a set with what is mapped when the trace begins.
func New(maps []process.Mapping) *Set {
	s := &Set{}
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
	// Missed are mapped without a call having been seen; Vanished were believed to be mapped and are not.
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
		if m.Path == "[heap]" {
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
	known.Start, known.End = start, end
	if m.IsFile() {
		known.Kind = KindOf(m)
	}
	s.append(known)
}

func (s *Set) appendUnseen(m process.Mapping, start, end uint64) int64 {
	if start >= end {
		return 0
	}
	s.append(Interval{Start: start, End: end, Kind: KindOf(m), Origin: Unseen})
	return int64(end - start)
}

// append adds an interval at the end, joined to its neighbour if they differ in nothing else.
func (s *Set) append(i Interval) {
	if n := len(s.intervals); n > 0 {
		last := &s.intervals[n-1]
		joined := *last
		joined.End = i.End
		next := i
		next.Start = last.Start
		if last.End == i.Start && joined == next && i.Origin != Seen {
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
		return growth.KindBrk
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
