package glibc

import (
	"slices"

	"github.com/allocscope/allocscope/tracer/heap"
	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/process"
)

// tcacheLayout is a version of tcache_perthread_struct: counts or num_slots of each bin, then
// entries, the heads of the bins' lists.
//
// https://github.com/bminor/glibc/blob/glibc-2.41/malloc/malloc.c#L3120
// https://github.com/bminor/glibc/blob/glibc-2.43/malloc/malloc.c#L2910
type tcacheLayout struct {
	chunk   uint64 // bytes of the chunk that it lies in
	entries int    // offset in bytes
	bins    int    // TCACHE_MAX_BINS
}

// tcacheLayouts are the layouts of 2.30 to 2.41, and of 2.42 and later. The latter has twelve bins
// for large chunks, which glibc.malloc.tcache_max turns on.
var tcacheLayouts = []tcacheLayout{
	{chunk: 0x290, entries: 128, bins: 64},
	{chunk: 0x300, entries: 152, bins: 76},
}

const (
	smallTcacheBins    = 64 // TCACHE_SMALL_BINS
	maxSmallTcacheSize = minSize + mallocAlignment*(smallTcacheBins-1)
	maxTcacheBytes     = 152 + 76*8 // of any tcache_perthread_struct
)

// Bounds of the search for tcaches.
const (
	maxTLSBytes   = 64 << 10 // of a mapping that may be made for TLS alone
	stackTopBytes = 8 << 10  // searched at the top of a stack
	brkStartBytes = 16 << 10 // searched at the start of the main heap
	maxTLSPieces  = 1 << 13
	maxPointers   = 1 << 14
	maxPointer    = 1 << 48  // no address is larger, but nearly all random numbers are
	keyDistance   = 64 << 10 // bytes around main_arena in which tcache_key lies
)

// findTcaches returns the addresses of possible tcache_perthread_structs. They are objects in
// chunks of that size, with which an arena's heap begins or to which a thread-local variable
// points.
func (a *Malloc) findTcaches(
	memory mem.Reader, maps []process.Mapping, arenas []arena,
) ([]uint64, error) {
	heaps := heap.Spans(maps)
	pointers := make(map[uint64]bool)

	for _, r := range arenas[min(1, len(arenas)):] {
		firstChunk := mem.AlignUp(r.address+a.layout.size, mallocAlignment)
		pointers[firstChunk+HeaderSize] = true
	}
	for _, h := range heaps {
		pointers[h.Start+HeaderSize] = true
	}

	pieces, err := memory.Peek(tlsPieces(memory, maps), mem.PeekSize)
	if err != nil {
		return nil, err
	}
	for _, piece := range pieces {
		for at := 0; at+8 <= len(piece) && len(pointers) < maxPointers; at += 8 {
			pointer := mem.Word(piece, at)
			if pointer == 0 || pointer%mallocAlignment != 0 {
				continue
			}
			if _, inHeap := heaps.Find(pointer); inHeap {
				pointers[pointer] = true
			}
		}
	}

	objects := make([]uint64, 0, len(pointers))
	for pointer := range pointers {
		objects = append(objects, pointer)
	}
	return tcacheSized(memory, objects)
}

// tcacheSized returns the objects whose chunks have the size of a tcache_perthread_struct.
func tcacheSized(memory mem.Reader, objects []uint64) ([]uint64, error) {
	headers, err := memory.Peek(chunksOf(objects), HeaderSize)
	if err != nil {
		return nil, err
	}

	var found []uint64
	for i, header := range headers {
		if _, ok := tcacheLayoutOf(header); ok {
			found = append(found, objects[i])
		}
	}
	return found, nil
}

// tcacheLayoutOf returns the version of tcache_perthread_struct that a chunk may contain, by its
// header. The chunk may be larger by a remainder that malloc did not split off.
func tcacheLayoutOf(header []byte) (tcacheLayout, bool) {
	if header == nil {
		return tcacheLayout{}, false
	}

	size := mchunkSize(header) &^ (prevInUse | nonMainArena)
	for _, l := range tcacheLayouts {
		if l.chunk <= size && size <= l.chunk+minSize && size%mallocAlignment == 0 {
			return l, true
		}
	}
	return tcacheLayout{}, false
}

