// Package pymalloc reads the arenas and pools of CPython's allocator of small objects. The allocator
// cuts arenas into pools, aligned to their size, and each pool into blocks of one size. It takes the
// pools of an arena from the start on; pools that were never used are all zero.
//
// https://github.com/python/cpython/blob/3.12/Include/internal/pycore_obmalloc.h
package pymalloc

import (
	"iter"

	"github.com/allocscope/allocscope/tracer/mem"
)

const (
	// HeaderSize is how many bytes of a pool lie before its first block: POOL_OVERHEAD.
	HeaderSize = 48
	// MaxBlockSize is the size of the largest block in bytes: SMALL_REQUEST_THRESHOLD.
	MaxBlockSize = 512
	// MaxPoolSize is the size of the largest pools in bytes: POOL_SIZE since 3.10.
	MaxPoolSize = 16 << 10

	alignment = 16 // bytes: ALIGNMENT
)

// A header is a pool_header. Offsets are in bytes from the start of the pool.
type header struct {
	count              uint64 // ref.count: blocks in use
	freeblock          uint64 // address of the first free block
	nextpool, prevpool uint64
	arenaindex         uint32
	blockSize          uint64 // by szidx, in bytes
	nextoffset         uint64 // of the next unused block
	maxnextoffset      uint64 // of the last block
}

func parseHeader(content []byte) header {
	return header{
		count:         uint64(mem.Word32(content, 0)),
		freeblock:     mem.Word(content, 8),
		nextpool:      mem.Word(content, 16),
		prevpool:      mem.Word(content, 24),
		arenaindex:    mem.Word32(content, 32),
		blockSize:     BlockSizeIn(content),
		nextoffset:    uint64(mem.Word32(content, 40)),
		maxnextoffset: uint64(mem.Word32(content, 44)),
	}
}

// BlockSizeIn returns the size of the blocks of a pool, by its header of HeaderSize bytes.
func BlockSizeIn(header []byte) uint64 { return (uint64(mem.Word32(header, 36)) + 1) * alignment }

// BlockSizeOf returns the size of the block for a request, in bytes.
func BlockSizeOf(request uint64) uint64 { return mem.AlignUp(request, alignment) }

// A Pool is a pool as it was read. Its header agrees with its blocks.
type Pool struct {
	BlockSize uint64
	Count     uint64 // live blocks

	first uint64 // address of the first block
	end   uint64 // of the blocks that have been handed out at least once
	// free has a bit for each free block, by its distance from the first.
	free [MaxPoolSize / alignment / 64]uint64
}

// parse returns the pool that a header describes; false: it cannot be the header of one.
func parse(content []byte, start uint64) (p Pool, h header, ok bool) {
	size, h := uint64(len(content)), parseHeader(content)
	p = Pool{
		BlockSize: h.blockSize, Count: h.count, first: start + HeaderSize, end: start + h.nextoffset,
	}
	return p, h, h.blockSize <= MaxBlockSize && h.count > 0 && h.maxnextoffset == size-h.blockSize &&
		h.nextoffset >= HeaderSize && h.nextoffset <= size &&
		(h.nextoffset-HeaderSize)%h.blockSize == 0
}

// ParsePool returns the pool that begins at an address, by all its contents; nil: there is none, or
// an empty one. isChanging is set if it looks like a pool that was changing while it was read.
func ParsePool(content []byte, start uint64) (found *Pool, isChanging bool) {
	p, h, ok := parse(content, start)
	if !ok {
		return nil, false
	}

	free := uint64(0)
	for at := h.freeblock; at != 0; free++ {
		isBlock := at >= p.first && at < p.end && (at-p.first)%p.BlockSize == 0
		if !isBlock || p.isFree(at) {
			return nil, true
		}
		i := (at - p.first) / alignment
		p.free[i/64] |= 1 << (i % 64)
		at = mem.Word(content, at-start)
	}

	used := (p.end - p.first) / p.BlockSize
	if h.count > used || used-free != h.count {
		return nil, true
	}
	whole := p // the other returns need no memory
	return &whole, false
}

func (p *Pool) isFree(block uint64) bool {
	i := (block - p.first) / alignment
	return p.free[i/64]>>(i%64)&1 == 1
}

// Used calls yield for the blocks of a pool that have been handed out at least once, free ones
// included, by its contents. It is quicker than ParsePool, and checks less.
func Used(content []byte, start uint64) iter.Seq[mem.Span] {
	return func(yield func(mem.Span) bool) {
		p, _, ok := parse(content, start)
		if ok {
			p.Live(yield)
		}
	}
}

// Find returns the block of an address, and whether it is live.
func (p *Pool) Find(address uint64) (mem.Span, bool) {
	if address < p.first || address >= p.end {
		return mem.Span{}, false
	}
	start := address - (address-p.first)%p.BlockSize
	return mem.Span{Start: start, End: start + p.BlockSize}, !p.isFree(start)
}

// Live calls yield for the live blocks, in the order of their addresses.
func (p *Pool) Live(yield func(block mem.Span) bool) {
	for at := p.first; at+p.BlockSize <= p.end; at += p.BlockSize {
		if !p.isFree(at) && !yield(mem.Span{Start: at, End: at + p.BlockSize}) {
			return
		}
	}
}
