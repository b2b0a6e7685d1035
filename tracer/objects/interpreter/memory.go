// Package interpreter reads from outside the state of an interpreter with the GIL: its modules, its
// frames, its functions and its garbage collector.
//
// All memory that it reads belongs to the traced process, so it is hostile input: sizes are
// bounded, and impossible values are refused. Names follow the CPython sources.
package interpreter

import (
	"errors"

	"github.com/allocscope/allocscope/tracer/cpython"
	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/python"
)

const (
	pageSize     = 4096    // bytes of which all can be read or none: a page has one protection
	pagesAtOnce  = 16      // are read by one call
	maxPagesKept = 1 << 12 // 16 MiB
	maxPagesRead = 1 << 16 // for one question: 256 MiB
	maxReads     = 1 << 23 // for one question, most of them of pages that are kept
	maxReadBytes = 1 << 20 // of one read
)

var errUnreadable = errors.New("memory cannot be read")

// A view reads memory by pages and keeps them, because objects lie close together. It is for one
// question: the pages are of the moment of their first use, and their number is bounded.
type view struct {
	memory           python.Memory
	pages            map[uint64][]byte // by address; nil: cannot be read
	pagesRead, reads int
}

func newView(m python.Memory) *view { return &view{memory: m, pages: make(map[uint64][]byte)} }

// ReadMemory implements python.Memory.
func (v *view) ReadMemory(address uint64, buffer []byte) error {
	v.reads++
	if address+uint64(len(buffer)) < address || len(buffer) > maxReadBytes || v.reads > maxReads {
		return errUnreadable
	}
	for len(buffer) > 0 {
		page := v.page(address &^ (pageSize - 1))
		if page == nil {
			return errUnreadable
		}
		n := copy(buffer, page[address%pageSize:])
		address, buffer = address+uint64(n), buffer[n:]
	}
	return nil
}

func (v *view) page(address uint64) []byte {
	page, known := v.pages[address]
	if known {
		return page
	}
	if v.pagesRead++; v.pagesRead > maxPagesRead {
		return nil
	}
	if len(v.pages) >= maxPagesKept {
		clear(v.pages)
	}

	v.readAround(address)
	if page, known = v.pages[address]; known {
		return page
	}
	page = make([]byte, pageSize)
	if v.memory.ReadMemory(address, page) != nil {
		page = nil
	}
	v.pages[address] = page
	return page
}

// A peeker reads memory that is in RAM, at many addresses by one call, as process.Process does.
type peeker interface {
	Peek(addresses []uint64, size int) ([][]byte, error)
}

// readAround keeps the pages around an address that are in RAM: a call costs more than the bytes.
func (v *view) readAround(address uint64) {
	memory, ok := v.memory.(peeker)
	if !ok {
		return
	}

	var addresses []uint64
	first := address &^ (pagesAtOnce*pageSize - 1)
	for i := range uint64(pagesAtOnce) {
		if _, known := v.pages[first+i*pageSize]; !known {
			addresses = append(addresses, first+i*pageSize)
		}
	}

	contents, err := memory.Peek(addresses, pageSize)
	if err != nil {
		return
	}
	for i, content := range contents {
		if content != nil {
			v.pages[addresses[i]] = content
		}
	}
}

// A preparer reads the pages of many addresses by few calls, so that ReadMemory finds them.
type preparer interface{ Prepare(addresses []uint64) }

// prepare prepares the memory for reads at some addresses.
func (v *view) prepare(addresses []uint64) {
	if memory, ok := v.memory.(preparer); ok {
		memory.Prepare(addresses)
	}
}

// bytes reads size bytes; nil if not all of them can be read.
func (v *view) bytes(address uint64, size int) []byte {
	buffer := make([]byte, size)
	if v.ReadMemory(address, buffer) != nil {
		return nil
	}
	return buffer
}

// word reads a word; ok is false if it cannot be read.
func (v *view) word(address uint64) (word uint64, ok bool) {
	var buffer [8]byte
	if v.ReadMemory(address, buffer[:]) != nil {
		return 0, false
	}
	return mem.Word(buffer[:], 0), true
}

// pointer reads a pointer that is not 0 and that can be one to an object.
func (v *view) pointer(address uint64) (pointer uint64, ok bool) {
	pointer, ok = v.word(address)
	return pointer, ok && isPointer(pointer)
}

// isPointer reports whether a word can be a pointer to an object: aligned, and in the lower half of
// the address space.
func isPointer(word uint64) bool { return word >= pageSize && word < 1<<56 && word%8 == 0 }

// typeOf returns the type of an object.
func (v *view) typeOf(object uint64) (uint64, bool) {
	if !isPointer(object) {
		return 0, false
	}
	return v.pointer(object + cpython.ObType)
}

// int32 reads a C int.
func (v *view) int32(address uint64) (value int32, ok bool) {
	var buffer [4]byte
	if v.ReadMemory(address, buffer[:]) != nil {
		return 0, false
	}
	return int32(mem.Word32(buffer[:], 0)), true
}
