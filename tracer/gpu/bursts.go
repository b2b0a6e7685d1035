package gpu

import (
	"cmp"
	"slices"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/mem"
)

// Bursts are the times in which PyTorch's blocks were sampled, in order, in ns, CLOCK_MONOTONIC.
// Until the first pause there is one, and all blocks are known.
//
// Frees between bursts are not seen. A temporary that was in use when a burst ended has come
// back since, and its address may be another block's. So a sampled block counts only if it has
// outlived settledShare of a burst's length before that burst ended, and only once it has
// outlived the whole length within bursts. The blocks of a pause are estimated by the blocks
// that count of the last length before it.
type Bursts struct{ list []burst }

// A burst is a time in which blocks were sampled, in ns. The first one may be longer than its
// length.
type burst struct{ from, to, length uint64 } // to 0: it is open

const (
	// settledShare of a burst is longer than the temporaries of a step of training live.
	settledShare = 1. / 4
	// maxFactor bounds the number of blocks that one represents.
	maxFactor = 1000
)

// settling is the age from which a block counts that was in use when the burst ended.
func (b *burst) settling() uint64 { return uint64(settledShare * float64(b.length)) }

// Open begins a burst, unless one is open.
func (b *Bursts) Open(now uint64) {
	if n := len(b.list); n == 0 || b.list[n-1].to != 0 {
		b.list = append(b.list, burst{from: now})
	}
}

// Close ends the burst that is open. Bursts have this length from now on, at least.
func (b *Bursts) Close(now uint64, length time.Duration) {
	if n := len(b.list); n > 0 && b.list[n-1].to == 0 {
		last := &b.list[n-1]
		last.to, last.length = max(now, last.from+1), uint64(max(length, 1))
	}
}

// HaveGapSince reports whether a burst has ended since a moment.
func (b *Bursts) HaveGapSince(moment uint64) bool {
	for _, of := range slices.Backward(b.list) {
		if of.to != 0 {
			return of.to > moment
		}
	}
	return false
}

// LastFactor returns the time from the beginning of the last burst that has ended to the one after
// it, by the burst's length; 1 without such.
func (b *Bursts) LastFactor() float64 {
	n := len(b.list)
	if n < 2 {
		return 1
	}
	last := b.list[n-2]
	return min(float64(b.list[n-1].from-last.from)/float64(last.to-last.from), maxFactor)
}

// estimate returns when a block begins to count that was born at a moment, in a process that is
// traced since another, and the number of blocks that it then represents by now. False: it never
// counts.
func (b *Bursts) estimate(born, since, now uint64) (from uint64, factor float64, ok bool) {
	i, isFound := slices.BinarySearchFunc(b.list, born,
		func(of burst, born uint64) int { return cmp.Compare(of.from, born) })
	if !isFound {
		i--
	}

	switch {
	case i < 0, i == 0 && b.list[0].to == 0:
		return born, 1, true
	case b.list[i].to == 0:
		return born + b.list[i-1].length, 1, true
	case born+b.list[i].settling() > b.list[i].to: // it may be a temporary
		return 0, 0, false
	}

	of, next := b.list[i], now
	if i+1 < len(b.list) {
		next = b.list[i+1].from
	}

	switch {
	case born+of.length > of.to:
		from = next + of.length - (of.to - born)
	case i > 0:
		from = born + of.length
	default: // as before the first pause
		from = born
	}
	return from, of.factor(born, since, next), true
}

// factor returns the number of blocks that one represents which was born in the burst and
// counts. next is when the next burst begins.
func (b *burst) factor(born, since, next uint64) float64 {
	from := max(b.from, since, b.to-min(b.to, b.length))
	if born < from {
		return 1
	}

	counted := b.to - b.settling() - from
	return min(float64(max(next, b.to)-from)/float64(max(counted, 1)), maxFactor)
}

// A List has the blocks in use of one process, as its caching allocator lists them.
type List struct {
	at         uint64            // when reading it began, in ns
	sizes      map[uint64]uint64 // in bytes, of blocks in use by address
	segments   []mem.Span        // in order
	isComplete bool              // no segment has changed meanwhile
}

// Lists are the lists of processes by PID.
type Lists map[uint32]*List

// NewList makes a list of a cache that was read from a moment on, in ns, CLOCK_MONOTONIC.
func NewList(cache *growth.GPUCache, at uint64) *List {
	l := &List{at: at, sizes: make(map[uint64]uint64), isComplete: cache.Changed == 0}
	for i := range cache.Segments {
		s := &cache.Segments[i]
		l.segments = append(l.segments, mem.Span{Start: s.Address, End: s.Address + uint64(s.Size)})
		for j := range s.Blocks {
			if b := &s.Blocks[j]; b.State == growth.GPUBlockAllocated {
				l.sizes[b.Address] = uint64(b.Size)
			}
		}
	}

	slices.SortFunc(l.segments, func(a, b mem.Span) int { return cmp.Compare(a.Start, b.Start) })
	return l
}

// A listing is the state of a block by a list.
type listing int

const (
	listingUnknown listing = iota
	listingInUse
	listingAbsent  // it has no segment at the address
	listingRefuted // its segment there has no such block in use
)

// find returns the state of a block. Without a list it is unknown.
func (l *List) find(address, size, born uint64) listing {
	if l == nil || born >= l.at {
		return listingUnknown
	}
	if l.sizes[address] == size {
		return listingInUse
	}

	i, isStart := slices.BinarySearchFunc(l.segments, address,
		func(s mem.Span, address uint64) int { return cmp.Compare(s.Start, address) })
	switch {
	case isStart, i > 0 && address < l.segments[i-1].End:
		return listingRefuted
	case l.isComplete:
		return listingAbsent
	}
	return listingUnknown
}

// Evidence is which sampled blocks are alive, and how many each represents.
type Evidence struct {
	Bursts *Bursts
	Lists  Lists             // read before the blocks
	Now    uint64            // ns, CLOCK_MONOTONIC
	Since  map[uint32]uint64 // when tracing of each process started, in ns, by PID
}

// of returns when a sampled block begins to count and its factor; false: it does not count.
// isRefuted: it is no longer in use.
func (e *Evidence) of(tgid uint32, address, size, born uint64) (
	from uint64, factor float64, isRefuted, ok bool,
) {
	if !e.Bursts.HaveGapSince(0) {
		return born, 1, false, true
	}

	found := e.Lists[tgid].find(address, size, born)
	from, factor, ok = e.Bursts.estimate(born, e.Since[tgid], e.Now)
	return from, factor, found == listingRefuted, ok && found != listingRefuted && found != listingAbsent
}
