package addrspace

import (
	"strings"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/process"
)

// New returns the set of a process when tracing starts. startBrk is the program break at which the
// process began; it counts while there is no [heap]. 0 means unknown.
func New(maps []process.Mapping, startBrk uint64) *IntervalSet {
	s := &IntervalSet{brk: startBrk, startBrk: startBrk}
	for _, m := range maps {
		if isTracked(m) {
			s.intervals = append(s.intervals, Interval{
				Start: m.Start, End: m.End, Kind: KindOf(m), Origin: BeforeTracing,
			})
		}
		if m.Path == "[heap]" {
			s.brk = m.End
		}
	}
	return s
}

// Corrections counts what Reconcile has changed, in bytes.
type Corrections struct {
	// Missed is mapped, but no call was observed; it becomes intervals of origin Unobserved.
	Missed int64

	// Vanished was in the set, but is not mapped.
	Vanished int64
}

// Reconcile corrects the set by the process's maps, which must be read while no call is in flight.
func (s *IntervalSet) Reconcile(maps []process.Mapping) Corrections {
	var c Corrections
	old := s.intervals
	s.intervals = make([]Interval, 0, len(old))
	next := 0 // the first old interval that ends after the current mapping begins

	for _, m := range maps {
		if !isTracked(m) {
			continue
		}

		for next < len(old) && old[next].End <= m.Start {
			next++
		}
		position := m.Start
		for i := next; i < len(old) && old[i].Start < m.End; i++ {
			start, end := max(old[i].Start, m.Start), min(old[i].End, m.End)
			c.Missed += s.appendUnobserved(m, position, start)
			s.appendKnown(old[i], m, start, end)
			position = end
		}
		c.Missed += s.appendUnobserved(m, position, m.End)
	}

	c.Vanished = sumBytes(old) + c.Missed - sumBytes(s.intervals)
	return c
}

func sumBytes(intervals []Interval) (bytes int64) {
	for _, i := range intervals {
		bytes += int64(i.Len())
	}
	return bytes
}

// appendKnown keeps the part of a known interval that is mapped. What was mapped from a file gets its
// kind from the maps: of a library, the part that is zero at first (.bss) is anonymous.
func (s *IntervalSet) appendKnown(known Interval, m process.Mapping, start, end uint64) {
	isTail := start > known.Start
	known.Start, known.End = start, end
	if m.IsFile() {
		s.recount(known, KindOf(m))
	}
	if m.IsFile() || known.Kind == growth.KindFile {
		known.Kind = KindOf(m)
	}
	s.append(known, isTail)
}

// recount moves the total of an interval to the kind that the maps show. The call had a descriptor
// only, and counted as a file.
func (s *IntervalSet) recount(i Interval, kind growth.Kind) {
	from, to := Key{i.Stack, i.Kind}, Key{i.Stack, kind}
	rest := s.mapped[from]
	if i.Kind != growth.KindFile || kind == growth.KindFile || rest.Calls == 0 {
		return
	}

	moved := Total{1, min(int64(i.Len()), rest.Bytes)}
	rest = Total{rest.Calls - 1, rest.Bytes - moved.Bytes}
	s.mapped[from], s.mapped[to] = rest, s.mapped[to].plus(moved)
	if rest == (Total{}) {
		delete(s.mapped, from)
	}
}

// appendUnobserved adds a range that no interval covers, and returns its bytes.
func (s *IntervalSet) appendUnobserved(m process.Mapping, start, end uint64) int64 {
	if start >= end {
		return 0
	}
	s.append(Interval{Start: start, End: end, Kind: KindOf(m), Origin: Unobserved}, true)
	return int64(end - start)
}

// append adds an interval at the end. With join it extends the last one, if they are adjacent and
// alike: what mprotect(2) has split is one mapping, but two adjacent calls are two.
func (s *IntervalSet) append(i Interval, join bool) {
	if n := len(s.intervals); n > 0 && join {
		last := &s.intervals[n-1]
		extended := *last
		extended.End = i.End
		joined := i
		joined.Start = last.Start
		if last.End == i.Start && extended == joined {
			last.End = i.End
			return
		}
	}
	s.intervals = append(s.intervals, i)
}

// isTracked excludes what the kernel maps and grows by itself.
func isTracked(m process.Mapping) bool {
	switch m.Path {
	case "[stack]", "[vdso]", "[vvar]", "[vvar_vclock]", "[vsyscall]", "[uprobes]":
		return false
	}
	return true
}

// KindOf returns the kind of a mapping by its line in /proc/PID/maps.
func KindOf(m process.Mapping) growth.Kind {
	for _, prefix := range []string{"/dev/shm/", "/memfd:", "/SYSV", "/dev/zero", "[anon_shmem"} {
		if strings.HasPrefix(m.Path, prefix) {
			return growth.KindShmem
		}
	}

	switch {
	case m.Path == "[heap]":
		return growth.KindHeap
	case strings.HasPrefix(m.Path, "/dev/"):
		return growth.KindDeviceFile
	case m.IsFile():
		return growth.KindFile
	case m.Path == "[stack]":
		return growth.KindStack
	}
	return growth.KindMmap
}