// tlsPieces returns the addresses of memory that may contain thread-local variables of the C
// library, in pieces of mem.PeekSize bytes. They lie at the tops of stacks, for the first thread in a
// small mapping of the dynamic linker's, and in a static program at the start of the heap.
func tlsPieces(memory mem.Reader, maps []process.Mapping) []uint64 {
	var pieces []uint64
	add := func(start, end uint64) {
		for address := start; address < end && len(pieces) < maxTLSPieces; address += mem.PeekSize {
			pieces = append(pieces, address)
		}
	}

	var ends []uint64
	for i, m := range maps {
		isGuarded := i > 0 && maps[i-1].End == m.Start && !maps[i-1].Read
		switch {
		case !heap.IsHeapLike(m):
		case m.Path == "[heap]":
			add(m.Start, min(m.End, m.Start+brkStartBytes))
		case m.Len() <= maxTLSBytes:
			add(m.Start, m.End)
		case isGuarded:
			add(m.End-stackTopBytes, m.End)
		default: // from 2.42 on, guards are no mappings of their own
			ends = append(ends, m.End)
		}
	}
	for _, stack := range ThreadStacks(maps, ends, memory) {
		add(stack.End-stackTopBytes, stack.End)
	}

	slices.Sort(pieces)
	return slices.Compact(pieces)
}

// freeList is a singly linked list of free chunks: of a bin of a tcache, or of a fastbin. From
// 2.32 on, links are mangled ("safe-linking", PROTECT_PTR). follow tries both readings of a link;
// size and key decide.
type freeList struct {
	minSize, maxSize uint64 // bytes of its chunks
	// key is the second word of each object, as in tcache_entry. It is 0 for fastbins, which have
	// none.
	key uint64
	// linkOffset is added to a link to get an object: tcaches link objects, fastbins chunks.
	linkOffset uint64
}

// entry is an object in a free list.
type entry struct {
	freeList
	object uint64
}

// A read of an entry has the chunk's header, then next and key of tcache_entry.
//
// https://github.com/bminor/glibc/blob/glibc-2.41/malloc/malloc.c#L3108
const (
	nextOffset = HeaderSize
	keyOffset  = HeaderSize + 8
	entryBytes = HeaderSize + 16
)

// Bounds of one read of the free lists.
const (
	maxListRounds    = 1024 // a tcache list has 7 entries, fastbins and tunables allow more
	maxListedObjects = 1 << 15
)

// listedObjects returns the objects in tcaches and fastbins, whose chunks look like chunks in use.
func (a *Malloc) listedObjects(
	memory mem.Reader, arenas []arena, tcaches []uint64,
) (map[uint64]bool, error) {
	heads, err := a.tcacheHeads(memory, tcaches)
	if err != nil {
		return nil, err
	}

	for _, r := range arenas {
		for i, chunk := range r.fastbinsY {
			if chunk == 0 {
				continue
			}
			size := minSize + mallocAlignment*uint64(i)
			list := freeList{minSize: size, maxSize: size, linkOffset: HeaderSize}
			heads = append(heads, entry{list, chunk + HeaderSize})
		}
	}
	return follow(memory, heads)
}

// follow follows all free lists at once and returns their objects.
func follow(memory mem.Reader, entries []entry) (map[uint64]bool, error) {
	found := make(map[uint64]bool)
	for round := 0; len(entries) > 0 && round < maxListRounds; round++ {
		contents, err := readEntries(memory, entries)
		if err != nil {
			return nil, err
		}

		var next []entry
		for i, content := range contents {
			e := entries[i]
			if content == nil || !e.contains(content) || found[e.object] || len(found) >= maxListedObjects {
				continue
			}
			found[e.object] = true
			next = append(next, e.next(content)...)
		}
		entries = next
	}
	return found, nil
}

func readEntries(memory mem.Reader, entries []entry) ([][]byte, error) {
	chunks := make([]uint64, len(entries))
	for i, e := range entries {
		chunks[i] = e.object - HeaderSize
	}
	return memory.Peek(chunks, entryBytes)
}

