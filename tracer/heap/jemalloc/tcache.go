package jemalloc

import "github.com/allocscope/allocscope/tracer/mem"

// tcache_structs.h and cache_bin.h: a thread's cache has a tcache_slow_t, which its arena lists,
// and a tcache_t with the bins. Each has a pointer to the other.
const (
	slowBytes  = 176
	slowBins   = 32  // offset of cache_bin_array_descriptor.bins
	slowArena  = 40  // offset of arena
	slowTcache = 168 // offset of tcache

	nBins         = 73 // TCACHE_NBINS_MAX
	binBytes      = 24 // sizeof(cache_bin_t)
	binEmpty      = 20 // offset of low_bits_empty
	tcacheBytes   = 8 + nBins*binBytes
	stackPiece    = 512 // bytes of a bin's stack that are read at once
	arenaBytes    = 16 << 10
	maxArenas     = 1 << 10 // pointers that may lead to an arena_t
	maxTcaches    = 1 << 13
	maxCachePeeks = 1 << 16 // pieces of stacks
)

// cachedObjects returns the objects that thread caches keep. They are free.
func (j *Malloc) cachedObjects(memory mem.Reader) (map[uint64]bool, error) {
	arenas, err := j.arenaCandidates(memory)
	if err != nil {
		return nil, err
	}
	if j.tcacheQL == 0 {
		if err := j.learnTcacheQL(memory, arenas); err != nil || j.tcacheQL == 0 {
			return nil, err
		}
	}
	tcaches, err := j.tcaches(memory, arenas)
	if err != nil {
		return nil, err
	}

	contents, err := memory.Peek(tcaches, tcacheBytes)
	if err != nil {
		return nil, err
	}
	var stacks []mem.Span
	for _, content := range contents {
		for bin := 0; bin < nBins && content != nil; bin++ {
			head := mem.Word(content, 8+bin*binBytes)
			empty := uint16(mem.Word(content, 8+bin*binBytes+binEmpty-4) >> 32)
			if length := uint64(empty - uint16(head)); head != 0 && length != 0 && length%8 == 0 {
				stacks = append(stacks, mem.Span{Start: head, End: head + length})
			}
		}
	}
	return readStacks(memory, stacks)
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

// learnTcacheQL sets the offset in an arena_t at which the list of its caches begins: there is the
// address of a tcache_slow_t that leads back to the arena.
func (j *Malloc) learnTcacheQL(memory mem.Reader, arenas []uint64) error {
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
		slow, err := memory.Peek(pointers, slowBytes)
		if err != nil {
			return err
		}
		for i, content := range slow {
			if isSlowTcache(content, arena) {
				j.tcacheQL = offsets[i]
				return nil
			}
		}
	}
	return nil
}

// isSlowTcache reports whether memory may be a tcache_slow_t of an arena.
func isSlowTcache(content []byte, arena uint64) bool {
	return content != nil && mem.Word(content, slowArena) == arena &&
		mem.Word(content, slowTcache) != 0 &&
		mem.Word(content, slowBins) == mem.Word(content, slowTcache)+8
}

// tcaches returns the addresses of the caches of all arenas, by following all lists at once.
func (j *Malloc) tcaches(memory mem.Reader, arenas []uint64) ([]uint64, error) {
	heads := make([]uint64, len(arenas))
	for i, arena := range arenas {
		heads[i] = arena + j.tcacheQL
	}
	firsts, err := memory.Peek(heads, 8)
	if err != nil {
		return nil, err
	}

	type listed struct{ slow, arena uint64 }
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
			addresses[i] = w.slow
		}
		contents, err := memory.Peek(addresses, slowBytes)
		if err != nil {
			return nil, err
		}

		var next []listed
		for i, content := range contents {
			w := wanted[i]
			if !seen[w.slow] && isSlowTcache(content, w.arena) {
				seen[w.slow] = true
				tcaches = append(tcaches, mem.Word(content, slowTcache))
				next = append(next, listed{mem.Word(content, 0), w.arena}) // qre_next
			}
		}
		wanted = next
	}
	return tcaches, nil
}
