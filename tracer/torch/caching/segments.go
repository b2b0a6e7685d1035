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

// Bounds of repairing a segment that changes while it is read.
const (
	maxReadings    = 12
	repairedBlocks = 64 // are read at a time
)

// cache makes segments of the blocks.
func (r *Reader) cache() (*growth.GPUCache, error) {
	c := &growth.GPUCache{}
	var broken []*block           // the first ones of segments that changed
	used := make(map[*block]bool) // heads
	for _, head := range r.heads() {
		if used[head] {
			continue
		}
		blocks, isWhole, err := r.chainFrom(head)
		if err != nil {
			return nil, err
		}
		if !isWhole || blocks[0] != head {
			broken = append(broken, head)
		}
		if !isWhole {
			continue
		}
		if !used[blocks[0]] {
			used[blocks[0]] = true
			c.Segments = append(c.Segments, r.segments(blocks)...)
		}
	}

	c.Segments = withoutOverlaps(c.Segments)
	c.Changed = missing(c.Segments, broken)
	c.Sums = c.Sum()
	var err error
	c.Stats, err = r.stats(c)
	return c, err
}

// missing returns how many blocks are in none of the segments, which are sorted.
func missing(segments []growth.GPUSegment, blocks []*block) (n int) {
	for _, b := range blocks {
		gpu := strconv.Itoa(int(b.device))
		i, _ := slices.BinarySearchFunc(segments, b.address, func(s growth.GPUSegment, a uint64) int {
			return cmp.Or(compareGPUs(s.GPU, gpu), cmp.Compare(s.Address+uint64(s.Size)-1, a))
		})
		if i == len(segments) || segments[i].GPU != gpu || segments[i].Address > b.address {
			n++
		}
	}

	return n
}

// compareGPUs orders GPUs by number.
func compareGPUs(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) }

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

// chainFrom returns the blocks of the segment of a block, from its first one on, and whether they
// adjoin each other. It reads some again where they do not.
func (r *Reader) chainFrom(b *block) (blocks chain, isWhole bool, err error) {
	for range maxReadings {
		if blocks, isWhole = r.walk(r.headOf(b)); isWhole {
			return blocks, true, nil
		}
		if !r.memory.canRepeat() {
			break
		}
		if b, err = r.readAgain(b, blocks); b == nil || err != nil {
			return nil, false, err
		}
	}

	return nil, false, nil
}

// headOf returns the first block of the segment of a block, by the links of known blocks. Another
// block is the first one once the first one is merged with the one behind it.
func (r *Reader) headOf(b *block) *block {
	for range r.blocks {
		if b.prev == 0 || !r.isLinked(b) {
			break
		}
		b = r.blocks[b.prev]
		r.memory.steps--
	}

	return b
}

// walk follows the links of known blocks from one on. It returns the blocks that adjoin each other,
// and whether they are all of the segment.
func (r *Reader) walk(b *block) (blocks chain, isWhole bool) {
	if b.prev != 0 || r.pools[b.pool] == nil {
		return nil, false
	}

	blocks = chain{b}
	for b.next != 0 {
		last := b
		b = r.blocks[last.next]
		r.memory.steps--
		if b == nil || b.prev != last.self || b.address != last.address+last.size ||
			b.pool != last.pool || b.device != last.device || b.stream != last.stream {
			return blocks, false
		}
		blocks = append(blocks, b)
	}

	return blocks, true
}

// readAgain reads the blocks around the place where the segment of a block breaks off, behind the
// blocks that adjoin each other. It returns a block of the segment; nil: none is there any more.
func (r *Reader) readAgain(b *block, blocks chain) (*block, error) {
	if len(blocks) > 0 {
		b = blocks[len(blocks)-1]
	}

	addresses := []uint64{b.self, b.prev}
	for _, before := range blocks[max(0, len(blocks)-repairedBlocks/2):] {
		addresses = append(addresses, before.self)
	}
	for next := b.next; len(addresses) < repairedBlocks && next != 0; {
		addresses = append(addresses, next)
		known := r.blocks[next]
		if known == nil {
			break
		}
		next = known.next
	}

	for _, a := range addresses {
		delete(r.blocks, a)
	}

	if err := r.follow(slices.Clone(addresses)); err != nil {
		return nil, err
	}

	// A block that was merged with the next one may look as before. Its neighbor no longer refers
	// to it.
	if last := r.blocks[b.self]; last != nil {
		next := r.blocks[last.next]
		if next != nil && next.prev != last.self && r.isLinked(next) {
			return next, nil
		}
	}

	for _, a := range addresses {
		if again := r.blocks[a]; again != nil {
			return again, nil
		}
	}

	return nil, nil
}

