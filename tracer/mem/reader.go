package mem

import "encoding/binary"

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

// ReadRange reads a range of memory, at most its first 16 MiB. Memory that it cannot read is zero. It
// reads by pages, so that none is lost because another one is not in RAM.
func ReadRange(memory Reader, s Span) ([]byte, error) {
	if s.End <= s.Start {
		return nil, nil
	}
	s.End = s.Start + min(s.Len(), maxRangeBytes)
	var addresses []uint64
	for page := AlignDown(s.Start, PeekSize); page < s.End; page += PeekSize {
		addresses = append(addresses, page)
		if page+PeekSize == 0 {
			break // it is the last one that has an address
		}
	}
	contents, err := memory.Peek(addresses, PeekSize)
	if err != nil {
		return nil, err
	}

	all := make([]byte, s.Len())
	for i, content := range contents {
		if content == nil {
			continue
		}
		if page := addresses[i]; page < s.Start {
			copy(all, content[s.Start-page:])
		} else {
			copy(all[page-s.Start:], content)
		}
	}
	return all, nil
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
