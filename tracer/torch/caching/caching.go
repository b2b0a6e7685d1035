// Package caching reads PyTorch's caching allocator of GPU memory from outside: each segment that
// it has from the driver, and the blocks in it, as torch.cuda.memory_snapshot() lists them. It sets
// no probe, stops nothing and writes nothing.
//
// libc10_cuda publishes no offsets. So none is believed: the tables of allocated blocks are found
// in the library's variables by their contents, and the fields of a block by its neighbours, which
// adjoin it (layout.go). From the allocated blocks the reader goes on to all blocks of their
// segments, to their pools, and to the other blocks of these (pools.go). Memory changes while it is
// read: a segment whose blocks do not fill it is read again, and is left out if that does not help.
// All memory that the package reads is hostile input: any contents cost bounded work and yield some
// answer (limit.go). Names follow c10/cuda/CUDACachingAllocator.cpp:
// https://github.com/pytorch/pytorch/blob/main/c10/cuda/CUDACachingAllocator.cpp
package caching

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/torch"
)

// Reasons for which the segments are not known.
var (
	ErrNotLoaded = errors.New("PyTorch's caching allocator is not loaded")
	// ErrNoBlocks means that no table of allocated blocks was found: there are none, or PyTorch
	// uses another allocator, or a layout that is not known.
	ErrNoBlocks = errors.New("no table of its blocks was found")
	errTooMany  = fmt.Errorf("more than %d blocks", maxBlocks)
)

// Bounds of one reading.
const (
	maxBlocks        = 1 << 19
	maxVariableBytes = 4 << 20 // of libc10_cuda
	maxTables        = 1 << 12 // in the variables, most of them by chance
	maxPools         = 1 << 14
	maxGPUs          = 64  // MAX_GPUS of bpf/source/block.bpf.h
	batchBlocks      = 512 // are read at a time: few, so that little changes meanwhile
)

// A Reader reads the segments of one process, repeatedly.
type Reader struct {
	finder   finder
	memory   *limited
	code     mem.Spans         // of libc10_cuda
	blocks   map[uint64]*block // by address
	pools    map[uint64]*pool  // by address
	poolIDs  map[uint64][2]uint64
	compared uint64 // BlockComparatorSize, by which pools are known
	// devices are the GPUs of the pools of blocks, and newPools those that were not read yet.
	devices  map[uint64]uint8
	newPools []uint64
	// statsBehind is how far before the large pool of a GPU its reserved_bytes are; 0: not known.
	statsBehind int
}

// A block is a Block of the allocator.
type block struct {
	self                uint64 // its address
	device              uint8
	stream              uint64
	size, requested     uint64
	pool                uint64
	address             uint64
	isAllocated         bool
	isMapped, hasEvents bool
	prev, next          uint64
}

// Read returns the segments of a process, without stacks and tensors. The error is one of
// ErrNotLoaded and ErrNoBlocks, or comes from reading.
func (r *Reader) Read(p torch.Process) (*growth.GPUCache, error) {
	maps, err := p.Maps()
	if err != nil {
		return nil, err
	}

	variables, code := libraryOf(maps)
	if len(variables) == 0 || len(code) == 0 {
		return nil, ErrNotLoaded
	}

	r.memory, r.code = newLimited(p), code
	r.finder.memory = r.memory
	r.blocks = make(map[uint64]*block, len(r.blocks)) // about as many as the last time
	r.pools, r.poolIDs = make(map[uint64]*pool), make(map[uint64][2]uint64)
	r.compared, r.devices, r.newPools = 0, make(map[uint64]uint8), nil

	allocated, err := r.finder.findAllocated(variables)
	if err != nil {
		return nil, err
	}

	if len(allocated) == 0 {
		return nil, ErrNoBlocks
	}

	if err := r.follow(allocated); err != nil {
		return nil, err
	}

	if err := r.readPools(); err != nil {
		return nil, err
	}

	return r.cache()
}

// libraryOf returns the variables of libc10_cuda, with the anonymous memory behind them (.bss), and
// its code.
func libraryOf(maps []process.Mapping) (variables, code mem.Spans) {
	isLast := false // whether the mapping before is a variable's
	for _, m := range maps {
		isOwn := m.IsFile() && strings.HasPrefix(path.Base(m.Path), torch.LibC10CUDA)
		span := mem.Span{Start: m.Start, End: m.End}
		isBehind := isLast && !m.IsFile() && m.Path == "" && m.Start == variables[len(variables)-1].End
		switch {
		case isOwn && m.Execute:
			code = append(code, span)
		case (isOwn || isBehind) && m.Write && !m.Shared &&
			variables.Len()+span.Len() <= maxVariableBytes:
			variables = append(variables, span)
			isLast = true
			continue
		}
		isLast = false
	}

	return variables, code
}

// follow reads blocks that were not read yet, and the ones to which their links lead.
func (r *Reader) follow(addresses []uint64) error {
	addresses = r.unknown(addresses)
	for len(addresses) > 0 {
		if len(r.blocks)+len(addresses) > maxBlocks {
			return errTooMany
		}
		var next []uint64
		for batch := range slices.Chunk(addresses, batchBlocks) {
			read, err := r.read(batch)
			if err != nil {
				return err
			}
			for i := range read {
				r.add(&read[i])
				next = append(next, read[i].prev, read[i].next)
			}
		}
		addresses = r.unknown(next)
	}

	return nil
}

func (r *Reader) add(b *block) {
	r.blocks[b.self] = b
	if _, ok := r.devices[b.pool]; !ok {
		r.devices[b.pool] = b.device
		r.newPools = append(r.newPools, b.pool)
	}
}

// unknown returns the addresses of blocks that were not read yet, each once.
func (r *Reader) unknown(addresses []uint64) []uint64 {
	slices.Sort(addresses)
	return slices.DeleteFunc(slices.Compact(addresses), func(a uint64) bool {
		return a == 0 || r.blocks[a] != nil
	})
}

// read reads the blocks at some addresses. It leaves out memory that cannot be one.
func (r *Reader) read(addresses []uint64) ([]block, error) {
	contents, err := r.memory.Peek(addresses, r.finder.layout.bytes())
	if err != nil {
		return nil, err
	}

	blocks := make([]block, 0, len(addresses))
	for i, content := range contents {
		if content == nil {
			continue
		}
		if b := r.finder.layout.block(addresses[i], content); b.isPossible() {
			blocks = append(blocks, b)
		}
	}

	return blocks, nil
}

const (
	blockUnit = 512 // kMinBlockSize: all sizes are multiples of it
	// maxGPUBytes bounds the memory of a GPU: seven times of the largest. Sums of all GPUs fit an
	// int64, and pages of 2 MiB can be counted one by one.
	maxGPUBytes = 1 << 41
	maxAddress  = 1 << 57 // of a GPU: five levels of page tables
)

func (b *block) isPossible() bool {
	return b.device < maxGPUs && b.pool != 0 && b.address != 0 && b.address < maxAddress &&
		b.size != 0 && b.size <= maxGPUBytes && b.size%blockUnit == 0
}
