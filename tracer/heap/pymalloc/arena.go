package pymalloc

import (
	"bytes"
	"math/bits"
	"slices"

	"github.com/allocscope/allocscope/tracer/mem"
)

// version has the sizes that differ between versions: POOL_SIZE and ARENA_SIZE in bytes.
type version struct{ poolSize, arenaSize uint64 }

// versions are the sizes since 3.10, and before.
var versions = [...]version{{MaxPoolSize, 1 << 20}, {4 << 10, 256 << 10}}

const (
	addressBits = 56
	noArena     = ^uint32(0)
)

// arenaIndex returns the arenaindex of the pool at an address. It returns false if the header
// cannot be a pool_header.
func (v version) arenaIndex(address uint64, content []byte) (uint32, bool) {
	if len(content) < HeaderSize || address%v.poolSize != 0 {
		return 0, false
	}

	h := parseHeader(content)
	block := h.blockSize
	if block > MaxBlockSize || h.maxnextoffset != v.poolSize-block ||
		h.nextoffset < HeaderSize+block || h.nextoffset > v.poolSize+block ||
		(h.nextoffset-HeaderSize)%block != 0 ||
		h.count > (v.poolSize-HeaderSize)/block || h.arenaindex == noArena {
		return 0, false
	}

	freeOffset := h.freeblock - address
	isBlock := freeOffset >= HeaderSize && freeOffset <= h.maxnextoffset &&
		(freeOffset-HeaderSize)%block == 0
	return h.arenaindex, (h.freeblock == 0 || isBlock) &&
		h.nextpool>>addressBits == 0 && h.prevpool>>addressBits == 0
}

// IsPool reports whether memory begins with the header of a pool of a size.
func IsPool(address uint64, content []byte, poolSize uint64) bool {
	i := slices.IndexFunc(versions[:], func(v version) bool { return v.poolSize == poolSize })
	if i < 0 {
		return false
	}
	_, ok := versions[i].arenaIndex(address, content)
	return ok
}

// Memory is where arenas are searched.
type Memory struct {
	// Free is the writable memory that is free for arenas.
	Free mem.Spans
	// Peek reads some bytes at each address, and returns nil for memory that it cannot read.
	Peek func(addresses []uint64, size int) [][]byte
}

// peekFree is Peek for addresses anywhere. It returns nil outside of free memory.
func (m Memory) peekFree(addresses []uint64, size int) [][]byte {
	inside := make([]uint64, 0, len(addresses))
	indices := make([]int, 0, len(addresses))
	for i, address := range addresses {
		area, ok := m.Free.Find(address)
		if ok && area.End-address >= uint64(size) {
			inside, indices = append(inside, address), append(indices, i)
		}
	}

	contents := make([][]byte, len(addresses))
	for i, content := range m.Peek(inside, size) {
		contents[indices[i]] = content
	}
	return contents
}

// An Arena is memory that may be an arena.
type Arena struct {
	mem.Span
	// Area is the memory that is free for it and for the arenas after it.
	Area mem.Span

	version
	firstPool uint64 // its address
	index     uint32 // arenaindex of the pools
}

// hasPool reports whether a header is of a pool of this arena.
func (a Arena) hasPool(address uint64, header []byte) bool {
	index, ok := a.arenaIndex(address, header)
	return ok && index == a.index
}

// isUnusedPool reports whether a header may be of a pool that was never used, or was not read.
func isUnusedPool(header []byte) bool { return bytes.Count(header, []byte{0}) == len(header) }

// ArenasAt finds the arenas that begin where some spans do, and end in them.
func (m Memory) ArenasAt(spans []mem.Span) []Arena {
	var candidates []Arena
	var addresses []uint64
	for _, s := range spans {
		for _, v := range versions {
			if v.arenaSize <= s.Len() {
				firstPool := mem.AlignUp(s.Start, v.poolSize)
				addresses = append(addresses, firstPool)
				candidates = append(candidates, Arena{
					version:   v,
					Span:      mem.Span{Start: s.Start, End: s.Start + v.arenaSize},
					firstPool: firstPool,
					Area:      s,
				})
			}
		}
	}

	plausible := candidates[:0]
	for i, header := range m.Peek(addresses, HeaderSize) {
		a, ok := candidates[i], false
		if a.index, ok = a.arenaIndex(a.firstPool, header); ok {
			plausible = append(plausible, a)
		}
	}
	return m.confirm(plausible)
}

