package region

import (
	"encoding/binary"
	"os"
	"slices"

	"github.com/allocscope/allocscope/tracer/process"
)

// pageSize of this machine, in bytes: the processes looked at run on it.
var pageSize = uint64(os.Getpagesize())

// maxPeeks bounds how many headers one call reads.
const maxPeeks = 1 << 18

// A finder looks for what lies in the private anonymous memory of a process. Each list of spans is sorted and disjoint.
type finder struct {
	memory Memory
	peeks  int // left
	// areas are stretches without a gap, whatever their protection; writable those parts that can be read and written.
	areas, writable []span
	// free and open are what is not taken yet of areas and writable.
	free, open []span
	// found is sorted and disjoint, each within one area.
	found []Region
}

// A span bounds addresses, end excluded.
type span struct{ start, end uint64 }

func newFinder(maps []process.Mapping, memory Memory) *finder {
	f := &finder{memory: memory, peeks: maxPeeks}
	for _, m := range maps {
		if !isSearched(m) || (m.Start|m.End)%pageSize != 0 {
			continue
		}
		f.areas = extend(f.areas, m)
		if m.Read && m.Write {
			f.writable = extend(f.writable, m)
		}
	}
	f.free, f.open = f.areas, f.writable
	return f
}

// extend adds a mapping to spans. What is not in order is left out.
func extend(spans []span, m process.Mapping) []span {
	n := len(spans)
	switch {
	case m.Start >= m.End, n > 0 && m.Start < spans[n-1].end:
	case n > 0 && m.Start == spans[n-1].end:
		spans[n-1].end = m.End
	default:
		spans = append(spans, span{m.Start, m.End})
	}
	return spans
}

// begins gives where mappings begin that may hold what is looked for: those of the maps and those known otherwise.
func (f *finder) begins(maps []process.Mapping, starts []uint64) []uint64 {
	var begins []uint64
	add := func(address uint64) {
		if _, ok := holding(f.writable, address); ok && address%pageSize == 0 {
			begins = append(begins, address)
		}
	}
	for _, m := range maps {
		add(m.Start)
	}
	for _, s := range starts {
		add(s)
	}
	slices.Sort(begins)
	return slices.Compact(begins)
}

// holding gives the span that an address lies in.
func holding(spans []span, address uint64) (span, bool) {
	i, _ := slices.BinarySearchFunc(spans, address, func(s span, address uint64) int {
		if s.end <= address {
			return -1
		}
		return 1
	})
	if i == len(spans) || address < spans[i].start {
		return span{}, false
	}
	return spans[i], true
}

// less gives spans without the regions.
func less(spans []span, regions []Region) []span {
	rest := make([]span, 0, len(spans)+len(regions))
	next := 0
	for _, s := range spans {
		for next < len(regions) && regions[next].End <= s.start {
			next++
		}
		for i := next; i < len(regions) && regions[i].Start < s.end; i++ {
			if s.start < regions[i].Start {
				rest = append(rest, span{s.start, regions[i].Start})
			}
			s.start = max(s.start, regions[i].End)
		}
		if s.start < s.end {
			rest = append(rest, s)
		}
	}
	return rest
}

// peek reads size bytes at each address, which lie in one page; nil for what is not in memory, or too much.
func (f *finder) peek(addresses []uint64, size int) [][]byte {
	contents := make([][]byte, len(addresses))
	var wanted []uint64
	var places []int
	for i, address := range addresses {
		if len(wanted) < f.peeks && f.memory.Resident(address) {
			wanted, places = append(wanted, address), append(places, i)
		}
	}
	if len(wanted) == 0 {
		return contents
	}
	f.peeks -= len(wanted)
	for i, content := range f.memory.Peek(wanted, size) {
		if i < len(places) && len(content) == size {
			contents[places[i]] = content
		}
	}
	return contents
}

// word is the one at a byte offset of what was peeked.
func word(content []byte, offset int) uint64 { return binary.LittleEndian.Uint64(content[offset:]) }

// alignUp gives the first multiple of a power of two at or after an address; 0 if there is none.
func alignUp(address, size uint64) uint64 { return (address + size - 1) &^ (size - 1) }
