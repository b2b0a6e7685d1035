package caching

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/mem"
)

// A chain is the blocks of one segment, in order.
type chain []*block

// maxReadings of a segment that changes while it is read.
const maxReadings = 3

// cache makes segments of the blocks.
func (r *Reader) cache() (*growth.GPUCache, error) {
	c := &growth.GPUCache{}
	for _, head := range r.heads() {
		blocks, isWhole, err := r.chainFrom(head)
		if err != nil {
			return nil, err
		}
		if !isWhole {
			c.Changed++
			continue
		}
		c.Segments = append(c.Segments, r.segments(blocks)...)
	}

	c.Segments = withoutOverlaps(c.Segments)
	c.Sums = c.Sum()
	var err error
	c.Stats, err = r.stats(c)
	return c, err
}

// heads returns the first blocks of segments, by address.
func (r *Reader) heads() []*block {
	var heads []*block
	for _, b := range r.blocks {
		if b.prev == 0 && r.pools[b.pool] != nil {
			heads = append(heads, b)
		}
	}

	slices.SortFunc(heads, func(a, b *block) int {
		return cmp.Or(cmp.Compare(a.address, b.address), cmp.Compare(a.self, b.self))
	})
	return heads
}

// chainFrom returns the blocks that follow a head, and whether they adjoin each other. It reads them
// again where they do not.
func (r *Reader) chainFrom(head *block) (blocks chain, isWhole bool, err error) {
	for reading := range maxReadings {
		if reading > 0 {
			if err := r.readAgain(head.self); err != nil {
				return nil, false, err
			}
		}
		if blocks, isWhole = r.walk(head.self); isWhole {
			return blocks, true, nil
		}
	}

	return nil, false, nil
}

// walk follows the links of known blocks.
func (r *Reader) walk(self uint64) (blocks chain, isWhole bool) {
	var last *block
	for self != 0 {
		b := r.blocks[self]
		if b == nil || len(blocks) > len(r.blocks) {
			return nil, false
		}
		switch {
		case last == nil && b.prev != 0:
			return nil, false
		case last == nil:
		case b.prev != last.self, b.address != last.address+last.size, b.pool != last.pool,
			b.device != last.device:
			return nil, false
		}
		blocks = append(blocks, b)
		last, self = b, b.next
	}

	return blocks, len(blocks) > 0
}

// readAgain reads the blocks from one on, one after the other.
func (r *Reader) readAgain(self uint64) error {
	seen := make(map[uint64]bool)
	for self != 0 && !seen[self] && len(seen) < maxBlocks {
		seen[self] = true
		read, err := r.read([]uint64{self})
		if err != nil || len(read) == 0 {
			return err
		}
		r.blocks[self] = read[0]
		self = read[0].next
	}

	return nil
}

// segments returns the mapped parts of a chain: all of it, or parts of an expandable segment.
func (r *Reader) segments(blocks chain) (segments []growth.GPUSegment) {
	isUnmapped := func(b *block) bool { return !b.isMapped }
	isExpandable := slices.ContainsFunc(blocks, isUnmapped)
	for len(blocks) > 0 {
		if !blocks[0].isMapped {
			blocks = blocks[1:]
			continue
		}
		end := slices.IndexFunc(blocks, isUnmapped)
		if end < 0 {
			end = len(blocks)
		}
		segments = append(segments, r.segment(blocks[:end], isExpandable))
		blocks = blocks[end:]
	}

	return segments
}

func (r *Reader) segment(blocks chain, isExpandable bool) growth.GPUSegment {
	first := blocks[0]
	p := r.pools[first.pool]
	s := growth.GPUSegment{
		GPU: strconv.Itoa(int(first.device)), Address: first.address, Stream: first.stream,
		Pool: r.poolOf(p), Small: p.isSmall, Expandable: isExpandable,
		Blocks: make([]growth.GPUBlock, 0, len(blocks)),
	}

	for _, b := range blocks {
		s.Size += int64(b.size)
		g := growth.GPUBlock{Address: b.address, Size: int64(b.size), Requested: growth.Unknown}
		switch {
		case b.isAllocated:
			g.State, g.Requested = growth.GPUBlockAllocated, int64(b.requested)
		case b.hasEvents:
			g.State = growth.GPUBlockPending
		}
		s.Blocks = append(s.Blocks, g)
	}

	return s
}

