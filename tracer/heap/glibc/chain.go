package glibc

import (
	"cmp"
	"slices"

	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/process"
)

// A Chain follows the chunks of a heap from its start to its end, as the heap is read.
type Chain struct {
	Memory mem.Reader
	Heap   mem.Span
	// Cached are free chunks whose headers are in use: see Heaps.
	Cached map[uint64]bool
	// Beside are pieces that were read together with the next one, this one included, in order. In
	// memory of which few pages are in RAM, a chunk goes on in another piece.
	Beside []mem.Piece

	at     uint64 // the chunk that the next piece begins in or with
	isLost bool   // the chunks do not fit: they were changing, or it is no heap
	alone  int    // headers that were read for themselves
	// The last of them, and where it is.
	aloneHeader []byte
	aloneAt     uint64
	// ahead are headers that were read before their turn, and are used at once: see readAhead.
	ahead map[uint64][]byte
	// alike is how many chunks of one size have followed each other before the next readAhead.
	alike int
}

const (
	// MaxAlone bounds the headers that a Chain reads for themselves, beside its pieces.
	MaxAlone   = 1 << 14
	resyncHops = 4 // chunks in a row that fit
)

// Through returns the chunks of a piece; the first may begin before it, and the last end behind it.
// Pieces come in the order of their addresses.
func (c *Chain) Through(p *mem.Piece) (chunks []Chunk) {
	c.at = max(c.at, c.Heap.Start)
	for !c.isLost && c.at < p.Start {
		k, ok := c.chunk(p, c.at)
		if !ok || k.End() > p.Start || k.End() >= c.Heap.End {
			break
		}
		c.at = k.End()
	}

	for c.at < p.End() && c.at+HeaderSize < c.Heap.End {
		if c.isLost && !c.resync(p) {
			return chunks
		}
		k, ok := c.chunk(p, c.at)
		if !ok {
			c.isLost = true
			continue
		}
		if k.End() >= c.Heap.End { // the top chunk
			return append(chunks, k)
		}

		k.InUse = c.isInUse(p, k)
		chunks = append(chunks, k)
		if k.End() >= p.End() {
			break
		}
		c.at = k.End()
	}
	return chunks
}

// isInUse reports whether a chunk is in use, by the one that follows.
func (c *Chain) isInUse(p *mem.Piece, k Chunk) bool {
	header := c.header(p, k.End())
	return header != nil && IsPrevInUse(header) && !c.Cached[k.Start]
}

// chunk returns the chunk at an address, if it has a plausible size.
func (c *Chain) chunk(p *mem.Piece, address uint64) (Chunk, bool) {
	return ParseChunk(c.header(p, address), address, c.Heap.End)
}

// header returns the header of the chunk at an address, from the piece or for itself.
func (c *Chain) header(p *mem.Piece, address uint64) []byte {
	if header := headerIn(p, address); header != nil {
		return header
	}
	if header := c.headerBeside(address); header != nil {
		return header
	}
	if header := c.ahead[address]; header != nil {
		return header
	}
	if address == c.aloneAt {
		return c.aloneHeader
	}
	if c.alone++; c.alone > MaxAlone {
		return nil
	}

	header, err := mem.PeekOne(c.Memory, address, HeaderSize)
	if err != nil {
		return nil
	}
	c.aloneAt, c.aloneHeader = address, header
	return header
}

// headerIn returns the header at an address of a piece; nil: it is not in it.
func headerIn(p *mem.Piece, address uint64) []byte {
	header := p.At(address, HeaderSize)
	isInPage := isAligned(address) || p.IsPresent(address+wordSize)
	if header == nil || !isInPage || !p.IsPresent(address) {
		return nil
	}
	return header
}

// headerBeside returns the header at an address from the pieces beside; nil: it is in none.
func (c *Chain) headerBeside(address uint64) []byte {
	i, _ := slices.BinarySearchFunc(c.Beside, address, func(p mem.Piece, a uint64) int {
		return cmp.Compare(p.End(), a+1) // the first piece that ends behind the address
	})
	if i == len(c.Beside) {
		return nil
	}
	return headerIn(&c.Beside[i], address)
}

