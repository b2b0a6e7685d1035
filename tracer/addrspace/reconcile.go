package addrspace

import (
	"strings"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/process"
)

// New returns the set of a process when tracing starts. startBrk is the program break at which the
// process began; it counts while there is no [heap]. 0 means unknown.
func New(maps []process.Mapping, startBrk uint64) *IntervalSet {
	s := &IntervalSet{brk: startBrk, startBrk: startBrk}
	var all []Interval
	for _, m := range maps {
		if isTracked(m) {
			all = append(all, Interval{
				Start: m.Start, End: m.End, Kind: KindOf(m), Origin: BeforeTracing,
			})
		}
		if m.Path == "[heap]" {
			s.brk = m.End
		}
	}
	s.set(all)
	return s
}

// Corrections counts the changes by Reconcile, in bytes.
type Corrections struct {
	// Missed is mapped, but no call was observed; it becomes intervals of origin Unobserved.
	Missed int64

	// Vanished was in the set, but is not mapped.
	Vanished int64
}

// Changes are the changes made while the maps were being read. The zero value has none.
type Changes struct {
	// Spans of calls that are still to be applied. The maps decide nothing about them.
	Spans mem.Spans

	// Unknown is set if mappings came and went that no call has shown. A mapping that only the maps
	// have may be one of these.
	Unknown bool
}

// ChangesOf returns the changes by calls.
func ChangesOf(calls []bpf.Event) (changes Changes) {
	var spans []mem.Span
	for _, c := range calls {
		switch c.Kind {
		case bpf.EventMremap:
			spans = append(spans, pageSpan(c.OldStart, c.OldLength), pageSpan(c.Start, c.Length))
		case bpf.EventMmap, bpf.EventMunmap:
			spans = append(spans, pageSpan(c.Start, c.Length))
		}
	}
	changes.Spans = mem.MergeSpans(spans)
	return changes
}

// pageSpan returns the pages of a range; nothing if the range wraps around.
func pageSpan(start, length uint64) mem.Span {
	return mem.Span{Start: start, End: max(start, start+roundUp(length))}
}

// Reconcile corrects the set by the process's maps, but for the ranges that have changed meanwhile.
func (s *IntervalSet) Reconcile(maps []process.Mapping, meanwhile Changes) Corrections {
	var changing []Interval
	for _, span := range meanwhile.Spans {
		changing = append(changing, s.remove(span.Start, span.End)...)
	}

	var c Corrections
	old := s.Intervals()
	all := make(intervals, 0, len(old))
	next := 0 // the first old interval that ends after the current mapping begins

	// addUnobserved adds a range that no interval covers, and returns its bytes.
	addUnobserved := func(m process.Mapping, start, end uint64) int64 {
		if start >= end || meanwhile.Unknown {
			return 0
		}
		all.add(Interval{Start: start, End: end, Kind: KindOf(m), Origin: Unobserved}, true)
		return int64(end - start)
	}

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
			c.Missed += addUnobserved(m, position, start)
			isTail := start > old[i].Start
			all.add(s.known(old[i], m, start, end), isTail)
			position = end
		}
		c.Missed += addUnobserved(m, position, m.End)
	}

	c.Vanished = sumBytes(old) + c.Missed - sumBytes(all)
	s.set(all)
	for _, span := range meanwhile.Spans {
		c.Missed -= sumBytes(s.remove(span.Start, span.End))
	}
	for _, i := range changing {
		s.insert(i)
	}
	return c
}

func sumBytes(intervals []Interval) (bytes int64) {
	for _, i := range intervals {
		bytes += int64(i.Len())
	}
	return bytes
}

// known returns the part of a known interval that is mapped. A mapping of a file gets its kind from
// the maps: the part of a library that is zero at first (.bss) is anonymous.
func (s *IntervalSet) known(known Interval, m process.Mapping, start, end uint64) Interval {
	known.Start, known.End = start, end
	if m.IsFile() {
		s.recount(known, KindOf(m))
	}
	if m.IsFile() || known.Kind == growth.KindFile {
		known.Kind = KindOf(m)
	}
	return known
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

// intervals are those that Reconcile has found so far.
type intervals []Interval

// add adds an interval at the end. With join it extends the last one, if they are adjacent and
// alike: a mapping split by mprotect(2) is one, but two adjacent calls are two.
func (all *intervals) add(i Interval, join bool) {
	if n := len(*all); n > 0 && join {
		last := &(*all)[n-1]
		extended := *last
		extended.End = i.End
		joined := i
		joined.Start = last.Start
		if last.End == i.Start && extended == joined {
			last.End = i.End
			return
		}
	}
	*all = append(*all, i)
}

// isTracked excludes mappings that the kernel makes and grows by itself.
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
	case m.Tmpfs:
		return growth.KindShmem
	case m.IsFile():
		return growth.KindFile
	case m.Path == "[stack]":
		return growth.KindStack
	}
	return growth.KindMmap
}