// poolOf names a pool: the first number of a MempoolId_t is of a capture that has a pool of its own,
// the second one of torch.cuda.MemPool and graph_pool_handle().
// https://github.com/pytorch/pytorch/blob/main/c10/cuda/CUDACachingAllocator.cpp, MemPool::MemPool
func (r *Reader) poolOf(p *pool) growth.GPUPool {
	if p.owner == 0 {
		return growth.GPUPool{}
	}

	id := r.poolIDs[p.owner]
	if id[1] != 0 {
		return growth.GPUPool{Kind: growth.GPUPoolUser, ID: id}
	}

	return growth.GPUPool{Kind: growth.GPUPoolGraph, ID: id}
}

// withoutOverlaps sorts segments, and drops those that overlap an earlier one of the same GPU: no
// allocator has such.
func withoutOverlaps(segments []growth.GPUSegment) []growth.GPUSegment {
	slices.SortFunc(segments, func(a, b growth.GPUSegment) int {
		return cmp.Or(cmp.Compare(len(a.GPU), len(b.GPU)), cmp.Compare(a.GPU, b.GPU),
			cmp.Compare(a.Address, b.Address))
	})
	kept := segments[:0]
	for _, s := range segments {
		if n := len(kept); n > 0 && kept[n-1].GPU == s.GPU &&
			s.Address < kept[n-1].Address+uint64(kept[n-1].Size) {
			continue
		}
		kept = append(kept, s)
	}

	return kept
}

// Offsets in DeviceStats, from allocated_bytes on. A Stat is current, peak, allocated and freed; an
// array has one for all pools, for small blocks and for large ones.
// https://github.com/pytorch/pytorch/blob/main/c10/core/CachingDeviceAllocator.h
const (
	statArray    = 3 * 4 * 8
	statsScanned = 16 << 10 // bytes before the large pool of a GPU in which its counts are sought
	peakAt       = 8
)

// stats returns the counts of each GPU that agree with its segments.
func (r *Reader) stats(c *growth.GPUCache) (stats []growth.GPUCacheStats, err error) {
	for _, a := range r.poolAddresses() {
		p := r.pools[a]
		if p.owner != 0 || p.isSmall {
			continue
		}
		gpu := r.gpuOf(p)
		found, ok, err := r.statsBefore(p.self, gpu, c.Sums)
		if err != nil {
			return nil, err
		}
		if ok {
			stats = append(stats, found)
		}
	}

	slices.SortFunc(stats, func(a, b growth.GPUCacheStats) int { return cmp.Compare(a.GPU, b.GPU) })
	return stats, nil
}

// gpuOf returns the GPU of a default pool, by a block of it or of the pool beside it.
func (r *Reader) gpuOf(p *pool) string {
	for _, b := range r.blocks {
		if near := r.pools[b.pool]; near != nil && near.owner == 0 &&
			(near == p || near.self > p.self && near.self-p.self <= poolBytes+4*8) {
			return strconv.Itoa(int(b.device))
		}
	}

	return ""
}

// statsBefore seeks the counts before a large pool: reserved_bytes, and allocated_bytes before it.
func (r *Reader) statsBefore(
	large uint64, gpu string, sums []growth.GPUCacheSum,
) (growth.GPUCacheStats, bool, error) {
	var allocated, reserved uint64
	for _, s := range sums {
		if s.GPU == gpu {
			allocated += uint64(s.Allocated)
			reserved += uint64(s.Reserved)
		}
	}

	none := growth.GPUCacheStats{}
	if reserved == 0 || large < statsScanned {
		return none, false, nil
	}

	content, err := mem.ReadRange(r.memory, mem.Span{Start: large - statsScanned, End: large})
	if err != nil {
		return none, false, err
	}

	behind := 4 * statArray // reserved, active, inactive_split, requested
	if !r.layout.hasRequested {
		behind = 3 * statArray
	}

	for at := statArray; at+behind+16 <= len(content); at += 8 {
		if mem.Word(content, at) != reserved || mem.Word(content, at-statArray) != allocated {
			continue
		}
		s := growth.GPUCacheStats{
			GPU:           gpu,
			PeakAllocated: int64(mem.Word(content, at-statArray+peakAt)),
			PeakReserved:  int64(mem.Word(content, at+peakAt)),
			Retries:       int64(mem.Word(content, at+behind)),
			OOMs:          int64(mem.Word(content, at+behind+8)),
		}
		isPossible := s.PeakAllocated >= int64(allocated) && s.PeakReserved >= int64(reserved) &&
			s.PeakReserved < maxSize && s.Retries >= 0 && s.OOMs >= 0 && s.Retries < 1<<40
		if isPossible {
			return s, true, nil
		}
	}

	return none, false, nil
}
