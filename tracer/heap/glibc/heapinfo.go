package glibc

import (
	"github.com/allocscope/allocscope/tracer/heap"
	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/process"
)

// heapMaxSize is HEAP_MAX_SIZE on 64-bit machines, in bytes. Heaps of other arenas than the main
// one are aligned to it.
//
// https://github.com/bminor/glibc/blob/glibc-2.41/malloc/arena.c#L28
const heapMaxSize = 64 << 20

// heapInfo is the heap_info at the start of a heap.
//
// https://github.com/bminor/glibc/blob/glibc-2.41/malloc/arena.c#L66
type heapInfo struct {
	address      uint64
	arPtr        uint64 // address of the arena's malloc_state
	prev         uint64 // the previous heap of the arena; 0 in the first one
	size         uint64 // bytes in use
	mprotectSize uint64 // bytes that can be read and written
}

const heapInfoSize = 32 // bytes up to mprotect_size, in all versions

func parseHeapInfo(content []byte, address uint64) heapInfo {
	return heapInfo{
		address, mem.Word(content, 0), mem.Word(content, 8), mem.Word(content, 16),
		mem.Word(content, 24),
	}
}

// An ArenaHeap is a heap of an arena other than the main one: all memory that glibc has mapped for
// it.
type ArenaHeap struct {
	mem.Span
	Arena uint64 // address of its malloc_state
}

// FindHeaps finds the heaps of arenas other than the main one, in writable memory that is free for
// them. peek reads some bytes at each address, and returns nil for memory that it cannot read.
func FindHeaps(
	a heap.Anonymous, free mem.Spans, peek func(addresses []uint64, size int) [][]byte,
) []ArenaHeap {
	const maxCandidates = 1 << 16
	var addresses []uint64
	for _, s := range free {
		for address := mem.AlignUp(s.Start, heapMaxSize); address >= s.Start && address < s.End &&
			len(addresses) < maxCandidates; address += heapMaxSize {
			addresses = append(addresses, address)
		}
	}

	heaps := make(map[uint64]heapInfo)
	for i, content := range peek(addresses, heapInfoSize) {
		if content == nil {
			continue
		}
		if h := parseHeapInfo(content, addresses[i]); h.isIn(a) {
			heaps[h.address] = h
		}
	}

	var found []ArenaHeap
	for _, h := range heaps {
		if h.isLinked(heaps) {
			span := mem.Span{Start: h.address, End: h.address + heapMaxSize}
			found = append(found, ArenaHeap{span, h.arPtr})
		}
	}
	return found
}

// isIn reports whether the fields agree with each other and with the maps. glibc maps all of a
// heap at once, and makes it writable up to mprotect_size. The maps may show less where the heap
// has grown since they were read.
//
// The first heap of an arena has its malloc_state right behind the heap_info, which grew from 32
// to 48 bytes in glibc 2.35.
func (h heapInfo) isIn(a heap.Anonymous) bool {
	area, _ := a.Areas.Find(h.address)
	writable, _ := a.Writable.Find(h.address)
	stateOffset := h.arPtr % heapMaxSize

	return area.End-h.address >= heapMaxSize &&
		min(writable.End-h.address, heapMaxSize) <= h.mprotectSize &&
		h.mprotectSize <= heapMaxSize && h.mprotectSize%process.PageSize == 0 &&
		h.size <= h.mprotectSize && h.size > 0 &&
		(stateOffset == 32 || stateOffset == 48) &&
		h.prev%heapMaxSize == 0 && (h.prev == 0) == (h.arPtr-stateOffset == h.address)
}

// isLinked reports whether the arena's first heap and the previous one are heaps of the same
// arena.
func (h heapInfo) isLinked(heaps map[uint64]heapInfo) bool {
	if h.prev == 0 {
		return true
	}
	first, previous := heaps[h.arPtr-h.arPtr%heapMaxSize], heaps[h.prev]
	return first.prev == 0 && first.arPtr == h.arPtr && previous.arPtr == h.arPtr
}