// contains reports whether an entry, as it was read, may be in this list.
func (l freeList) contains(content []byte) bool {
	size := chunkSize(content)
	return l.minSize <= size && size <= l.maxSize &&
		(l.key == 0 || mem.Word(content, keyOffset) == l.key)
}

// next returns the entries that may follow, none at the end of the list.
//
// https://github.com/bminor/glibc/blob/glibc-2.41/malloc/malloc.c#L329
func (e entry) next(content []byte) []entry {
	plain := mem.Word(content, nextOffset)
	revealed := plain ^ e.object>>12 // REVEAL_PTR
	if plain == 0 || revealed == 0 {
		return nil
	}

	var following []entry
	for _, link := range []uint64{plain, revealed} {
		if link%mallocAlignment == 0 && link < heap.MaxAddress {
			following = append(following, entry{e.freeList, link + e.linkOffset})
		}
	}
	return following
}

// tcacheHeads returns the first entries of the lists of tcaches.
func (a *Malloc) tcacheHeads(memory mem.Reader, tcaches []uint64) ([]entry, error) {
	contents, err := memory.Peek(chunksOf(tcaches), HeaderSize+maxTcacheBytes)
	if err != nil {
		return nil, err
	}

	var heads []entry
	for i, content := range contents {
		layout, ok := tcacheLayoutOf(content)
		if !ok {
			continue
		}
		keyed, err := a.withKey(memory, tcaches[i], layout.heads(content[HeaderSize:]))
		if err != nil {
			return nil, err
		}
		heads = append(heads, keyed...)
	}
	return heads, nil
}

// heads returns the first entries of the lists. It returns none if one of entries is no object:
// then this is no tcache_perthread_struct.
func (l tcacheLayout) heads(content []byte) []entry {
	var heads []entry
	for bin := range l.bins {
		object := mem.Word(content, l.entries+8*bin)
		if object%mallocAlignment != 0 || object >= heap.MaxAddress {
			return nil
		}
		if object == 0 {
			continue
		}

		size := minSize + mallocAlignment*uint64(bin)
		list := freeList{minSize: size, maxSize: size}
		if bin >= smallTcacheBins { // one for each power of two
			list.minSize = maxSmallTcacheSize
			list.maxSize = maxSmallTcacheSize << (bin - smallTcacheBins + 1)
		}
		heads = append(heads, entry{list, object})
	}
	return heads
}

// withKey returns the heads of a tcache with the key of its entries. Before 2.34 that is the
// tcache's address, later the random number tcache_key of the process. withKey returns none if
// the entries have another key.
func (a *Malloc) withKey(memory mem.Reader, tcache uint64, heads []entry) ([]entry, error) {
	contents, err := readEntries(memory, heads)
	if err != nil {
		return nil, err
	}
	counts := make(map[uint64]int)
	for i, content := range contents {
		if content != nil && heads[i].contains(content) { // else allocated during the read
			counts[mem.Word(content, keyOffset)]++
		}
	}

	key := a.tcacheKey
	if counts[tcache] > 0 {
		key = tcache
	}
	for candidate := range counts {
		if a.tcacheKey == 0 && len(counts) == 1 && candidate > maxPointer {
			if key, err = a.learnKey(memory, candidate); err != nil {
				return nil, err
			}
		}
	}
	if key == 0 {
		return nil, nil
	}

	for i := range heads {
		heads[i].key = key
	}
	return heads, nil
}

// learnKey sets and returns tcache_key if the C library has a number among its variables.
// Otherwise it returns 0.
func (a *Malloc) learnKey(memory mem.Reader, candidate uint64) (uint64, error) {
	start := a.mainArena&^(mem.PeekSize-1) - keyDistance
	content, err := mem.ReadRange(memory, mem.Span{Start: start, End: start + 2*keyDistance})
	if err != nil {
		return 0, err
	}

	for at := 0; at < len(content); at += 8 {
		if mem.Word(content, at) == candidate {
			a.tcacheKey = candidate
			return candidate, nil
		}
	}
	return 0, nil
}
