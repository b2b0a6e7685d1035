package liveness

import (
	"cmp"
	"errors"
	"slices"

	"github.com/allocscope/allocscope/tracer/heap"
	"github.com/allocscope/allocscope/tracer/heap/glibc"
	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/residency/region"
)

// errNotGlibc means that the heaps of a process cannot be walked.
var errNotGlibc = errors.New("malloc is not glibc's")

// ProcessAllocator is the allocator of a process, or the reason why it has none that can be read.
type ProcessAllocator struct {
	heap.Allocator
	err  error
	name string // of allocators.All; empty: it is not known

	// others are the mallocs of libraries that do not use the one of the process, or the reason
	// why one of them cannot be read: then no object is known to be of the first.
	others    []heap.Allocator
	othersErr error
	files     []process.FileID // of the code that was mapped
}

// untrackable returns why the objects of the process cannot be checked; nil: they can.
func (a ProcessAllocator) untrackable() error { return cmp.Or(a.err, a.othersErr) }

// Check implements heap.Allocator. An object is dead if it is so for each malloc: the others know
// nothing of it.
func (a ProcessAllocator) Check(
	memory mem.Reader, maps []process.Mapping, objects []heap.Object,
) ([]heap.State, error) {
	states, err := a.Allocator.Check(memory, maps, objects)
	if err != nil {
		return nil, err
	}

	for _, other := range a.others {
		var rest []heap.Object
		var indices []int
		for i, state := range states {
			if state != heap.Alive {
				rest, indices = append(rest, objects[i]), append(indices, i)
			}
		}
		if len(rest) == 0 {
			break
		}
		again, err := other.Check(memory, maps, rest)
		if err != nil {
			return nil, err
		}
		for k, i := range indices {
			if again[k] == heap.Alive || states[i] == heap.Dead {
				states[i] = again[k]
			}
		}
	}
	return states, nil
}

// CheckObjects checks which objects of the process are alive, and takes their fingerprints. maps
// were read after the objects were allocated.
func (a ProcessAllocator) CheckObjects(
	p *process.Process, maps []process.Mapping, objects []heap.Object,
) ([]checkedObject, error) {
	if err := a.untrackable(); err != nil {
		return nil, err
	}

	memory, err := newPrivateMemory(p, maps)
	if err != nil {
		return nil, err
	}

	states, err := a.Check(memory, maps, objects)
	if err != nil {
		return nil, err
	}
	fingerprints, err := fingerprintsOf(memory, objects)
	if err != nil {
		return nil, err
	}

	checked := make([]checkedObject, len(objects))
	for i := range checked {
		checked[i] = checkedObject{
			Object: objects[i], state: states[i], fingerprint: fingerprints[i],
		}
	}
	return checked, nil
}

// Rounding returns the function from the size of an object to the bytes that it takes; nil: for
// glibc, whose chunks are known otherwise, and for a malloc that is not known.
func (a ProcessAllocator) Rounding() func(size uint64) uint64 {
	_, isGlibc := a.Allocator.(*glibc.Malloc)
	switch {
	case a.name == "tcmalloc":
		return heap.TCMallocClassOf
	case a.Allocator == nil || isGlibc:
		return nil
	}
	return a.SizeClass
}

// Blocks reads the free lists of the allocator, for the blocks of now. The error wraps
// heap.ErrNoBlocks, or is from memory.
func (a ProcessAllocator) Blocks(
	p *process.Process, maps []process.Mapping,
) (heap.Blocks, error) {
	malloc, ok := a.Allocator.(heap.BlockFinder)
	if !ok {
		return nil, errors.Join(a.err, heap.ErrNoBlocks)
	}
	memory, err := newPrivateMemory(p, maps)
	if err != nil {
		return nil, err
	}
	return malloc.Blocks(memory, maps)
}

// Heaps are the heaps of glibc, for a reader of their chunks.
type Heaps struct {
	glibc.Heaps
	// Mapped are the chunks with a mapping of their own, as far as they are found, from the
	// header to the end of the mapping. See region.Classify.
	Mapped mem.Spans
}

// Heaps finds the heaps of the process, see glibc.Malloc.Heaps. maps are the current ones. The
// error wraps errNotGlibc, too.
func (a ProcessAllocator) Heaps(p *process.Process, maps []process.Mapping) (Heaps, error) {
	malloc, ok := a.Allocator.(*glibc.Malloc)
	if !ok {
		return Heaps{}, errors.Join(a.err, errNotGlibc)
	}
	memory, err := newPrivateMemory(p, maps)
	if err != nil {
		return Heaps{}, err
	}

	found, err := malloc.Heaps(memory, maps)
	if err != nil {
		return Heaps{}, err
	}

	heaps := Heaps{Heaps: found}
	for _, r := range region.Classify(maps, nil, memory) {
		if r.Class == region.MmappedChunk {
			heaps.Mapped = append(heaps.Mapped, mem.Span{Start: r.Start, End: r.End})
		}
	}
	return heaps, nil
}

// withRoom returns maps in which the heap of brk goes on as far as it can grow.
func withRoom(maps []process.Mapping) []process.Mapping {
	maps = slices.Clone(maps)
	for i := range maps {
		isLast := i+1 == len(maps) || maps[i+1].Path != maps[i].Path
		if i+1 < len(maps) && maps[i].Path == "[heap]" && isLast {
			maps[i].End = maps[i+1].Start
		}
	}
	return maps
}

// WalkHeaps walks the heaps of the process, see glibc.Malloc.WalkHeaps. Where they grow beyond the
// maps meanwhile, it begins again.
func (a ProcessAllocator) WalkHeaps(
	p *process.Process, resident func(start, end uint64) uint64,
) (chunks glibc.HeapChunks, err error) {
	malloc, ok := a.Allocator.(*glibc.Malloc)
	if !ok {
		return glibc.HeapChunks{}, errors.Join(a.err, errNotGlibc)
	}

	// The kernel moves the end of a heap while it is read: the maps of before then end too early.
	const attempts = 3
	for range attempts {
		maps, err := p.Maps()
		if err != nil {
			return glibc.HeapChunks{}, err
		}
		memory, err := newPrivateMemory(p, withRoom(maps))
		if err != nil {
			return glibc.HeapChunks{}, err
		}
		chunks, err = malloc.WalkHeaps(memory, maps, resident)
		if !errors.Is(err, glibc.ErrBrokenChain) {
			return chunks, err
		}
	}

	return glibc.HeapChunks{}, glibc.ErrBrokenChain
}
