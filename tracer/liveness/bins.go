package liveness

import (
	"cmp"
	"slices"
)

// Bounds of one reading of the bins.
const (
	maxBinRounds  = 256 // of reading all lists one step further
	maxFreeChunks = 1 << 15
)

// freeChunks gives chunks in the arenas' bins, sorted: what an object may lie in that has died and become part of one. The
// lists change while they are read, so that each is a guess.
func (a *Allocator) freeChunks(memory Memory, arenas []arena) ([]span, error) {
	at := make([]uint64, len(arenas))
	for i, r := range arenas {
		at[i] = r.address + a.layout.bins
	}
	bins, err := memory.Peek(at, 16*binCount)
	if err != nil {
		return nil, err
	}
	var links []uint64
	for i, content := range bins {
		for k := 0; k < 2*binCount && content != nil; k += 2 {
			if to := word(content, 8*k); to != at[i]+8*uint64(k)-16 {
				links = append(links, to)
			}
		}
	}
	return followBins(memory, links)
}

func followBins(memory Memory, links []uint64) ([]span, error) {
	const linkAt = headerSize
	var found []span
	seen := make(map[uint64]bool)
	for round := 0; len(links) > 0 && round < maxBinRounds; round++ {
		contents, err := memory.Peek(links, linkAt+8)
		if err != nil {
			return nil, err
		}
		var next []uint64
		for i, content := range contents {
			chunk := links[i]
			if content == nil || seen[chunk] || len(found) >= maxFreeChunks || chunk%16 != 0 || chunk >= maxAddress {
				continue
			}
			seen[chunk] = true
			if size := word(content, 8) &^ chunkFlags; size < maxRequest {
				found = append(found, span{chunk, chunk + size})
				next = append(next, word(content, linkAt))
			}
		}
		links = next
	}
	slices.SortFunc(found, func(a, b span) int { return cmp.Compare(a.start, b.start) })
	return found, nil
}
