package objects

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/allocscope/allocscope/tracer/cpython"
	"github.com/allocscope/allocscope/tracer/hostile"
	"github.com/allocscope/allocscope/tracer/objects/interpreter"
	"github.com/allocscope/allocscope/tracer/process"
)

// On arm64 a page may be as large as four pools of pymalloc, or sixteen.
func TestPageSizes(t *testing.T) {
	for _, size := range []uint64{4 << 10, 16 << 10, 64 << 10} {
		t.Run(fmt.Sprintf("%d KiB", size>>10), func(t *testing.T) {
			setPageSize(t, size)
			t.Run("pools within pages", testPoolsWithinPages)
			t.Run("pages that are kept", testKeptPages)
		})
	}
}

func setPageSize(t *testing.T, size uint64) {
	t.Helper()
	before := process.PageSize
	process.PageSize = size
	t.Cleanup(func() { process.PageSize = before })
}

func testPoolsWithinPages(t *testing.T) {
	content := forgedWords(1, 256<<10)
	m := &memory{reader: newImage(content)}
	for _, pool := range []uint64{4 << 10, 16 << 10} {
		for at := uint64(0); at < uint64(len(content)); at += pool {
			if got := m.readAround(forgedAt+at, pool); !bytes.Equal(got, content[at:at+pool]) {
				t.Fatalf("the pool of %d bytes at +%d is another", pool, at)
			}
		}
	}
	if got := m.readAround(forgedAt+uint64(len(content)), 16<<10); got != nil {
		t.Errorf("%d bytes of what is not in RAM", len(got))
	}
}

// boundedReader refuses the same reads as a process.Memory.
type boundedReader struct {
	*image
	t *testing.T
}

func (b boundedReader) PeekPagesAt(addresses []uint64, buffer []byte) ([]bool, error) {
	if len(buffer) > hostile.MaxBytes || len(buffer) != len(addresses)*int(process.PageSize) {
		b.t.Errorf("%d pages into %d bytes", len(addresses), len(buffer))
	}
	return b.image.PeekPagesAt(addresses, buffer)
}

// Objects whose types are in more pages than one reading may have.
func testKeptPages(t *testing.T) {
	const typed = 4 << 20
	content := forgedWords(2, typed)
	for at := 0; at < typed; at += wordSize { // none is the head of a type
		content[at+1] &^= cpython.FlagReady >> 8
	}
	for at := uint64(0); at < typed; at += process.PageSize { // its own type may be one
		binary.LittleEndian.PutUint64(content[at:], 1)
		binary.LittleEndian.PutUint64(content[at+cpython.ObType:], forgedAt+at+process.PageSize/2)
	}
	forged := newImage(content)
	m := newMemory(nil, boundedReader{forged, t})
	m.regions = []region{{forged.span(), regionStatic}}
	pages := newPageCache(m)
	types := &typeTable{
		version: &cpython.Version{}, heads: []uint64{0}, memory: m, pages: pages,
		python: &interpreter.Runtime{},
		known:  make(map[uint64]*typeInfo), none: new(noTypes),
	}

	var objects [][]byte
	for at := uint64(0); at < typed; at += process.PageSize {
		object := binary.LittleEndian.AppendUint64(nil, 1) // ob_refcnt, and ob_type
		objects = append(objects, binary.LittleEndian.AppendUint64(object, forgedAt+at))
	}
	types.learn(objects)

	for at := uint64(0); at < typed; at += process.PageSize {
		if got := pages.kept[forgedAt+at]; !bytes.Equal(got, forged.content[at:at+process.PageSize]) {
			t.Fatalf("the page at +%d is not kept", at)
		}
	}
	if kept := uint64(len(pages.kept)) * process.PageSize; kept > maxKeptBytes {
		t.Errorf("%d bytes are kept", kept)
	}
}
