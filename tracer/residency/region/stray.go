package region

import (
	"math/bits"
	"slices"
)

const maxStrayPeeks = 1 << 16

// strayArenas finds arenas of Python at whose start nothing is known to begin: one address in each 256 KiB, which lies in a pool
// of any arena there that is full enough, is looked at; less often where there are more than 16 GiB.
func (f *finder) strayArenas() []Region {
	var total uint64
	for _, s := range f.open {
		total += s.end - s.start
	}
	stride := pymallocs[1].arena // the smallest
	for total/stride > maxStrayPeeks {
		stride *= 2
	}
	var addresses []uint64
	for _, s := range f.open {
		for at := alignUp(s.start, stride); at >= s.start && at < s.end && len(addresses) < 2*maxStrayPeeks; at += stride {
			addresses = append(addresses, at)
		}
	}
	var pools []pool
	for i, header := range f.peek(addresses, poolHeader) {
		for _, layout := range pymallocs {
			if index, ok := layout.arenaOf(addresses[i], header); ok {
				pools = append(pools, pool{pymalloc: layout, first: addresses[i], index: index})
			}
		}
	}
	f.descend(pools)
	var found []Region
	for _, p := range f.confirm(f.bound(pools)) {
		found = append(found, p.region())
	}
	return found
}

// descend moves each pool to the first one of its arena, by halves: all pools before it have been in use.
func (f *finder) descend(pools []pool) {
	addresses := make([]uint64, len(pools))
	for half := uint64(1) << (bits.Len64(pymallocs[0].arena/pymallocs[0].pool) - 2); half > 0; half /= 2 {
		for i, p := range pools {
			addresses[i] = p.first - half*p.pool
		}
		for i, header := range f.peekOpen(addresses, poolHeader) {
			if pools[i].holds(addresses[i], header) {
				pools[i].first = addresses[i]
			}
		}
	}
}

// bound gives each arena the bounds that its pools tell, once each. One that is not aligned to pools has one pool less, and
// begins and ends somewhere in a pool's size around the others: then what is sure is taken, unless what is mapped ends there.
func (f *finder) bound(pools []pool) []pool {
	pools = slices.CompactFunc(pools, func(a, b pool) bool { return a.first == b.first && a.pymalloc == b.pymalloc })
	addresses := make([]uint64, len(pools))
	for i, p := range pools {
		addresses[i] = p.first + p.arena - p.pool
	}
	bounded := pools[:0]
	for i, header := range f.peekOpen(addresses, poolHeader) {
		p := pools[i]
		p.room, _ = holding(f.open, p.first)
		p.span = span{p.first, p.first + p.arena}
		switch {
		case p.room.end-p.first < p.arena:
			p.end = p.room.end
			p.start = max(p.room.start, p.end-p.arena)
		case !p.holds(addresses[i], header) && !isUnused(header):
			p.end -= p.pool
		}
		if p.end-p.first >= p.arena-p.pool {
			bounded = append(bounded, p)
		}
	}
	for i := len(bounded) - 2; i >= 0; i-- { // those that follow each other without a gap are alike
		p, next := &bounded[i], bounded[i+1]
		if p.first+p.arena == next.first && p.pymalloc == next.pymalloc {
			p.start, p.end = max(p.room.start, next.start-p.arena), next.end-p.arena
		}
	}
	return bounded
}
