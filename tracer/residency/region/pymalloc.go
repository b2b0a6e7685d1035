package region

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"slices"

	"github.com/allocscope/allocscope/tracer/mem"
)

// pymalloc is a version of CPython's allocator of small objects. It cuts arenas into pools,
// aligned to their size, and each pool into blocks of one size. It takes the pools of an arena
// from the start on; those that it has never used are all zero.
//
// https://github.com/python/cpython/blob/3.12/Include/internal/pycore_obmalloc.h
type pymalloc struct{ poolSize, arenaSize uint64 } // POOL_SIZE and ARENA_SIZE in bytes

// pymallocs are the versions since 3.10 and before.
var pymallocs = [...]pymalloc{{16 << 10, 1 << 20}, {4 << 10, 256 << 10}}

const (
	poolHeaderSize = 48 // bytes: POOL_OVERHEAD
	blockAlignment = 16 // bytes: ALIGNMENT
	maxBlockSize   = 512
	addressBits    = 56
	noArena        = ^uint32(0)
)

// arenaIndex returns the arenaindex of the pool at an address. It returns false if the header
// cannot be a pool_header.
func (p pymalloc) arenaIndex(address uint64, header []byte) (uint32, bool) {
	if len(header) < poolHeaderSize || address%p.poolSize != 0 {
		return 0, false
	}

	field := func(offset int) uint64 { return uint64(binary.LittleEndian.Uint32(header[offset:])) }
	count, freeblock := field(0), mem.Word(header, 8) // blocks in use, the first free block
	nextpool, prevpool := mem.Word(header, 16), mem.Word(header, 24)
	arenaindex, szidx := uint32(field(32)), field(36)
	nextoffset, maxnextoffset := field(40), field(44) // of the next unused block, of the last one

	block := (szidx + 1) * blockAlignment
	if block > maxBlockSize || maxnextoffset != p.poolSize-block ||
		nextoffset < poolHeaderSize+block || nextoffset > p.poolSize+block ||
		(nextoffset-poolHeaderSize)%block != 0 ||
		count > (p.poolSize-poolHeaderSize)/block || arenaindex == noArena {
		return 0, false
	}

	freeOffset := freeblock - address
	isBlock := freeOffset >= poolHeaderSize && freeOffset <= maxnextoffset &&
		(freeOffset-poolHeaderSize)%block == 0
	return arenaindex, (freeblock == 0 || isBlock) &&
		nextpool>>addressBits == 0 && prevpool>>addressBits == 0
}

// pymallocArena is what may be an arena.
type pymallocArena struct {
	pymalloc
	mem.Span
	firstPool uint64 // its address
	index     uint32 // arenaindex of the pools
	area      mem.Span
}

func (a pymallocArena) region() Region { return anonymousRegion(PythonArena, a.Start, a.End) }

// hasPool reports whether a header is of a pool of this arena.
func (a pymallocArena) hasPool(address uint64, header []byte) bool {
	index, ok := a.arenaIndex(address, header)
	return ok && index == a.index
}

// isUnusedPool reports whether a header may be of a pool that was never used, or was not read.
func isUnusedPool(header []byte) bool { return bytes.Count(header, []byte{0}) == len(header) }

// arenasAt finds the arenas that begin at some of the steps of a walk.
func (f *finder) arenasAt(steps []step) []pymallocArena {
	var candidates []pymallocArena
	var addresses []uint64
	for _, s := range steps {
		for _, p := range pymallocs {
			if p.arenaSize <= s.end-s.address {
				firstPool := mem.AlignUp(s.address, p.poolSize)
				addresses = append(addresses, firstPool)
				candidates = append(candidates, pymallocArena{
					pymalloc:  p,
					Span:      mem.Span{Start: s.address, End: s.address + p.arenaSize},
					firstPool: firstPool,
					area:      mem.Span{Start: s.address, End: s.end},
				})
			}
		}
	}

	plausible := candidates[:0]
	for i, header := range f.peek(addresses, poolHeaderSize) {
		a, ok := candidates[i], false
		if a.index, ok = a.arenaIndex(a.firstPool, header); ok {
			plausible = append(plausible, a)
		}
	}
	return f.confirm(plausible)
}

