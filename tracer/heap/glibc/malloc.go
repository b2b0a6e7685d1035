package glibc

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/allocscope/allocscope/tracer/heap"
	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/process"
)

// Malloc is the malloc of glibc in a process. It implements heap.Allocator.
type Malloc struct {
	mainArena uint64 // address
	layout    mallocState
	tcacheKey uint64 // tcache_key, from 2.34 on; 0 until Check has learned it
	// hasLargeTcacheBins is set if tcaches keep large chunks, up to twice as large as the request.
	hasLargeTcacheBins bool
}

// ErrNoArena means that the layout of the main arena is not known.
var ErrNoArena = errors.New("no arena of malloc in a layout that is known (glibc 2.30 to 2.43 are)")

const tunablesVariable = "GLIBC_TUNABLES"

// Find finds the malloc of glibc in a process, whose library is the file. The error wraps
// ErrNoArena, or is from reading.
func Find(
	p *process.Process, maps []process.Mapping, library process.Mapping,
) (heap.Allocator, error) {
	for _, s := range heap.Variables(maps, library.File()) {
		content, err := mem.ReadRange(p, s)
		if err != nil {
			return nil, err
		}
		a, err := findMainArena(p, s.Start, content)
		if err != nil {
			return nil, err
		}
		if a != nil {
			tunables := p.Environment(tunablesVariable)[tunablesVariable]
			a.hasLargeTcacheBins = strings.Contains(tunables, "tcache_max")
			return a, nil
		}
	}
	return nil, fmt.Errorf("find malloc's main arena in %s: %w", library.Path, ErrNoArena)
}

// mallocState is where a malloc_state has its fields, in bytes from its start.
//
// https://github.com/bminor/glibc/blob/glibc-2.41/malloc/malloc.c#L1814
type mallocState struct {
	fastbinsY uint64 // 0 where the version has no fastbins
	top       uint64
	bins      uint64
	next      uint64
	size      uint64
}

// mallocStates are the layouts of 2.27 to 2.42, and from 2.43 on, which has no fastbins.
var mallocStates = []mallocState{
	{fastbinsY: 16, top: 96, bins: 112, next: 2160, size: 2200},
	{top: 8, bins: 24, next: 2072, size: 2112},
}

const (
	nBins              = 127 // heads in bins: NBINS less bin 0, which does not exist
	nFastbins          = 10  // NFASTBINS
	binSize            = 16  // bytes of a head: fd and bk
	maxArenas          = 1 << 10
	maxArenaCandidates = 64      // addresses that may be the main arena; a program can forge them
	maxBinRounds       = 256     // rounds of following all bins by one chunk
	maxBinnedChunks    = 1 << 15 // chunks
)

// findMainArena finds main_arena in the variables of the C library, which begin at an address. It
// returns nil if there is none. Two things mark main_arena: its bins, and the ring of arenas, which
// leads back to it.
func findMainArena(memory mem.Reader, start uint64, content []byte) (*Malloc, error) {
	for _, layout := range mallocStates {
		tried := 0
		for at := 0; at+int(layout.size) <= len(content) && tried < maxArenaCandidates; at += 8 {
			address := start + uint64(at)
			if !mayBeBins(content[at+int(layout.bins):], address+layout.bins) {
				continue
			}

			tried++
			a := &Malloc{mainArena: address, layout: layout}
			_, closed, err := a.followRing(memory)
			if err != nil {
				return nil, err
			}
			if closed {
				return a, nil
			}
		}
	}
	return nil, nil
}

// mayBeBins reports whether words at an address may be the bins of a malloc_state. All bins may
// be full, and change during the read, but for the last one: no size belongs to it, so that it is
// always empty, and its links lead to itself.
func mayBeBins(content []byte, address uint64) bool {
	const last = nBins - 1
	self := binAt(address, last)
	if mem.Word(content, binSize*last) != self || mem.Word(content, binSize*last+8) != self {
		return false
	}

	for i := range 2 * last {
		if link := mem.Word(content, 8*i); link == 0 || link%8 != 0 || link >= heap.MaxAddress {
			return false
		}
	}
	return true
}

// IsLinker reports whether a file has the name of glibc's dynamic linker. Before glibc 2.34 the name
// had the version, such as ld-2.31.so. musl's ld-musl-x86_64.so.1 is the C library, too.
func IsLinker(file string) bool {
	name := path.Base(file)
	return strings.HasPrefix(name, "ld-linux") || strings.HasPrefix(name, "ld-2.")
}
