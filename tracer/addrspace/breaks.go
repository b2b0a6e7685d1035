package addrspace

import (
	"slices"
	"sync"

	"github.com/allocscope/allocscope/tracer/mem"
)

// An Extent is memory by which calls of brk(2) with one stack have made the main heap grow.
type Extent struct {
	mem.Span
	Last  uint64 // ns, CLOCK_MONOTONIC, of the last call
	Stack uint64 // ID of the caller's stack; 0: unknown
}

// Breaks keeps the calls by which the main heap has grown: it grows and shrinks at its end alone,
// so that the extents are a stack. The zero value is empty. Its methods may be called concurrently.
type Breaks struct {
	mu      sync.Mutex
	end     uint64   // the program break; 0: unknown
	extents []Extent // in address order
}

// maxExtents bounds the extents of a process: 2.5 MiB. The lowest ones go first. A test makes it
// smaller.
var maxExtents = 1 << 16

// Add records that a call has moved the program break. Calls come in order.
func (b *Breaks) Add(time, end, stack uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()

	before := b.end
	b.end = end
	switch n := len(b.extents); {
	case before == 0:
	case end < before:
		b.cut(end)
	case n > 0 && b.extents[n-1].Stack == stack && b.extents[n-1].End == before:
		b.extents[n-1].End, b.extents[n-1].Last = end, time
	default:
		b.extents = append(b.extents, Extent{
			Span: mem.Span{Start: before, End: end}, Last: time, Stack: stack,
		})
	}
	if len(b.extents) > maxExtents {
		b.extents = slices.Clone(b.extents[len(b.extents)/2:])
	}
}

// IsEmpty reports whether no call was recorded.
func (b *Breaks) IsEmpty() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.end == 0
}

// cut removes the extents above an address.
func (b *Breaks) cut(end uint64) {
	n := len(b.extents)
	for n > 0 && b.extents[n-1].Start >= end {
		n--
	}
	b.extents = b.extents[:n]
	if n > 0 {
		b.extents[n-1].End = min(b.extents[n-1].End, end)
	}
}

// Extents returns the growth of the main heap since tracing started, in address order.
func (b *Breaks) Extents() []Extent {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.extents)
}
