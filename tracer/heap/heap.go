// Package heap has the types that readers of allocators share. Each allocator has a package below
// this one, which alone knows its structures. They read a process from outside: they set no probe,
// stop nothing and write nothing. All memory is hostile input: any contents cost bounded work and
// yield some answer.
package heap

import (
	"errors"
	"strings"

	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/process"
)

// Object is an object that malloc, calloc, realloc or memalign returned.
type Object struct {
	Address uint64
	Size    uint64 // bytes requested
}

// State is the result of a check of an object.
type State uint8

// The states of objects.
const (
	// Unknown: the object could not be read, or its address is none of malloc's.
	Unknown State = iota
	// Alive: nothing contradicts that the object is alive.
	Alive
	// Dead: the object is proven to be dead. An object resized in place is dead, too: it is another
	// one then.
	Dead
)

// An Allocator is the malloc of a process. It is valid until the process executes another program.
type Allocator interface {
	// Check returns the state of each object, all of them allocated before the call.
	//
	// maps were read after the objects were allocated. Check returns the errors of memory. It is
	// not safe for concurrent use.
	Check(memory mem.Reader, maps []process.Mapping, objects []Object) ([]State, error)

	// SizeClass returns how many bytes an object of a size takes. Objects of one class can take
	// each other's place.
	SizeClass(size uint64) uint64
}

// MaxAddress is the end of user space, in bytes.
const MaxAddress = 1 << 56

// Spans returns the mappings that may contain memory of malloc.
func Spans(maps []process.Mapping) mem.Spans {
	var spans mem.Spans
	for _, m := range maps {
		if IsHeapLike(m) {
			spans = append(spans, mem.Span{Start: m.Start, End: m.End})
		}
	}
	return spans
}

// IsHeapLike reports whether a mapping may contain memory of malloc.
func IsHeapLike(m process.Mapping) bool {
	return m.Read && m.Write && !m.Shared && !m.IsFile() &&
		(m.Path == "" || m.Path == "[heap]" || strings.HasPrefix(m.Path, "[anon:"))
}

// Variables returns the memory of a file's variables: its writable mappings (.data), and the
// anonymous ones that follow them (.bss).
func Variables(maps []process.Mapping, file process.FileID) mem.Spans {
	var spans mem.Spans
	for _, m := range maps {
		last := len(spans) - 1
		follows := last >= 0 && spans[last].End == m.Start
		switch {
		case !m.Read || !m.Write || m.Shared:
		case follows && (m.File() == file || m.Path == ""):
			spans[last].End = m.End
		case m.File() == file:
			spans = append(spans, mem.Span{Start: m.Start, End: m.End})
		}
	}
	return spans
}

// A BlockFinder is an allocator whose blocks are found by address.
type BlockFinder interface {
	// Blocks reads the free lists of the allocator, for the blocks of now. The error wraps
	// ErrNoBlocks, or is from memory.
	Blocks(memory mem.Reader, maps []process.Mapping) (Blocks, error)
}

// ErrUnknownLayout means that a malloc is not in a layout that is known.
var ErrUnknownLayout = errors.New("in a layout that is known")

// ErrNoBlocks means that the blocks of a malloc cannot be found by address.
var ErrNoBlocks = errors.New("malloc does not show its blocks")

// Blocks finds the blocks that addresses are in. It is not safe for concurrent use.
type Blocks interface {
	// At returns the block that the program has at an address. isLive is false if the block is
	// free, is of another allocator, or was changing. The answer is of the moment when the
	// address, or one near it, was first asked for.
	At(address uint64) (block mem.Span, isLive bool)
	// Next returns the first live block that begins at an address or behind it, and before
	// another one. ok is false if there is none.
	Next(address, before uint64) (block mem.Span, ok bool)
	// FreeAt returns the block at an address that the allocator has for itself, as it is now.
	// isFree is false if that is not proven, as for a block in the cache of a thread.
	FreeAt(address uint64) (block mem.Span, isFree bool)
	// IsOwn reports whether a word that leads to a block is the allocator's own, and keeps
	// none.
	IsOwn(at uint64, block mem.Span) bool
	// Small returns the memory near some ranges that jemalloc has in blocks of at most a size, free
	// ones too: its slabs, and the extents that are a block. Both are nil for mimalloc.
	Small(ranges mem.Spans, most uint64) (slabs mem.Spans, extents []mem.Span, err error)
}
