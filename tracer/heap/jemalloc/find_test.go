package jemalloc

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/process"
)

// words is memory by the addresses of its words; all others are 0.
type words map[uint64]uint64

func (w words) Peek(addresses []uint64, size int) ([][]byte, error) {
	contents := make([][]byte, len(addresses))
	for i, address := range addresses {
		contents[i] = make([]byte, size)
		for at := 0; at+8 <= size; at += 8 {
			binary.LittleEndian.PutUint64(contents[i][at:], w[address+uint64(at)])
		}
	}
	return contents, nil
}

const (
	library   = uint64(0x7f8000000000) // its variables
	arenas    = library + 16<<20       // anonymous memory with base blocks and extents
	rootAt    = library + 0x8b18
	leafAt    = arenas + 4<<20
	edataAt   = arenas + 1<<20
	extentsAt = arenas + 16<<20
)

// addExtents adds extents of four pages to the tree: slabs, and large ones.
func (w words) addExtents(n int) {
	w[rootAt+8*(extentsAt>>leafShift)] = leafAt
	for i := range uint64(max(0, n)) {
		edata, start := edataAt+i*edataBytes, extentsAt+i*4*pageBytes
		isSlab, szind := i%2, uint64(36-2*(i%2)) // 16 KiB, or slabs of 12 KiB
		w[edata] = isSlab<<12 | szind<<20
		w[edata+addrOffset], w[edata+sizeOffset] = start, 4*pageBytes
		for page := range uint64(4) {
			if isSlab == 1 || page == 0 || page == 3 {
				at := (start>>pageBits + page) & levelMask
				w[leafAt+8*at] = szind<<48 | edata | isSlab
			}
		}
	}
}

// addDecoy adds a variable before the tree that leads to structures of another kind. A leaf would
// have an extent of size class 0 in the first words of each: it has the page 0, and is endless.
func (w words) addDecoy(n int) {
	const decoy = arenas + 8<<20
	w[library+0x6e0] = decoy
	for i := range uint64(max(0, n)) {
		w[decoy+64*i] = decoy + 3<<20 + 256*i
		w[decoy+3<<20+256*i+sizeOffset] = arenas
	}
}

func TestFindTree(t *testing.T) {
	file := process.FileID{Inode: 1}
	maps := []process.Mapping{
		{Start: library, End: library + 1<<12, Read: true, Write: true, Inode: 1},
		{Start: library + 1<<12, End: library + 9<<18, Read: true, Write: true},
		{Start: arenas, End: arenas + 1<<30, Read: true, Write: true},
	}

	for name, c := range map[string]struct {
		extents, decoys int
		isFound         bool
	}{
		"a tree":                      {20, 0, true},
		"other structures before it":  {20, 1, true},
		"many other structures":       {20, 300, true},
		"a tree of two extents":       {2, 1, true},
		"one extent may be by chance": {1, 0, false},
		"a tree without extents":      {0, 0, false},
		"other structures alone":      {0, 300, false},
		"a variable near the leaf":    {20, -1, true},
	} {
		t.Run(name, func(t *testing.T) {
			memory := make(words)
			memory.addExtents(c.extents)
			memory.addDecoy(c.decoys)
			if c.decoys < 0 { // eight pages off
				memory[library+0x6e0] = leafAt - 64
			}

			root, variables, err := findTree(memory, maps, file)
			switch {
			case !c.isFound && !errors.Is(err, errNoTree):
				t.Errorf("%#x, %v", root, err)
			case c.isFound && (err != nil || root != rootAt):
				t.Errorf("%#x, %v, want %#x", root, err, rootAt)
			case c.isFound && !variables.Contains(mem.Span{Start: root, End: root + nodeBytes}):
				t.Errorf("%#x is not in %#x", root, variables)
			}
		})
	}
}

// An extent may reach from one leaf into the next one.
func TestIndexOf(t *testing.T) {
	const gib = 1 << leafShift
	e := extentData{address: 5*gib - 2*pageBytes + 64, size: 4 * pageBytes}
	for offset, want := range map[uint64]int{
		gib - 2*pageBytes: 4, gib - pageBytes: -1, 0: -1, pageBytes: 5, 2 * pageBytes: -1,
	} {
		got := -1
		if index, ok := e.indexOf(offset); ok {
			got = int(index)
		}
		if got != want {
			t.Errorf("%#x: %d, want %d", offset, got, want)
		}
	}
}