// isLinked reports whether a block is the first one, or the next one of the block before it.
func (r *Reader) isLinked(b *block) bool {
	before := r.blocks[b.prev]
	return b.prev == 0 || before != nil && before.next == b.self
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

// poolOf names a pool: the first number of a MempoolId_t is of a capture that has a pool of its
// own, the second one of torch.cuda.MemPool and graph_pool_handle().
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

// withoutOverlaps sorts segments, and drops those that overlap an earlier one of the same GPU, or
// are more than a GPU has: no allocator has such.
func withoutOverlaps(segments []growth.GPUSegment) []growth.GPUSegment {
	slices.SortStableFunc(segments, func(a, b growth.GPUSegment) int {
		return cmp.Or(compareGPUs(a.GPU, b.GPU), cmp.Compare(a.Address, b.Address))
	})

	kept := segments[:0]
	end, left := uint64(0), int64(0)
	for _, s := range segments {
		if len(kept) == 0 || kept[len(kept)-1].GPU != s.GPU {
			end, left = 0, maxGPUBytes
		}
		if s.Address < end || s.Size > left {
			continue
		}
		end, left = s.Address+uint64(s.Size), left-s.Size
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
	maxFailures  = 1 << 40
)

// stats returns the counts of each GPU that agree with its segments.
func (r *Reader) stats(c *growth.GPUCache) (stats []growth.GPUCacheStats, err error) {
	gpus := r.gpus()
	isKnown := make(map[string]bool)
	for _, a := range r.poolAddresses() {
		p := r.pools[a]
		gpu, ok := gpus[a]
		if p.owner != 0 || p.isSmall || !ok || isKnown[gpu] {
			continue
		}
		found, ok, err := r.statsBefore(p.self, gpu, c.Sums)
		if err != nil {
			return nil, err
		}
		if ok {
			isKnown[gpu] = true
			stats = append(stats, found)
		}
	}

	slices.SortFunc(stats, func(a, b growth.GPUCacheStats) int { return compareGPUs(a.GPU, b.GPU) })
	return stats, nil
}

// gpus returns the GPUs of the default pools for large blocks, by blocks of them or of the pools
// beside them.
func (r *Reader) gpus() map[uint64]string {
	gpus := make(map[uint64]string)
	for a, p := range r.pools {
		number, ok := r.devices[a]
		for size := uint64(minPoolBytes); !ok && size <= maxPoolBytes; size += 8 {
			if near := r.pools[a+size]; near != nil && near.owner == p.owner {
				number, ok = r.devices[a+size]
			}
		}
		if ok {
			gpus[a] = strconv.Itoa(int(number))
		}
	}

	return gpus
}

// statsBefore seeks the counts before a large pool: reserved_bytes, and allocated_bytes before it. Blocks
// come and go while they are read, segments hardly do.
func (r *Reader) statsBefore(
	large uint64, gpu string, sums []growth.GPUCacheSum,
) (growth.GPUCacheStats, bool, error) {
	var reserved uint64
	for _, s := range sums {
		if s.GPU == gpu {
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
	if !r.finder.layout.hasRequested {
		behind = 3 * statArray
	}

	for at := statArray; at+behind+16 <= len(content); at += 8 {
		isKnown := len(content)-at == r.statsBehind
		isFound := mem.Word(content, at) == reserved && isStatArray(content[at:])
		allocated := mem.Word(content, at-statArray)
		if !isKnown && !isFound || !isStatArray(content[at-statArray:]) {
			continue
		}

		s := growth.GPUCacheStats{
			GPU:           gpu,
			PeakAllocated: int64(mem.Word(content, at-statArray+peakAt)),
			PeakReserved:  int64(mem.Word(content, at+peakAt)),
			Retries:       int64(mem.Word(content, at+behind)),
			OOMs:          int64(mem.Word(content, at+behind+8)),
		}
		isPossible := allocated <= maxGPUBytes && s.PeakAllocated >= int64(allocated) &&
			s.PeakAllocated <= s.PeakReserved && s.PeakReserved <= maxGPUBytes &&
			min(s.Retries, s.OOMs) >= 0 && max(s.Retries, s.OOMs) < maxFailures
		if isPossible {
			r.statsBehind = len(content) - at
			return s, true, nil
		}
	}

	return none, false, nil
}

// isStatArray reports whether some memory may be a StatArray: its first Stat is the sum of the other
// two, and its peak is not below.
func isStatArray(content []byte) bool {
	const one = statArray / 3
	all := mem.Word(content, 0)
	return all == mem.Word(content, one)+mem.Word(content, 2*one) && mem.Word(content, peakAt) >= all
}
