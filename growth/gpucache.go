package growth

import (
	"cmp"
	"slices"
	"time"
)

// A GPUCache is the memory that PyTorch's caching allocator has from the driver at one moment, as
// its own structures list it.
type GPUCache struct {
	// Segments by GPU and address. A snapshot that is no longer the newest has none of them.
	Segments []GPUSegment
	// Sums of all Segments, one for each GPU and kind of pool, in order.
	Sums []GPUCacheSum
	// Stats of the allocator by GPU, in order; nil where they are not known.
	Stats []GPUCacheStats
	// Lists is how many lists of the process there are so far, this one included.
	Lists int
	// Changed is the number of segments that changed while they were read, and are left out.
	Changed int
}

// A GPUPoolKind is which pool of the caching allocator a segment belongs to.
type GPUPoolKind string

// The kinds.
const (
	GPUPoolDefault GPUPoolKind = ""      // for all allocations of the process
	GPUPoolGraph   GPUPoolKind = "graph" // private to the captures of a CUDA graph
	GPUPoolUser    GPUPoolKind = "user"  // torch.cuda.MemPool, graph_pool_handle()
)

// A GPUPool identifies a pool. ID is PyTorch's MempoolId_t; zero for the default one.
type GPUPool struct {
	Kind GPUPoolKind
	ID   [2]uint64
}

// A GPUSegment is a contiguous range that the caching allocator has from the driver: one
// allocation, or the mapped part of an expandable segment. Its Blocks fill it, in order.
type GPUSegment struct {
	GPU        string // as Holding.GPU
	Address    uint64
	Size       int64 // in bytes
	Stream     uint64
	Pool       GPUPool
	Small      bool // for allocations of up to 1 MiB
	Expandable bool
	// Stack of the driver's allocation; nil where it is older than the trace.
	Stack  *Stack
	Blocks []GPUBlock
}

// A GPUBlockState is whether a block is in use.
type GPUBlockState uint8

// The states.
const (
	GPUBlockFree      GPUBlockState = iota
	GPUBlockPending                 // freed, and a stream still uses it
	GPUBlockAllocated               // a tensor or another owner has it
)

// A GPUBlock is a part of a segment.
type GPUBlock struct {
	Address uint64
	Size    int64 // in bytes
	// Requested is the size that was asked for, in bytes, before it was rounded up to Size; of an
	// allocated block. Unknown in versions before 2.1.
	Requested int64
	State     GPUBlockState
	// Stack that allocated the block, and Born, its time since the start of the trace: of an
	// allocated block that was sampled. Stack is nil otherwise.
	Stack *Stack
	Born  time.Duration
	// Lists is in how many of the latest lists the block was allocated, at that address and with
	// that size, without a gap.
	Lists int
	// Tensor was there in the newest census of Python's objects; nil: none was.
	Tensor *GPUTensor
}

// A GPUTensor is the largest tensor whose storage is a block.
type GPUTensor struct {
	DType string
	Shape []int64
}

// A GPUCacheSum is the memory of all segments of one GPU and one kind of pool, in bytes. Allocated,
// Pending, Pinned and Returnable add up to Reserved.
type GPUCacheSum struct {
	GPU      string
	Kind     GPUPoolKind
	Segments int // number of them
	// Expandable is the number of Segments that are mapped parts of expandable ones.
	Expandable int
	Reserved   int64
	// Allocated blocks, and Rounding, the part beyond the requested sizes. Pending blocks are
	// freed and still in use by a stream.
	Allocated, Rounding, Pending int64
	// Pinned is free, in segments that also have blocks in use. Returnable is in segments, or in
	// pages of expandable ones, without such blocks: torch.cuda.empty_cache() returns it, except
	// from the pool of a graph that is still alive.
	Pinned, Returnable int64
	// Largest free block.
	Largest int64
}

