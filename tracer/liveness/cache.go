package liveness

import (
	"slices"
	"strings"

	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/residency/region"
)

// A cacheLayout is a version of tcache_perthread_struct: a count for each list, then the heads of the lists.
type cacheLayout struct {
	chunk   uint64 // bytes of its chunk
	entries int    // offset of the heads in bytes
	lists   int
}

// cacheLayouts of 2.30 to 2.41, and from 2.42 on, where the last twelve lists are for large chunks, if a tunable says so.
var cacheLayouts = []cacheLayout{
	{chunk: 0x290, entries: 128, lists: 64},
	{chunk: 0x300, entries: 152, lists: 76},
}

const (
	smallLists     = 64
	maxSmallCached = minChunk + 16*(smallLists-1) // bytes of the largest chunk in them
	maxCache       = 152 + 76*8                   // bytes
	smallMapping   = 64 << 10
	stackTop       = 8 << 10  // bytes of a stack that are searched
	heapStart      = 16 << 10 // likewise, of the main heap
	pieceSize      = 4 << 10  // bytes that are read at once
	maxPieces      = 1 << 13
	maxPointers    = 1 << 14
	maxPointer     = 1 << 48  // what is above is no address, and by a great chance every random number
	keyDistance    = 64 << 10 // bytes around the main arena where the library's variables are
)

// caches finds the caches of threads that may be there: chunks of their size that the arenas begin with or that thread-local
// variables point to.
func (a *Allocator) caches(memory Memory, maps []process.Mapping, arenas []arena) ([]uint64, error) {
	heaps := writable(maps)
	pointers := make(map[uint64]bool)
	for _, r := range arenas[min(1, len(arenas)):] {
		pointers[alignUp(r.address+a.layout.size, 16)+headerSize] = true
	}
	for _, h := range heaps {
		pointers[h.start+headerSize] = true
	}
	pages, err := memory.Peek(threadPages(memory, maps), pieceSize)
	if err != nil {
		return nil, err
	}
	for _, page := range pages {
		for at := 0; at+8 <= len(page) && len(pointers) < maxPointers; at += 8 {
			if to := word(page, at); to != 0 && to%16 == 0 && within(heaps, to) {
				pointers[to] = true
			}
		}
	}
	objects := make([]uint64, 0, len(pointers))
	for to := range pointers {
		objects = append(objects, to)
	}
	return cacheChunks(memory, objects)
}

// cacheChunks gives those of the objects whose chunks are as large as a cache.
func cacheChunks(memory Memory, objects []uint64) ([]uint64, error) {
	headers, err := memory.Peek(chunksOf(objects), headerSize)
	if err != nil {
		return nil, err
	}
	var found []uint64
	for i, header := range headers {
		if _, ok := cacheLayoutOf(header); ok {
			found = append(found, objects[i])
		}
	}
	return found, nil
}

func cacheLayoutOf(header []byte) (cacheLayout, bool) {
	for _, l := range cacheLayouts {
		if header == nil {
			break
		}
		size := word(header, 8) &^ (previousInUse | notMain)
		if l.chunk <= size && size <= l.chunk+minChunk && size%16 == 0 { // a smallest chunk at most was left over, and stayed with it
			return l, true
		}
	}
	return cacheLayout{}, false
}

// threadPages gives pieces of memory that may hold thread-local variables of the C library: the tops of stacks; small
// mappings, as the dynamic linker makes for the first thread; of a static program, the start of the heap.
func threadPages(memory Memory, maps []process.Mapping) []uint64 {
	var pieces []uint64
	add := func(start, end uint64) {
		for at := start; at < end && len(pieces) < maxPieces; at += pieceSize {
			pieces = append(pieces, at)
		}
	}
	var ends []uint64
	for i, m := range maps {
		guarded := i > 0 && maps[i-1].End == m.Start && !maps[i-1].Read
		switch {
		case !isHeapLike(m):
		case m.Path == "[heap]":
			add(m.Start, min(m.End, m.Start+heapStart))
		case m.Len() <= smallMapping:
			add(m.Start, m.End)
		case guarded:
			add(m.End-stackTop, m.End)
		default: // guards are no mappings of their own from 2.42 on
			ends = append(ends, m.End)
		}
	}
	for _, stack := range region.Stacks(maps, ends, pages{memory}) {
		add(stack.End-stackTop, stack.End)
	}
	slices.Sort(pieces)
	return slices.Compact(pieces)
}

// writable gives the mappings that may hold chunks; sorted, as maps are.
func writable(maps []process.Mapping) []span {
	var spans []span
	for _, m := range maps {
		if isHeapLike(m) {
			spans = append(spans, span{m.Start, m.End})
		}
	}
	return spans
}

func isHeapLike(m process.Mapping) bool {
	return m.Read && m.Write && !m.Share && !m.IsFile() &&
		(m.Path == "" || m.Path == "[heap]" || strings.HasPrefix(m.Path, "[anon:"))
}

func within(spans []span, address uint64) bool {
	i, _ := slices.BinarySearchFunc(spans, address, func(s span, address uint64) int {
		if s.end <= address {
			return -1
		}
		return 1
	})
	return i < len(spans) && spans[i].start <= address
}

// pages is a Memory as package region wants it.
type pages struct{ memory Memory }

// Resident takes all pages for resident: Memory knows better, and tops of stacks are in use.
func (p pages) Resident(uint64) bool { return true }

// Peek implements region.Memory.
func (p pages) Peek(addresses []uint64, size int) [][]byte {
	contents, err := p.memory.Peek(addresses, size)
	if err != nil {
		return make([][]byte, len(addresses))
	}
	return contents
}
