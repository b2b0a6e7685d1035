package mem

import (
	"encoding/binary"
	"slices"
)

// A Reader reads the memory of a process, as process.Process does.
type Reader interface {
	// Peek reads size bytes, at most PeekSize, at each address, in the order of the addresses. It
	// returns nil for memory that it cannot or should not read. It returns an error once the
	// process cannot be read any more.
	Peek(addresses []uint64, size int) ([][]byte, error)
}

// PeekSize is the most that a Reader reads at one address, in bytes.
const PeekSize = 4 << 10

// PeekInto is Reader.Peek into a buffer, if the reader takes one: for many readings of much memory,
// one after the other.
func PeekInto(memory Reader, buffer []byte, addresses []uint64, size int) ([][]byte, error) {
	into, ok := memory.(interface {
		PeekInto(buffer []byte, addresses []uint64, size int) ([][]byte, error)
	})
	if !ok {
		return memory.Peek(addresses, size)
	}
	return into.PeekInto(buffer, addresses, size)
}

// PeekOne reads at one address.
func PeekOne(memory Reader, address uint64, size int) ([]byte, error) {
	contents, err := memory.Peek([]uint64{address}, size)
	if err != nil {
		return nil, err
	}
	return contents[0], nil
}

// maxRangeBytes bounds one reading of a range.
const maxRangeBytes = 16 << 20

// ReadRange reads a range of memory, at most its first 16 MiB. Memory that it cannot read is zero.
// It reads by pages, so that none is lost because another one is not in RAM.
func ReadRange(memory Reader, s Span) ([]byte, error) {
	contents, err := ReadRanges(memory, s)
	if err != nil {
		return nil, err
	}
	return contents[0], nil
}

// ReadRanges is ReadRange for several ranges, which it reads at once.
func ReadRanges(memory Reader, spans ...Span) ([][]byte, error) {
	spans = slices.Clone(spans)
	var pages []uint64
	for i, s := range spans {
		s.End = max(s.Start, s.End)
		s.End = s.Start + min(s.Len(), maxRangeBytes)
		spans[i] = s
		for n := range pagesOf(s) {
			pages = append(pages, AlignDown(s.Start, PeekSize)+n*PeekSize)
		}
	}
	read, err := memory.Peek(pages, PeekSize)
	if err != nil {
		return nil, err
	}

	contents := make([][]byte, len(spans))
	for i, s := range spans {
		contents[i] = make([]byte, s.Len())
		for n := range pagesOf(s) {
			if page := pages[n]; read[n] != nil && page < s.Start {
				copy(contents[i], read[n][s.Start-page:])
			} else if read[n] != nil {
				copy(contents[i][page-s.Start:], read[n])
			}
		}
		pages, read = pages[pagesOf(s):], read[pagesOf(s):]
	}
	return contents, nil
}

// pagesOf returns how many pages of PeekSize have a part of a range.
func pagesOf(s Span) uint64 {
	if s.Len() == 0 {
		return 0
	}
	return (s.End-1)/PeekSize - s.Start/PeekSize + 1
}

// An offset is a byte offset in memory that was read.
type offset interface{ ~int | ~uint64 }

// Word returns the 64-bit word at a byte offset.
func Word[T offset](content []byte, at T) uint64 { return binary.LittleEndian.Uint64(content[at:]) }

// Word32 returns the 32-bit word at a byte offset.
func Word32[T offset](content []byte, at T) uint32 {
	return binary.LittleEndian.Uint32(content[at:])
}

// AlignDown returns the last multiple of size, a power of two, that is n or less.
func AlignDown(n, size uint64) uint64 { return n &^ (size - 1) }

// AlignUp returns the first multiple of size, a power of two, that is n or more. It returns 0 if no
// 64-bit number is.
func AlignUp(n, size uint64) uint64 { return AlignDown(n+size-1, size) }