// confirm returns the arenas of which all of some more pools belong to the arena, were never
// used, or cannot be read.
func (f *finder) confirm(candidates []pymallocArena) []pymallocArena {
	const poolsPerArena = 6 // that are read
	var addresses []uint64
	for _, a := range candidates {
		count := (a.End - a.firstPool) / a.poolSize
		for _, i := range [poolsPerArena]uint64{1, 2, 3, count / 4, count / 2, count - 1} {
			addresses = append(addresses, a.firstPool+i*a.poolSize)
		}
	}

	headers := f.peekFree(addresses, poolHeaderSize)
	var confirmed []pymallocArena
	for i, a := range candidates {
		agree := true
		for k := i * poolsPerArena; k < (i+1)*poolsPerArena; k++ {
			agree = agree && (a.hasPool(addresses[k], headers[k]) || isUnusedPool(headers[k]))
		}
		if agree {
			confirmed = append(confirmed, a)
		}
	}
	return confirmed
}

const maxScanPeeks = 1 << 16

// scanForArenas finds arenas at whose start no mapping is known to begin. It reads one address in
// each 256 KiB, which lies in a pool of any arena there that is full enough, and fewer in more
// than 16 GiB.
func (f *finder) scanForArenas() []Region {
	smallest := pymallocs[1].arenaSize
	stride := smallest
	for f.freeWritable.Len()/stride > maxScanPeeks {
		stride *= 2
	}

	var addresses []uint64
	for _, s := range f.freeWritable {
		for address := mem.AlignUp(s.Start, stride); address >= s.Start && address < s.End &&
			len(addresses) < 2*maxScanPeeks; address += stride {
			addresses = append(addresses, address)
		}
	}

	var candidates []pymallocArena
	for i, header := range f.peek(addresses, poolHeaderSize) {
		for _, p := range pymallocs {
			if index, ok := p.arenaIndex(addresses[i], header); ok {
				a := pymallocArena{pymalloc: p, firstPool: addresses[i], index: index}
				candidates = append(candidates, a)
			}
		}
	}

	f.findFirstPools(candidates)
	var found []Region
	for _, a := range f.confirm(f.withBounds(candidates)) {
		found = append(found, a.region())
	}
	return found
}

// findFirstPools moves firstPool from any pool of an arena to its first one, by binary search: all
// pools before a used one have been used.
func (f *finder) findFirstPools(candidates []pymallocArena) {
	addresses := make([]uint64, len(candidates))
	maxPools := pymallocs[0].arenaSize / pymallocs[0].poolSize

	for half := uint64(1) << (bits.Len64(maxPools) - 2); half > 0; half /= 2 {
		for i, a := range candidates {
			addresses[i] = a.firstPool - half*a.poolSize
		}
		for i, header := range f.peekFree(addresses, poolHeaderSize) {
			if candidates[i].hasPool(addresses[i], header) {
				candidates[i].firstPool = addresses[i]
			}
		}
	}
}

// withBounds returns each arena once, with the bounds that follow from its pools.
//
// An arena that is not aligned to its pools has one pool less, and its bounds lie up to a pool's
// size around them. withBounds then takes what is certain, unless the area ends there.
func (f *finder) withBounds(candidates []pymallocArena) []pymallocArena {
	candidates = slices.CompactFunc(candidates, func(a, b pymallocArena) bool {
		return a.firstPool == b.firstPool && a.pymalloc == b.pymalloc
	})
	lastPools := make([]uint64, len(candidates))
	for i, a := range candidates {
		lastPools[i] = a.firstPool + a.arenaSize - a.poolSize
	}

	bounded := candidates[:0]
	for i, header := range f.peekFree(lastPools, poolHeaderSize) {
		a := candidates[i]
		a.area, _ = f.freeWritable.Find(a.firstPool)
		a.Span = mem.Span{Start: a.firstPool, End: a.firstPool + a.arenaSize}

		switch {
		case a.area.End-a.firstPool < a.arenaSize:
			a.End = a.area.End
			a.Start = max(a.area.Start, a.End-a.arenaSize)
		case !a.hasPool(lastPools[i], header) && !isUnusedPool(header):
			a.End -= a.poolSize
		}

		if a.End-a.firstPool >= a.arenaSize-a.poolSize {
			bounded = append(bounded, a)
		}
	}

	alignNeighbors(bounded)
	return bounded
}

// alignNeighbors gives adjacent arenas the same alignment, from the last one down, whose bounds
// may be known by the end of the area.
func alignNeighbors(arenas []pymallocArena) {
	for i := len(arenas) - 2; i >= 0; i-- {
		a, next := &arenas[i], arenas[i+1]
		if a.firstPool+a.arenaSize == next.firstPool && a.pymalloc == next.pymalloc {
			a.Start = max(a.area.Start, next.Start-a.arenaSize)
			a.End = next.End - a.arenaSize
		}
	}
}
