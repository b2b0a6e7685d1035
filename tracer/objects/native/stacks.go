package native

import (
	"cmp"
	"slices"

	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/residency/region"
)

// A Stack is the stack of a thread, with the thread-local variables above it. Those of the first
// thread lie elsewhere: they are a Stack of their own.
type Stack struct {
	TID  int
	Name string // of the thread; it is the program's choice
	// Start is the stack pointer, if it is Known. Otherwise the thread runs, and the stack may be
	// live from anywhere above Start. Memory above the stack pointer is stale in places, too:
	// frames have gaps. End is the stack's base.
	Start, End uint64
	Known      bool
}

// Stacks returns the stacks of the threads, by address. maps are those of now. It leaves out
// threads whose stacks are not known: those that run on a stack that is not glibc's. The error
// wraps os.ErrNotExist if the process is gone.
func Stacks(p *process.Process, maps []process.Mapping) ([]Stack, error) {
	threads, err := p.Threads()
	if err != nil {
		return nil, err
	}
	regions := region.ThreadStacks(maps, endsOf(maps), p)
	owners, err := ownersOf(p, regions)
	if err != nil {
		return nil, err
	}

	var stacks []Stack
	for _, t := range threads {
		s := Stack{TID: t.TID, Name: t.Name, Known: t.StackPointer != 0}
		var ok bool
		if s.Known {
			s.Start = t.StackPointer
			s.End, ok = stackEnd(maps, regions, s.Start)
		} else {
			s.Start, s.End, ok = wholeStack(maps, owners, t, t.TID == p.PID)
		}
		if ok {
			stacks = append(stacks, s)
		}
	}
	isFirst := func(t process.Thread) bool { return t.TID == p.PID }
	if i := slices.IndexFunc(threads, isFirst); i >= 0 {
		span, err := firstTLS(p, maps, threads[i].InnerTID)
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

// stackEnd returns the base of the stack that a stack pointer is in: where glibc's stack ends, or
// else the mapping, if it is a stack by its name or has a guard below it.
func stackEnd(
	maps []process.Mapping, stacks []region.Region, pointer uint64,
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

// wholeStack returns the stack of a thread that runs: that of the first thread, which the kernel
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

// A thread's struct pthread begins with its TCB, whose fields tcb and self point to it.
//
// https://github.com/bminor/glibc/blob/glibc-2.41/nptl/descr.h#L130
const (
	selfOffset      = 16 // all are those of x86-64
	tidOffset       = 720
	descriptorBytes = 2304
	threadAlignment = 16
	topPageBytes    = 4096
)

// ownersOf returns the stacks by the thread for which glibc has made them: the ID is in the struct
// pthread, in the last page. It is 0 once the thread has ended.
func ownersOf(memory mem.Reader, stacks []region.Region) (map[int]mem.Span, error) {
	var tops []uint64
	for _, s := range stacks {
		tops = append(tops, s.End-topPageBytes)
	}

	pages, err := memory.Peek(tops, topPageBytes)
	if err != nil {
		return nil, err
	}
	owners := make(map[int]mem.Span)
	for i, page := range pages {
		for _, tid := range descriptors(page, tops[i]) {
			owners[tid] = mem.Span{Start: stacks[i].Start, End: stacks[i].End}
		}
	}
	return owners, nil
}

// descriptors returns the IDs of the threads whose struct pthread is in memory at an address, by
// the address of that.
func descriptors(content []byte, start uint64) map[uint64]int {
	found := make(map[uint64]int)
	for at := 0; at+tidOffset+4 <= len(content); at += threadAlignment {
		self := start + uint64(at)
		if mem.Word(content, at) == self && mem.Word(content, at+selfOffset) == self {
			found[self] = int(int32(mem.Word32(content, at+tidOffset)))
		}
	}
	return found
}

// Bounds of the search for the thread-local variables of the first thread.
const (
	maxTLSBytes    = 64 << 10 // of the mapping that the dynamic linker makes for them
	maxTLSMappings = 1 << 10  // that are read
)

// firstTLS returns the thread-local variables of the first thread: they lie below its struct
// pthread, which has the values of its keys (pthread_setspecific). The span is empty if none are
// found.
func firstTLS(memory mem.Reader, maps []process.Mapping, tid int) (mem.Span, error) {
	read := 0
	for _, v := range maps {
		isSmall := v.Len() <= maxTLSBytes && v.Read && v.Write && !v.Shared && v.Path == ""
		if !isSmall || read == maxTLSMappings {
			continue
		}
		read++
		content, err := mem.ReadRange(memory, mem.Span{Start: v.Start, End: v.End})
		if err != nil {
			return mem.Span{}, err
		}
		for self, found := range descriptors(content, v.Start) {
			if found == tid {
				return mem.Span{Start: v.Start, End: min(v.End, self+descriptorBytes)}, nil
			}
		}
	}
	return mem.Span{}, nil
}
