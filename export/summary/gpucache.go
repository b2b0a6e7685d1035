package summary

import (
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/component"
	"github.com/allocscope/allocscope/growth/gpu"
)

// A GPUCache is what PyTorch's caching allocator has reserved at the end, by its own list.
type GPUCache struct {
	// Pools by GPU and kind.
	Pools []GPUCachePool `json:"pools"`
	// Pinners are kinds of blocks that keep memory which is free otherwise.
	Pinners []GPUPinner `json:"pinners"`
	// Counts since the process started, by GPU; absent: they are not known.
	Counts []GPUCacheCounts `json:"counts,omitempty"`
	// ChangedSegments changed while they were read, and are left out.
	ChangedSegments int `json:"changed_segments,omitempty"`
}

// A GPUCachePool is the memory of all pools of a kind on one GPU, in bytes. Allocated, pending,
// pinned and returnable bytes add up to the reserved ones.
type GPUCachePool struct {
	GPU string `json:"gpu"`
	// Kind is "graph" or "user" for private pools; absent: the default pool.
	Kind     growth.GPUPoolKind `json:"kind,omitempty"`
	Segments int                `json:"segments"`
	// ExpandableSegments of these are mapped parts of expandable segments; absent: none.
	ExpandableSegments int   `json:"expandable_segments,omitempty"`
	ReservedBytes      int64 `json:"reserved_bytes"`
	// AllocatedBytes have RoundingBytes beyond the requested sizes.
	AllocatedBytes int64 `json:"allocated_bytes"`
	RoundingBytes  int64 `json:"rounding_bytes"`
	// PendingBytes are freed, and in use by a stream.
	PendingBytes int64 `json:"pending_bytes"`
	// PinnedBytes are free in segments with blocks in use; ReturnableBytes are in segments, or pages
	// of expandable ones, without.
	PinnedBytes     int64 `json:"pinned_bytes"`
	ReturnableBytes int64 `json:"returnable_bytes"`
	// LargestFreeBytes is the size of the largest free block.
	LargestFreeBytes int64 `json:"largest_free_bytes"`
}

// A GPUPinner is a kind of blocks that alone keep some segments.
type GPUPinner struct {
	GPU string `json:"gpu"`
	// DType and Shape of the tensor in each block; absent: it is not known.
	DType string  `json:"dtype,omitempty"`
	Shape []int64 `json:"shape,omitempty"`
	// Function and Component allocated at least the Sampled blocks; absent: none was sampled.
	Function  string `json:"function,omitempty"`
	Component string `json:"component,omitempty"`
	Sampled   int    `json:"sampled,omitempty"`
	// Blocks of the kind, and their bytes, in segments (or pages of expandable ones) that have no
	// other blocks in use. GainBytes are the bytes of these segments.
	Blocks    int   `json:"blocks"`
	Bytes     int64 `json:"bytes"`
	Segments  int   `json:"segments"`
	GainBytes int64 `json:"gain_bytes"`
	// Expandable: all of these are pages.
	Expandable bool `json:"expandable,omitempty"`
}

// GPUCacheCounts are the counts of the allocator on one GPU.
type GPUCacheCounts struct {
	GPU                string `json:"gpu"`
	PeakAllocatedBytes int64  `json:"peak_allocated_bytes"`
	PeakReservedBytes  int64  `json:"peak_reserved_bytes"`
	// Retries are allocations that succeeded after the cache was emptied; OOMs failed.
	Retries int64 `json:"retries"`
	OOMs    int64 `json:"ooms"`
}

// maxPinners are in the summary.
const maxPinners = 5

// gpuCacheOf describes a list of the caching allocator; nil: none was read.
func gpuCacheOf(j *gpu.Judgement, components *component.Rules) *GPUCache {
	if j.Cache == nil {
		return nil
	}

	out := &GPUCache{
		Pools: []GPUCachePool{}, Pinners: []GPUPinner{}, ChangedSegments: j.Cache.Changed,
	}

	for _, s := range j.Cache.Sums {
		out.Pools = append(out.Pools, GPUCachePool{
			GPU: s.GPU, Kind: s.Kind, Segments: s.Segments, ExpandableSegments: s.Expandable,
			ReservedBytes: s.Reserved, AllocatedBytes: s.Allocated, RoundingBytes: s.Rounding, PendingBytes: s.Pending,
			PinnedBytes: s.Pinned, ReturnableBytes: s.Returnable, LargestFreeBytes: s.Largest,
		})
	}

	for _, p := range j.Pinners[:min(maxPinners, len(j.Pinners))] {
		out.Pinners = append(out.Pinners, pinnerOf(&p, components))
	}

	for _, s := range j.Cache.Stats {
		out.Counts = append(out.Counts, GPUCacheCounts{
			GPU: s.GPU, PeakAllocatedBytes: s.PeakAllocated, PeakReservedBytes: s.PeakReserved,
			Retries: s.Retries, OOMs: s.OOMs,
		})
	}

	return out
}

func pinnerOf(p *gpu.Pinner, components *component.Rules) GPUPinner {
	out := GPUPinner{
		GPU: p.GPU, Sampled: p.Sampled, Blocks: p.Blocks, Bytes: p.Bytes, Segments: p.Segments,
		GainBytes: p.Gain, Expandable: p.Expandable,
	}

	if p.Stack != nil {
		out.Function, out.Component = units.Name(userPlaceText(p.Stack)), components.Of(p.Stack)
	}

	if p.Tensor != nil {
		out.DType, out.Shape = units.Name(p.Tensor.DType), p.Tensor.Shape
	}

	return out
}

// IsExpandable reports whether all segments of the default pools are expandable: PyTorch was started
// with expandable_segments:True.
func (c *GPUCache) IsExpandable() bool {
	sum := c.Default()
	return sum.Segments > 0 && sum.ExpandableSegments == sum.Segments
}

// Default sums the default pools of all GPUs.
func (c *GPUCache) Default() (sum GPUCachePool) {
	return c.sum(func(p *GPUCachePool) bool { return p.Kind == growth.GPUPoolDefault })
}

// Private sums the private pools of all GPUs.
func (c *GPUCache) Private() (sum GPUCachePool) {
	return c.sum(func(p *GPUCachePool) bool { return p.Kind != growth.GPUPoolDefault })
}

func (c *GPUCache) sum(counts func(*GPUCachePool) bool) (sum GPUCachePool) {
	for i := range c.Pools {
		p := &c.Pools[i]
		if !counts(p) {
			continue
		}

		sum.Segments += p.Segments
		sum.ExpandableSegments += p.ExpandableSegments
		sum.ReservedBytes += p.ReservedBytes
		sum.AllocatedBytes += p.AllocatedBytes
		sum.RoundingBytes += p.RoundingBytes
		sum.PendingBytes += p.PendingBytes
		sum.PinnedBytes += p.PinnedBytes
		sum.ReturnableBytes += p.ReturnableBytes
		sum.LargestFreeBytes = max(sum.LargestFreeBytes, p.LargestFreeBytes)
	}

	return sum
}