// confirm reads some more pools of each arena. It returns the arenas whose pools all belong to the
// arena, were never used, or cannot be read.
func (m Memory) confirm(candidates []Arena) []Arena {
	const poolsPerArena = 6 // that are read
	var addresses []uint64
	for _, a := range candidates {
		count := (a.End - a.firstPool) / a.poolSize
		for _, i := range [poolsPerArena]uint64{1, 2, 3, count / 4, count / 2, count - 1} {
			addresses = append(addresses, a.firstPool+i*a.poolSize)
		}
	}

	headers := m.peekFree(addresses, HeaderSize)
	var confirmed []Arena
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

// Scan finds arenas at whose start no mapping is known to begin. It reads one address in
// each 256 KiB, which lies in a pool of any arena there that is full enough, and fewer in more
// than 16 GiB.
func (m Memory) Scan() []Arena {
	smallest := versions[1].arenaSize
	stride := smallest
	for m.Free.Len()/stride > maxScanPeeks {
		stride *= 2
	}

	var addresses []uint64
	for _, s := range m.Free {
		for address := mem.AlignUp(s.Start, stride); address >= s.Start && address < s.End &&
			len(addresses) < 2*maxScanPeeks; address += stride {
			addresses = append(addresses, address)
		}
	}

	var candidates []Arena
	for i, header := range m.Peek(addresses, HeaderSize) {
		for _, v := range versions {
			if index, ok := v.arenaIndex(addresses[i], header); ok {
				a := Arena{version: v, firstPool: addresses[i], index: index}
				candidates = append(candidates, a)
			}
		}
	}

	m.findFirstPools(candidates)
	return m.confirm(m.withBounds(candidates))
}

// findFirstPools moves firstPool from any pool of an arena to its first one, by binary search: all
// pools before a used one have been used.
func (m Memory) findFirstPools(candidates []Arena) {
	addresses := make([]uint64, len(candidates))
	maxPools := versions[0].arenaSize / versions[0].poolSize

	for half := uint64(1) << (bits.Len64(maxPools) - 2); half > 0; half /= 2 {
		for i, a := range candidates {
			addresses[i] = a.firstPool - half*a.poolSize
		}
		for i, header := range m.peekFree(addresses, HeaderSize) {
			if candidates[i].hasPool(addresses[i], header) {
				candidates[i].firstPool = addresses[i]
			}
		}
	}
}

// withBounds returns each arena once, with the bounds that follow from its pools.
//
// An arena that is not aligned to its pools has one pool less, and its bounds lie up to a pool's
// size around them. withBounds then takes the certain part, unless the area ends there.
func (m Memory) withBounds(candidates []Arena) []Arena {
	candidates = slices.CompactFunc(candidates, func(a, b Arena) bool {
		return a.firstPool == b.firstPool && a.version == b.version
	})
	lastPools := make([]uint64, len(candidates))
	for i, a := range candidates {
		lastPools[i] = a.firstPool + a.arenaSize - a.poolSize
	}

	bounded := candidates[:0]
	for i, header := range m.peekFree(lastPools, HeaderSize) {
		a := candidates[i]
		a.Area, _ = m.Free.Find(a.firstPool)
		a.Span = mem.Span{Start: a.firstPool, End: a.firstPool + a.arenaSize}

		switch {
		case a.Area.End-a.firstPool < a.arenaSize:
			a.End = a.Area.End
			a.Start = max(a.Area.Start, a.End-a.arenaSize)
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
func alignNeighbors(arenas []Arena) {
	for i := len(arenas) - 2; i >= 0; i-- {
		a, next := &arenas[i], arenas[i+1]
		if a.firstPool+a.arenaSize == next.firstPool && a.version == next.version {
			a.Start = max(a.Area.Start, next.Start-a.arenaSize)
			a.End = next.End - a.arenaSize
		}
	}
}
