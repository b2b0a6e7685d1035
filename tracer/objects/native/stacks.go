package native

import (
	"cmp"
	"slices"
	"time"

	"github.com/allocscope/allocscope/tracer/heap/glibc"
	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/process"
)

// A Stack is the stack of a thread, with the thread-local variables above it. The first thread's
// variables lie elsewhere: they are a Stack of their own.
type Stack struct {
	TID  int
	Name string // of the thread; it is the program's choice
	// Start is the stack pointer, if it is Known. Otherwise the thread runs, and the stack may be
	// live from anywhere above Start. Memory above the stack pointer is stale in places, too:
	// frames have gaps. End is the stack's base.
	Start, End uint64
	Known      bool
}

// Stacks returns the stacks of the threads, by address. maps are the present ones. It leaves out
// threads whose stacks are not known: threads on a stack that is not glibc's. The error wraps
// os.ErrNotExist if the process is gone.
func Stacks(p *process.Process, maps []process.Mapping) ([]Stack, error) {
	threads, err := waitingThreads(p)
	if err != nil {
		return nil, err
	}
	made := glibc.ThreadStacks(maps, endsOf(maps), p)
	owners, err := glibc.StackOwners(p, made)
	if err != nil {
		return nil, err
	}

	var stacks []Stack
	for _, t := range threads {
		s := Stack{TID: t.TID, Name: t.Name, Known: t.StackPointer != 0}
		var ok bool
		if s.Known {
			s.Start = t.StackPointer
			s.End, ok = stackEnd(maps, made, s.Start)
		} else {
			s.Start, s.End, ok = wholeStack(maps, owners, t, t.TID == p.PID)
		}
		if ok {
			stacks = append(stacks, s)
		}
	}

	isFirst := func(t process.Thread) bool { return t.TID == p.PID }
	if i := slices.IndexFunc(threads, isFirst); i >= 0 {
		span, err := glibc.FirstTLS(p, maps, threads[i].InnerTID)
		if err != nil {
			return nil, err
		}
		if span.Len() > 0 {
			stacks = append(stacks, Stack{p.PID, threads[i].Name, span.Start, span.End, true})
		}
	}

	slices.SortFunc(stacks, func(a, b Stack) int { return cmp.Compare(a.Start, b.Start) })
	return stacks, nil
}

// Bounds of waitingThreads: the gaps double, and are a quarter of a second in all.
const (
	maxReadings     = 9
	firstReadingGap = time.Millisecond
	maxReadAgain    = 256 // threads
)

// waitingThreads returns the threads of a process, with the stack pointers of all that wait in the
// kernel at one of some moments: a thread that works now and then has the same variables each time.
func waitingThreads(p *process.Process) (threads []process.Thread, err error) {
	pointers := make(map[int]uint64)
	for n := range maxReadings {
		if n > 0 {
			time.Sleep(firstReadingGap << (n - 1))
		}
		if threads, err = p.Threads(); err != nil {
			return nil, err
		}
		areKnown := true
		for i := range threads {
			t := &threads[i]
			if t.StackPointer == 0 {
				t.StackPointer = pointers[t.TID]
			}
			pointers[t.TID] = t.StackPointer
			areKnown = areKnown && t.StackPointer != 0
		}
		if areKnown || len(threads) > maxReadAgain {
			break
		}
	}
	return threads, nil
}

// stackEnd returns the base of the stack that a stack pointer is in: where glibc's stack ends, or
// else the mapping, if it is a stack by its name or has a guard below it.
func stackEnd(
	maps []process.Mapping, stacks []mem.Span, pointer uint64,
) (end uint64, ok bool) {
	for _, s := range stacks {
		if s.Start <= pointer && pointer < s.End {
			return s.End, true
		}
	}

	i := slices.IndexFunc(maps, func(m process.Mapping) bool {
		return m.Start <= pointer && pointer < m.End
	})
	if i < 0 || !maps[i].Write || maps[i].Shared || maps[i].IsFile() {
		return 0, false
	}
	isGuarded := i > 0 && maps[i-1].End == maps[i].Start && !maps[i-1].Read && !maps[i-1].IsFile()
	return maps[i].End, isGuarded || maps[i].Path == "[stack]"
}

// wholeStack returns the stack of a thread that runs: the first thread's stack, which the kernel
// names, or the one that glibc made for the thread, without its guard.
func wholeStack(
	maps []process.Mapping, owners map[int]mem.Span, t process.Thread, isFirst bool,
) (start, end uint64, ok bool) {
	if isFirst {
		i := slices.IndexFunc(maps, func(m process.Mapping) bool { return m.Path == "[stack]" })
		if i < 0 {
			return 0, 0, false
		}
		return maps[i].Start, maps[i].End, true
	}

	s, ok := owners[t.InnerTID]
	if !ok {
		return 0, 0, false
	}
	m, ok := process.FindMapping(maps, s.End-1)
	return max(s.Start, m.Start), s.End, ok
}

// endsOf returns where mappings end in which a stack may be.
func endsOf(maps []process.Mapping) (ends []uint64) {
	for _, m := range maps {
		if m.Read && m.Write && !m.Shared && !m.IsFile() {
			ends = append(ends, m.End)
		}
	}
	return ends
}
