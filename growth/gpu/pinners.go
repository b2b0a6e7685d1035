package gpu

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/allocscope/allocscope/growth"
)

// A Pinner is blocks of one kind that keep memory reserved which is free: tensors of a dtype and
// shape, or blocks of a size.
type Pinner struct {
	GPU string
	// Tensor in each block; nil: it is not known.
	Tensor *growth.GPUTensor
	// Stack that allocated most of the blocks that were sampled, and Sampled, the number of these;
	// nil where none was sampled, as they are older than the trace.
	Stack   *growth.Stack
	Sampled int
	Blocks  int   // number of them
	Bytes   int64 // of them
	// Segments, or pages of expandable ones, in which no other blocks stay, and Gain: the bytes of
	// these, which empty_cache() returns once the blocks are freed.
	Segments int
	Gain     int64
	// Expandable: all of these are pages.
	Expandable bool
}

// PinnersOf returns the kinds of blocks that alone keep segments of the default pool, the largest
// gain first.
func PinnersOf(c *growth.GPUCache) []Pinner {
	if c == nil {
		return nil
	}

	k := kindsOf(c)
	pinners := make(map[string]*pinner)
	for i := range c.Segments {
		if s := &c.Segments[i]; s.Pool.Kind == growth.GPUPoolDefault {
			k.addPinners(pinners, c, s)
		}
	}

	var found []Pinner
	for _, p := range pinners {
		if p.Gain > p.Bytes {
			found = append(found, p.withStack())
		}
	}

	slices.SortFunc(found, func(a, b Pinner) int {
		return cmp.Or(cmp.Compare(b.Gain, a.Gain), cmp.Compare(a.GPU, b.GPU),
			cmp.Compare(a.Bytes, b.Bytes), cmp.Compare(a.Blocks, b.Blocks))
	})
	return found
}

// A pinner counts the blocks of a Pinner by their stacks.
type pinner struct {
	Pinner
	stacks map[uint64]*stackCount // by ID
}

type stackCount struct {
	stack  *growth.Stack
	blocks int
}

// addPinners adds the segments, or pages, of which all blocks that stay are of one kind.
func (k kinds) addPinners(pinners map[string]*pinner, c *growth.GPUCache, s *growth.GPUSegment) {
	counted := make(map[*growth.GPUBlock]bool) // a block may lie in two pages
	s.EachPage(func(size int64, inUse []*growth.GPUBlock) {
		inUse = slices.DeleteFunc(inUse, func(b *growth.GPUBlock) bool { return !c.Stays(b) })
		if len(inUse) == 0 {
			return
		}

		tensor := k.tensorOf(inUse[0])
		kind := kindOf(s.GPU, inUse[0].Size, tensor)
		isOther := func(b *growth.GPUBlock) bool { return kindOf(s.GPU, b.Size, k.tensorOf(b)) != kind }
		if slices.ContainsFunc(inUse, isOther) {
			return
		}

		p := pinners[kind]
		if p == nil {
			p = &pinner{
				Pinner{GPU: s.GPU, Tensor: tensor, Expandable: true}, make(map[uint64]*stackCount),
			}
			pinners[kind] = p
		}

		p.Expandable = p.Expandable && s.Expandable
		p.Segments++
		p.Gain += size
		for _, b := range inUse {
			if !counted[b] {
				counted[b] = true
				p.add(b)
			}
		}
	})
}

// add adds a block.
func (p *pinner) add(b *growth.GPUBlock) {
	p.Blocks++
	p.Bytes += b.Size
	if b.Stack == nil {
		return
	}

	if p.stacks[b.Stack.ID] == nil {
		p.stacks[b.Stack.ID] = &stackCount{stack: b.Stack}
	}
	p.stacks[b.Stack.ID].blocks++
}

// withStack returns the Pinner with the stack of most blocks.
func (p *pinner) withStack() Pinner {
	out := p.Pinner
	for id, s := range p.stacks {
		if s.blocks > out.Sampled || s.blocks == out.Sampled && id < out.Stack.ID {
			out.Stack, out.Sampled = s.stack, s.blocks
		}
	}

	return out
}

// kindOf identifies the kind of a block, by its tensor or by its size.
func kindOf(gpu string, size int64, tensor *growth.GPUTensor) string {
	if tensor != nil {
		return fmt.Sprint(gpu, " tensor ", tensor.DType, tensor.Shape)
	}

	return fmt.Sprint(gpu, " block ", size)
}