// readAhead reads where the headers of the next chunks are, if they are as large as this one:
// buffers of one size often follow each other. It reads as many as have done so before.
func (c *Chain) readAhead(k Chunk) {
	const most = 32
	if c.ahead[k.End()] != nil {
		return
	}

	chunks := min(1+c.alike, most)
	c.alike = 0
	var addresses []uint64
	for at := k.End(); len(addresses) < chunks && at+HeaderSize <= c.Heap.End; at += k.Size {
		addresses = append(addresses, at)
	}
	c.ahead = make(map[uint64][]byte, chunks)
	headers, err := c.Memory.Peek(addresses, HeaderSize)
	if err != nil {
		return
	}
	for i, header := range headers {
		if header == nil || chunkSize(header) != k.Size {
			if i == 0 && header != nil { // the next chunk, whatever its size
				c.ahead[addresses[i]] = header
			}
			return
		}
		c.ahead[addresses[i]] = header
	}
	c.alike = 2 * chunks
}

// resync finds the first place behind the last chunk at which several chunks fit in a row.
func (c *Chain) resync(p *mem.Piece) bool {
	for at := max(c.at+HeaderSize, p.Start); at+HeaderSize <= p.End(); at += HeaderSize {
		next, hops := at, 0
		for ; hops < resyncHops && p.At(next, HeaderSize) != nil; hops++ {
			k, ok := c.chunk(p, next)
			if !ok {
				break
			}
			next = k.End()
		}
		if hops == resyncHops {
			c.at, c.isLost = at, false
			return true
		}
	}
	c.at = p.End()
	return false
}

// A LargeReader reads the pieces in which Large follows a chain.
type LargeReader interface {
	// ReadPages reads whole pages of a heap. The piece is valid until the next call.
	ReadPages(s mem.Span) (*mem.Piece, error)
	// Small is called with the smaller chunks, and a piece that has the chunk whole.
	Small(p *mem.Piece, k Chunk)
	// IsLate reports whether the time is used up.
	IsLate() bool
}

// Large returns the chunks of a heap that have so many bytes or more, and its top chunk. It ends
// where the chunks do not fit, or at the end of the time. The reader sees the smaller chunks of seen
// bytes and more, each of them whole.
func (c *Chain) Large(least, seen uint64, reader LargeReader) (large []Chunk, err error) {
	const walkBytes = 256 << 10 // that are read at once
	last := -1                  // the large chunk that the one before is
	again := uint64(0)          // the chunk that the last piece was read for
	size := process.PageSize    // that is read at once
	for at := c.Heap.Start; at+HeaderSize <= c.Heap.End && !reader.IsLate(); {
		p := &mem.Piece{}
		if c.ahead[at] == nil {
			end := min(at+HeaderSize+size, c.Heap.End)
			p, err = reader.ReadPages(mem.Span{
				Start: mem.AlignDown(at, process.PageSize), End: mem.AlignUp(end, process.PageSize),
			})
			if err != nil {
				return nil, err
			}
		}

		size = min(2*size, walkBytes)
		for at < c.Heap.End && (at+HeaderSize <= p.End() || c.ahead[at] != nil) {
			k, ok := c.chunk(p, at)
			if !ok {
				return large, nil
			}
			if last >= 0 {
				large[last].InUse = IsPrevInUse(c.header(p, at))
				last = -1
			}
			switch isWhole := k.Start >= p.Start && k.End() <= p.End(); {
			case k.Size >= least || k.End() >= c.Heap.End:
				last, size = len(large), process.PageSize // the next one may be large, too
				large = append(large, k)
				c.readAhead(k)
			case k.Size < seen:
			case isWhole:
				reader.Small(p, k)
			case again != at:
				again, size = at, max(size, k.Size)
				c.ahead, p = nil, &mem.Piece{}
				continue
			}
			at = k.End()
		}
	}
	return large, nil
}
