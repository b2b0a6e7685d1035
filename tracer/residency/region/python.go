package region

import (
	"bytes"
	"encoding/binary"
)

// Python's allocator cuts arenas into pools, aligned to their size, and each pool into blocks of one size, a multiple of 16
// bytes. A pool begins with a header of 48 bytes (Objects/obmalloc.c): the blocks in use, the first free block, two links, the
// index of its arena, the size class, and two offsets: of the next block never used, and of the last block that fits. Pools are
// taken from the start of an arena on; those never used are all zero.
type pymalloc struct{ pool, arena uint64 }

// Since 3.10, and before.
var pymallocs = [...]pymalloc{{16 << 10, 1 << 20}, {4 << 10, 256 << 10}}

const (
	poolHeader  = 48
	maxBlock    = 512 // bytes
	addressBits = 56
	noArena     = ^uint32(0)
)

// arenaOf gives the index of the arena that a pool at an address belongs to; false if its header cannot be one.
func (p pymalloc) arenaOf(address uint64, header []byte) (uint32, bool) {
	if len(header) < poolHeader || address%p.pool != 0 {
		return 0, false
	}
	field := func(offset int) uint64 { return uint64(binary.LittleEndian.Uint32(header[offset:])) }
	used, free := field(0), word(header, 8)
	index, class, next, last := uint32(field(32)), field(36), field(40), field(44)
	block := (class + 1) * 16
	if block > maxBlock || last != p.pool-block || next < poolHeader+block || next > p.pool+block ||
		(next-poolHeader)%block != 0 || used > (p.pool-poolHeader)/block || index == noArena {
		return 0, false
	}
	inPool := free-address >= poolHeader && free-address <= last && (free-address-poolHeader)%block == 0
	return index, (free == 0 || inPool) && word(header, 16)>>addressBits == 0 && word(header, 24)>>addressBits == 0
}

// A pool is the first one of what may be an arena between start and end.
type pool struct {
	pymalloc
	span
	first uint64 // its address
	index uint32 // of the arena
	room  span   // that the arena lies in
}

func (p pool) region() Region {
	return Region{Start: p.start, End: p.end, Class: Python, Name: string(Python), Private: true}
}

// arenasAt finds the arenas that begin at some of the links.
func (f *finder) arenasAt(links []link) []pool {
	var pools []pool
	var addresses []uint64
	for _, l := range links {
		for _, layout := range pymallocs {
			if layout.arena <= l.end-l.at {
				p := pool{pymalloc: layout, span: span{l.at, l.at + layout.arena}, first: alignUp(l.at, layout.pool), room: span{l.at, l.end}}
				pools, addresses = append(pools, p), append(addresses, p.first)
			}
		}
	}
	sane := pools[:0]
	for i, header := range f.peek(addresses, poolHeader) {
		p, ok := pools[i], false
		if p.index, ok = p.arenaOf(p.first, header); ok {
			sane = append(sane, p)
		}
	}
	return f.confirm(sane)
}

// peekOpen is peek for addresses that may lie anywhere.
func (f *finder) peekOpen(addresses []uint64, size int) [][]byte {
	inside := make([]uint64, 0, len(addresses))
	places := make([]int, 0, len(addresses))
	for i, address := range addresses {
		if room, ok := holding(f.open, address); ok && room.end-address >= uint64(size) {
			inside, places = append(inside, address), append(places, i)
		}
	}
	contents := make([][]byte, len(addresses))
	for i, content := range f.peek(inside, size) {
		contents[places[i]] = content
	}
	return contents
}

// confirm looks at more pools of each arena: all that can be read must be of it, or never used.
func (f *finder) confirm(pools []pool) []pool {
	const looks = 6
	var addresses []uint64
	for _, p := range pools {
		count := (p.end - p.first) / p.pool
		for _, i := range [looks]uint64{1, 2, 3, count / 4, count / 2, count - 1} {
			addresses = append(addresses, p.first+i*p.pool)
		}
	}
	headers := f.peekOpen(addresses, poolHeader)
	var found []pool
	for i, p := range pools {
		sane := true
		for k := i * looks; k < (i+1)*looks; k++ {
			sane = sane && (p.holds(addresses[k], headers[k]) || isUnused(headers[k]))
		}
		if sane {
			found = append(found, p)
		}
	}
	return found
}

// holds reports whether a header is of a pool of the same arena.
func (p pool) holds(address uint64, header []byte) bool {
	index, ok := p.arenaOf(address, header)
	return ok && index == p.index
}

// isUnused reports whether a header can be that of a pool that was never used.
func isUnused(header []byte) bool { return bytes.Count(header, []byte{0}) == len(header) }