// A site is all blocks of a size that a stack has allocated.
type site struct {
	stack           uint64 // its ID
	size, requested int64
}

func siteOf(b *growth.GPUBlock) site { return site{b.Stack.ID, b.Size, b.Requested} }

// kinds has the tensor of each site that has one kind alone; nil: it has several.
type kinds map[site]*growth.GPUTensor

// kindsOf learns the tensors of the sites from all blocks with a stack and a tensor.
func kindsOf(c *growth.GPUCache) kinds {
	k := make(kinds)
	for i := range c.Segments {
		for j := range c.Segments[i].Blocks {
			b := &c.Segments[i].Blocks[j]
			if b.Stack == nil || b.Tensor == nil {
				continue
			}

			known, isKnown := k[siteOf(b)]
			if !isKnown {
				k[siteOf(b)] = b.Tensor
			} else if known != nil && kindOf("", 0, known) != kindOf("", 0, b.Tensor) {
				k[siteOf(b)] = nil
			}
		}
	}

	return k
}

// tensorOf returns the tensor in a block. A block that is younger than the census of objects has
// the tensor of its site.
func (k kinds) tensorOf(b *growth.GPUBlock) *growth.GPUTensor {
	if b.Tensor != nil || b.Stack == nil {
		return b.Tensor
	}

	return k[siteOf(b)]
}

// cacheOf returns the list of the caching allocator of a process in a snapshot; nil: none was read.
func cacheOf(s *growth.Snapshot, pid int) *growth.GPUCache {
	for i := range s.GPUMemory {
		if s.GPUMemory[i].PID == pid {
			return s.GPUMemory[i].Cache
		}
	}

	return nil
}

// cachedParts are the parts of the memory that PyTorch has reserved and not allocated, in bytes, by
// the diagnosis of their growth.
func cachedParts(c *growth.GPUCache) map[Diagnosis]int64 {
	parts := make(map[Diagnosis]int64)
	for i := range c.Sums {
		s := &c.Sums[i]
		if s.Kind != growth.GPUPoolDefault {
			parts[DiagnosisPools] += s.Free()
			continue
		}

		parts[DiagnosisFragmentation] += s.Pinned + s.Pending
		parts[DiagnosisCache] += s.Returnable
	}

	return parts
}

// A cacheAt is the list of a snapshot.
type cacheAt struct {
	elapsed time.Duration
	parts   map[Diagnosis]int64
}

// cachesOf returns the lists of a process from a time on. One alone has the list before it.
func cachesOf(snapshots []*growth.Snapshot, pid int, from time.Duration) (lists []cacheAt) {
	var earlier *cacheAt
	for _, s := range snapshots {
		c := cacheOf(s, pid)
		if c == nil {
			continue
		}

		at := cacheAt{s.Elapsed, cachedParts(c)}
		if s.Elapsed < from {
			earlier = &at
		} else {
			lists = append(lists, at)
		}
	}

	if len(lists) == 1 && earlier != nil {
		lists = append([]cacheAt{*earlier}, lists...)
	}
	return lists
}

// maxCaches are compared with each other, of all in a window.
const maxCaches = 100

// slopeOf is how fast a part grows, in bytes a second: the Theil-Sen estimator, the median of the
// slopes between any two lists. A list that was read amid a training step hardly changes it.
func slopeOf(lists []cacheAt, part Diagnosis) float64 {
	step := 1 + len(lists)/maxCaches
	var slopes []float64
	for i := 0; i < len(lists); i += step {
		for j := i + step; j < len(lists); j += step {
			if seconds := (lists[j].elapsed - lists[i].elapsed).Seconds(); seconds > 0 {
				slopes = append(slopes, float64(lists[j].parts[part]-lists[i].parts[part])/seconds)
			}
		}
	}

	if len(slopes) == 0 {
		return 0
	}
	slices.Sort(slopes)
	return (slopes[len(slopes)/2] + slopes[(len(slopes)-1)/2]) / 2
}

// diagnoseCache says which part of the cache grows most in the snapshots of a window. Without two
// lists it is one of several.
func (j *Judgement) diagnoseCache(snapshots []*growth.Snapshot, pid int) {
	if j.Diagnosis != DiagnosisCacheGrows {
		return
	}

	lists := cachesOf(snapshots, pid, j.Window.From)
	most := 0.0
	for _, d := range []Diagnosis{DiagnosisFragmentation, DiagnosisPools, DiagnosisCache} {
		if slope := slopeOf(lists, d); slope > most {
			most, j.Diagnosis = slope, d
		}
	}
}
