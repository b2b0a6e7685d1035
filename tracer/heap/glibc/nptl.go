package glibc

import (
	"github.com/allocscope/allocscope/tracer/heap"
	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/process"
)

// A thread's struct pthread begins with its TCB, whose fields tcb and self point to it. The field
// list links it to the descriptors of other threads. The fields stackblock, stackblock_size and
// guardsize are adjacent near its end, at an offset that differs by version. It lies in the last
// page of the stack.
//
// https://github.com/bminor/glibc/blob/glibc-2.41/nptl/descr.h#L130
// https://github.com/bminor/glibc/blob/glibc-2.41/sysdeps/x86_64/nptl/tls.h#L42
const (
	tcbOffset        = 0
	selfOffset       = 16
	threadListOffset = 704 // of list; all offsets are for x86-64
	tidOffset        = 720
	descriptorBytes  = 2304
	threadAlignment  = 16

	defaultStackSize  = 8 << 20 // bytes, without the guard
	maxStackPages     = 1 << 14 // searched for descriptors
	stackTopPageBytes = 4096
)

// ThreadStacks returns the stacks that glibc made for threads. starts are addresses at which
// mappings were seen to begin; a mapping that begins above a stack shows where the stack ends.
//
// They are found by their TCB on x86-64 only. Elsewhere glibc keeps no pointer that marks a TCB.
func ThreadStacks(maps []process.Mapping, starts []uint64, memory mem.Reader) []mem.Span {
	a := heap.AnonymousOf(maps)
	peek := func(addresses []uint64, size int) [][]byte {
		contents, _ := memory.Peek(addresses, size)
		return contents
	}
	return FindStacks(a, a.Writable, maps, starts, peek)
}

// FindStacks is ThreadStacks in writable memory that is free for stacks. peek reads some bytes at
// each address, and returns nil for memory that it cannot read.
func FindStacks(
	a heap.Anonymous, free mem.Spans, maps []process.Mapping, starts []uint64,
	peek func(addresses []uint64, size int) [][]byte,
) (found []mem.Span) {
	seen := make(map[uint64]bool)
	candidates := stackTopPages(maps, starts)

	for len(candidates) > 0 && len(seen) < maxStackPages {
		var unseen []uint64
		for _, page := range candidates {
			_, isFree := free.Find(page)
			if isFree && !seen[page] && len(seen) < maxStackPages {
				seen[page] = true
				unseen = append(unseen, page)
			}
		}

		candidates = nil
		for i, content := range peek(unseen, stackTopPageBytes) {
			t, ok := findThread(a.Areas, unseen[i], content)
			if !ok {
				continue
			}
			found = append(found, t.stack)
			for _, descriptor := range t.neighbors {
				candidates = append(candidates, descriptor&^(stackTopPageBytes-1))
			}
		}
	}
	return found
}

// stackTopPages returns the pages that may be the last ones of stacks. They lie below the end of a
// mapping above a guard. Inside such a mapping, they lie below where another mapping has begun, or
// where a stack of the default size would end.
func stackTopPages(maps []process.Mapping, starts []uint64) []uint64 {
	var tops []uint64
	for i, m := range maps {
		isGuarded := i > 0 && maps[i-1].End == m.Start && !maps[i-1].Read &&
			heap.IsUnnamed(maps[i-1])
		if !isGuarded || !m.Write || !heap.IsUnnamed(m) {
			continue
		}
		tops = append(tops, m.End-stackTopPageBytes)
		if m.Len() > defaultStackSize {
			tops = append(tops, m.Start+defaultStackSize-stackTopPageBytes)
		}
	}

	for _, s := range starts {
		tops = append(tops, s-stackTopPageBytes)
	}
	return tops
}

// thread is a thread whose descriptor was found.
type thread struct {
	stack     mem.Span
	neighbors [2]uint64 // descriptors of the next and previous thread in glibc's list
}

// isDescriptor reports whether a struct pthread may lie in memory that was read at an address.
func isDescriptor(content []byte, at int, self uint64) bool {
	return mem.Word(content, at+tcbOffset) == self && mem.Word(content, at+selfOffset) == self
}

// findThread searches a page for the struct pthread of a thread.
func findThread(areas mem.Spans, page uint64, content []byte) (thread, bool) {
	for at := 0; at+threadListOffset+16 <= len(content); at += threadAlignment {
		self := page + uint64(at)
		if !isDescriptor(content, at, self) {
			continue
		}

		area, _ := areas.Find(self)
		for i := at + threadListOffset + 16; i+24 <= len(content); i += 8 {
			stackblock, size := mem.Word(content, i), mem.Word(content, i+8)
			if isStack(stackblock, size, mem.Word(content, i+16), page, area) {
				list := at + threadListOffset
				next, prev := mem.Word(content, list), mem.Word(content, list+8)
				return thread{
					mem.Span{Start: stackblock, End: stackblock + size},
					[2]uint64{next - threadListOffset, prev - threadListOffset},
				}, true
			}
		}
	}
	return thread{}, false
}

// isStack reports whether the words may be stackblock, stackblock_size and guardsize of a stack
// that ends with a page of an area.
func isStack(stackblock, size, guard, lastPage uint64, area mem.Span) bool {
	return stackblock >= area.Start && stackblock <= lastPage &&
		size <= area.Len() && guard < size &&
		(stackblock|size|guard)%process.PageSize == 0 && stackblock+size == lastPage+stackTopPageBytes
}