// GPUCacheStats are counts of the allocator of one GPU since the process started, or since
// torch.cuda.reset_peak_memory_stats() and its like. Bytes except Retries and OOMs.
type GPUCacheStats struct {
	GPU                         string
	PeakAllocated, PeakReserved int64
	// Retries are calls of the driver that failed until the cache was emptied; OOMs were thrown.
	Retries, OOMs int64
}

// InUse reports whether the block keeps its segment.
func (b *GPUBlock) InUse() bool { return b.State != GPUBlockFree }

// minLists is in how many lists a block must be to stay: the ones of a training step come and go
// between two lists.
const minLists = 3

// Stays reports whether the block has stayed allocated, as far as the lists of the process show.
func (c *GPUCache) Stays(b *GPUBlock) bool {
	return b.State == GPUBlockAllocated && b.Lists >= min(minLists, c.Lists)
}

// page is the unit in which the segment can return memory to the driver, in bytes: all of it, or a
// page of an expandable one, kSmallBuffer or kLargeBuffer of c10/core/AllocatorConfig.h.
func (s *GPUSegment) page() int64 {
	switch {
	case !s.Expandable:
		return s.Size
	case s.Small:
		return 2 << 20
	}

	return 20 << 20
}

// EachPage calls each for the units in which the segment can return memory to the driver: their
// sizes in bytes, and the blocks in use that each of them has a part of.
func (s *GPUSegment) EachPage(each func(size int64, inUse []*GPUBlock)) {
	page, next := s.page(), 0
	for start := int64(0); start < s.Size && page > 0; start += page {
		end := min(start+page, s.Size)
		var inUse []*GPUBlock
		for next < len(s.Blocks) && int64(s.Blocks[next].Address-s.Address)+s.Blocks[next].Size <= start {
			next++
		}

		for i := next; i < len(s.Blocks) && int64(s.Blocks[i].Address-s.Address) < end; i++ {
			if s.Blocks[i].InUse() {
				inUse = append(inUse, &s.Blocks[i])
			}
		}

		each(end-start, inUse)
	}
}

// Returnable is how much of the segment empty_cache() returns, in bytes: units without blocks in
// use.
func (s *GPUSegment) Returnable() (bytes int64) {
	s.EachPage(func(size int64, inUse []*GPUBlock) {
		if len(inUse) == 0 {
			bytes += size
		}
	})
	return bytes
}

// Free returns how much is reserved and not allocated, in bytes.
func (sum *GPUCacheSum) Free() int64 { return sum.Reserved - sum.Allocated }

// Sum returns the sums of the segments by GPU and kind of pool.
func (c *GPUCache) Sum() []GPUCacheSum {
	var sums []GPUCacheSum
	for i := range c.Segments {
		s := &c.Segments[i]
		at := slices.IndexFunc(sums, func(sum GPUCacheSum) bool {
			return sum.GPU == s.GPU && sum.Kind == s.Pool.Kind
		})
		if at < 0 {
			at = len(sums)
			sums = append(sums, GPUCacheSum{GPU: s.GPU, Kind: s.Pool.Kind})
		}

		sums[at].add(s)
	}

	slices.SortFunc(sums, func(a, b GPUCacheSum) int {
		return cmp.Or(cmp.Compare(a.GPU, b.GPU), cmp.Compare(a.Kind, b.Kind))
	})
	return sums
}

// add adds a segment.
func (sum *GPUCacheSum) add(s *GPUSegment) {
	sum.Segments++
	if s.Expandable {
		sum.Expandable++
	}

	sum.Reserved += s.Size
	free := int64(0)
	for i := range s.Blocks {
		b := &s.Blocks[i]
		switch b.State {
		case GPUBlockAllocated:
			sum.Allocated += b.Size
			if b.Requested != Unknown {
				sum.Rounding += b.Size - b.Requested
			}
		case GPUBlockPending:
			sum.Pending += b.Size
		default:
			free += b.Size
			sum.Largest = max(sum.Largest, b.Size)
		}
	}

	returnable := s.Returnable()
	sum.Returnable += returnable
	sum.Pinned += free - returnable
}
