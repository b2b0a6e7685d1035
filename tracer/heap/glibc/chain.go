package glibc

import "github.com/allocscope/allocscope/tracer/mem"

// A Chain follows the chunks of a heap from its start to its end, as the heap is read.
type Chain struct {
	Memory mem.Reader
	Heap   mem.Span
	// Cached are free chunks whose headers are in use: see Heaps.
	Cached map[uint64]bool

	at     uint64 // the chunk that the next piece begins in or with
	isLost bool   // the chunks do not fit: they were changing, or it is no heap
	last   Chunk  // the chunk at this address, if it was read before
	alone  int    // headers that were read for themselves, beside this piece
	// The last of them, and where it is.
	aloneHeader []byte
	aloneAt     uint64
}

const (
	// MaxAlone bounds the headers that a Chain reads for themselves, beside each of its pieces.
	MaxAlone   = 1 << 8
	resyncHops = 4 // chunks in a row that fit
)

// Through returns the chunks of a piece; the first may begin before it, and the last end behind it.
// Pieces come in the order of their addresses.
func (c *Chain) Through(p *mem.Piece) (chunks []Chunk) {
	c.at, c.alone = max(c.at, c.Heap.Start), 0
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
			c.last = k
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
	if c.last.Size != 0 && c.last.Start == address && address < p.Start {
		return c.last, true
	}
	return ParseChunk(c.header(p, address), address, c.Heap.End)
}

// header returns the header of the chunk at an address, from the piece or for itself.
func (c *Chain) header(p *mem.Piece, address uint64) []byte {
	if header := headerIn(p, address); header != nil {
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
