package jemalloc

import "github.com/allocscope/allocscope/tracer/mem"

// tcache_structs.h and cache_bin.h: a thread's cache has a tcache_slow_t, in which the arena lists
// the cache_bin_array_descriptor_t, and a tcache_t with the bins. The offsets are from the
// descriptor: before it, tcache_slow_t has a list of its own up to 5.3.1.
const (
	descriptorBins  = 16 // offset of bins
	descriptorArena = 24 // offset of tcache_slow_t.arena

	binBytes      = 24  // sizeof(cache_bin_t)
	binBits       = 16  // offset of low_bits_low_water, low_bits_full, low_bits_empty
	stackPiece    = 512 // bytes of a bin's stack that are read at once
	arenaBytes    = 16 << 10
	maxArenas     = 1 << 10 // pointers that may lead to an arena_t
	maxTcaches    = 1 << 13
	maxCachePeeks = 1 << 16 // pieces of stacks
)

// A cacheLayout is the part of the layout in which versions differ.
type cacheLayout struct {
	tcache uint64 // offset of tcache_slow_t.tcache
	bins   int    // TCACHE_NBINS_MAX
}

// cacheLayouts are the ones of 5.3.0, and of 5.3.1 and 5.4.
var cacheLayouts = []cacheLayout{{152, 73}, {216, 41}}

const (
	descriptorBytes = 216 + 8 // up to the end of tcache, in any layout
	tcacheHead      = 8       // offset of tcache_t.bins
)

// cachedObjects returns the objects that thread caches keep. They are free. Their stacks have the
// addresses of them, and of blocks that the caches have handed out.
func (j *Malloc) cachedObjects(memory mem.Reader) (
	cached map[uint64]bool, stacks mem.Spans, err error,
) {
	arenas, err := j.arenaCandidates(memory)
	if err != nil {
		return nil, nil, err
	}
	if j.listOffset == 0 {
		if err := j.learnCaches(memory, arenas); err != nil || j.listOffset == 0 {
			return nil, nil, err
		}
	}
	tcaches, err := j.tcaches(memory, arenas)
	if err != nil {
		return nil, nil, err
	}

	contents, err := memory.Peek(tcaches, tcacheHead+j.caches.bins*binBytes)
	if err != nil {
		return nil, nil, err
	}
	var filled, whole []mem.Span
	for _, content := range contents {
		for at := tcacheHead; content != nil && at < len(content); at += binBytes {
			head, bits := mem.Word(content, at), mem.Word(content, at+binBits)
			full, empty := uint16(bits>>16), uint16(bits>>32)
			handedOut, length := uint64(uint16(head)-full), uint64(empty-uint16(head))
			if head < handedOut || head >= maxAddress || length%8 != 0 {
				continue
			}
			filled = append(filled, mem.Span{Start: head, End: head + length})
			whole = append(whole, mem.Span{Start: head - handedOut, End: head + length})
		}
	}
	cached, err = readStacks(memory, filled)
	return cached, mem.MergeSpans(whole), err
}

// readStacks returns the pointers in stacks.
func readStacks(memory mem.Reader, stacks []mem.Span) (map[uint64]bool, error) {
	var pieces []uint64
	var lengths []int
	for _, s := range stacks {
		for at := s.Start; at < s.End && len(pieces) < maxCachePeeks; at += stackPiece {
			pieces = append(pieces, at)
			lengths = append(lengths, int(min(s.End-at, stackPiece)))
		}
	}
	contents, err := memory.Peek(pieces, stackPiece)
	if err != nil {
		return nil, err
	}

	cached := make(map[uint64]bool)
	for i, content := range contents {
		for at := 0; content != nil && at < lengths[i]; at += 8 {
			cached[mem.Word(content, at)] = true
		}
	}
	return cached, nil
}

// arenaCandidates returns the pointers among jemalloc's variables that may lead to an arena_t: the
// array arenas has one of each. The tree is left out.
func (j *Malloc) arenaCandidates(memory mem.Reader) ([]uint64, error) {
	tree := mem.Spans{{Start: j.root, End: j.root + nodeBytes}}
	seen := make(map[uint64]bool)
	var candidates []uint64
	for _, s := range j.variables.Subtract(tree) {
		content, err := mem.ReadRange(memory, s)
		if err != nil {
			return nil, err
		}
		for at := 0; at+8 <= len(content) && len(candidates) < maxArenas; at += 8 {
			pointer := mem.Word(content, at)
			if pointer != 0 && pointer%64 == 0 && pointer < maxAddress && !seen[pointer] {
				seen[pointer] = true
				candidates = append(candidates, pointer)
			}
		}
	}
	return candidates, nil
}

// learnCaches sets the layout of the caches, and the offset in an arena_t at which their list
// begins: there is the address of a descriptor that leads back to the arena.
func (j *Malloc) learnCaches(memory mem.Reader, arenas []uint64) error {
	for _, arena := range arenas {
		content, err := mem.ReadRange(memory, mem.Span{Start: arena, End: arena + arenaBytes})
		if err != nil {
			return err
		}

		var pointers []uint64
		var offsets []uint64
		for at := 0; at < len(content); at += 8 {
			if p := mem.Word(content, at); p != 0 && p%8 == 0 && p < maxAddress {
				pointers, offsets = append(pointers, p), append(offsets, uint64(at))
			}
		}
		descriptors, err := memory.Peek(pointers, descriptorBytes)
		if err != nil {
			return err
		}
		for i, content := range descriptors {
			for _, layout := range cacheLayouts {
				if layout.isDescriptor(content, arena) {
					j.caches, j.listOffset = layout, offsets[i]
					return nil
				}
			}
		}
	}
	return nil
}

// isDescriptor reports whether memory may be a cache_bin_array_descriptor_t of an arena.
func (l cacheLayout) isDescriptor(content []byte, arena uint64) bool {
	return content != nil && mem.Word(content, descriptorArena) == arena &&
		mem.Word(content, l.tcache) != 0 &&
		mem.Word(content, descriptorBins) == mem.Word(content, l.tcache)+tcacheHead
}

// tcaches returns the addresses of the caches of all arenas, by following all lists at once.
func (j *Malloc) tcaches(memory mem.Reader, arenas []uint64) ([]uint64, error) {
	heads := make([]uint64, len(arenas))
	for i, arena := range arenas {
		heads[i] = arena + j.listOffset
	}
	firsts, err := memory.Peek(heads, 8)
	if err != nil {
		return nil, err
	}

	type listed struct{ descriptor, arena uint64 }
	var wanted []listed
	for i, first := range firsts {
		if first != nil {
			wanted = append(wanted, listed{mem.Word(first, 0), arenas[i]})
		}
	}

	var tcaches []uint64
	seen := make(map[uint64]bool)
	for len(wanted) > 0 && len(tcaches) < maxTcaches {
		addresses := make([]uint64, len(wanted))
		for i, w := range wanted {
			addresses[i] = w.descriptor
		}
		contents, err := memory.Peek(addresses, descriptorBytes)
		if err != nil {
			return nil, err
		}

		var next []listed
		for i, content := range contents {
			w := wanted[i]
			if !seen[w.descriptor] && j.caches.isDescriptor(content, w.arena) {
				seen[w.descriptor] = true
				tcaches = append(tcaches, mem.Word(content, j.caches.tcache))
				next = append(next, listed{mem.Word(content, 0), w.arena}) // qre_next
			}
		}
		wanted = next
	}
	return tcaches, nil
}