// StackOwners returns the stacks by the thread for which glibc has made them: the ID is in the
// struct pthread, in the last page. It is 0 once the thread has ended. The error is from memory.
func StackOwners(memory mem.Reader, stacks []mem.Span) (map[int]mem.Span, error) {
	var tops []uint64
	for _, s := range stacks {
		tops = append(tops, s.End-stackTopPageBytes)
	}

	contents, err := memory.Peek(tops, stackTopPageBytes)
	if err != nil {
		return nil, err
	}
	owners := make(map[int]mem.Span)
	for i, page := range contents {
		for _, tid := range descriptors(page, tops[i]) {
			owners[tid] = stacks[i]
		}
	}
	return owners, nil
}

// descriptors returns the IDs of the threads whose struct pthread is in memory at an address, by
// the address of the struct.
func descriptors(content []byte, start uint64) map[uint64]int {
	found := make(map[uint64]int)
	for at := 0; at+tidOffset+4 <= len(content); at += threadAlignment {
		if self := start + uint64(at); isDescriptor(content, at, self) {
			found[self] = int(int32(mem.Word32(content, at+tidOffset)))
		}
	}
	return found
}

// Bounds of the search for the thread-local variables of the first thread.
const (
	maxTLSMappings = 1 << 10
	maxListBytes   = 64 << 10 // of the linker's variables
	maxModules     = 1 << 10  // of a dtv
)

// FirstTLS returns the thread-local variables of the first thread: they lie below its struct
// pthread, which has the values of its keys (pthread_setspecific). The span is empty if none are
// found. The error is from memory.
func FirstTLS(memory mem.Reader, maps []process.Mapping, tid int) (mem.Span, error) {
	self, err := firstDescriptor(memory, maps, tid)
	if err != nil {
		return mem.Span{}, err
	}
	v, ok := process.FindMapping(maps, self)
	if self == 0 || !ok {
		return mem.Span{}, nil
	}

	span := mem.Span{Start: self, End: min(v.End, self+descriptorBytes)}
	if v.Len() <= maxTLSBytes {
		span.Start = v.Start
		return span, nil
	}
	variables, err := variablesOf(memory, self)
	for _, at := range variables {
		if at >= v.Start && at < span.Start {
			span.Start = at
		}
	}
	return span, err
}

// firstDescriptor returns the struct pthread of the first thread; 0: it is not found. From 2.34 on
// the linker has it in a list, _dl_stack_user. Before, it is found in a mapping of its own.
func firstDescriptor(
	memory mem.Reader, maps []process.Mapping, tid int,
) (self uint64, err error) {
	read, listed := 0, 0
	for _, v := range maps {
		isOwn := v.Len() <= maxTLSBytes && v.Read && v.Write && !v.Shared
		isLinker := IsLinker(v.Path)
		if !isOwn || v.Path != "" && !isLinker || read == maxTLSMappings ||
			isLinker && listed >= maxListBytes {
			continue
		}

		read++
		content, err := mem.ReadRange(memory, mem.Span{Start: v.Start, End: v.End})
		if err != nil {
			return 0, err
		}
		if isLinker {
			listed += len(content)
			if self = listedDescriptor(memory, content, tid); self != 0 {
				return self, nil
			}
			continue
		}
		for self, found := range descriptors(content, v.Start) {
			if found == tid {
				return self, nil
			}
		}
	}
	return 0, nil
}

// listedDescriptor returns the struct pthread of a thread to whose field list a word leads; 0: none
// does.
func listedDescriptor(memory mem.Reader, content []byte, tid int) uint64 {
	var addresses []uint64
	for at := 0; at+8 <= len(content); at += 8 {
		self := mem.Word(content, at) - threadListOffset
		if self%threadAlignment == 0 && self < maxPointer {
			addresses = append(addresses, self)
		}
	}
	heads, _ := memory.Peek(addresses, tidOffset+8)
	for i, head := range heads {
		if head != nil && isDescriptor(head, 0, addresses[i]) &&
			int(int32(mem.Word32(head, tidOffset))) == tid {
			return addresses[i]
		}
	}
	return 0
}

// variablesOf returns where the modules have their variables of a thread, by its dtv: dtv[-1] has
// the number of entries, of which dtv[0] is none.
//
// https://github.com/bminor/glibc/blob/glibc-2.41/sysdeps/generic/dl-dtv.h#L22
func variablesOf(memory mem.Reader, self uint64) (variables []uint64, err error) {
	const dtvOffset, dtvBytes = 8, 16
	words, err := memory.Peek([]uint64{self + dtvOffset}, 8)
	if err != nil || words[0] == nil {
		return nil, err
	}
	dtv := mem.Word(words[0], 0)
	if words, err = memory.Peek([]uint64{dtv - dtvBytes}, 8); err != nil || words[0] == nil {
		return nil, err
	}

	var entries []uint64
	for i := range min(mem.Word(words[0], 0), maxModules) {
		entries = append(entries, dtv+(i+1)*dtvBytes)
	}
	words, err = memory.Peek(entries, 8)
	for _, word := range words {
		if word != nil {
			variables = append(variables, mem.Word(word, 0))
		}
	}
	return variables, err
}
