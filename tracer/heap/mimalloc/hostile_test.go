package mimalloc

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/allocscope/allocscope/tracer/heap"
	"github.com/allocscope/allocscope/tracer/heap/heaptest"
	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/process"
)

// FuzzCheck checks that no contents of memory make the search for segments, or a check, panic or read
// without end.
func FuzzCheck(f *testing.F) {
	const start = uint64(0x7f0000000000)
	for seed := range uint64(20) {
		f.Add(heaptest.ForgedWords(seed, start), seed, start+seed*16, uint64(100))
	}

	f.Fuzz(func(t *testing.T, content []byte, holes, address, size uint64) {
		if len(content) == 0 {
			return
		}
		memory := &heaptest.Forgery{Content: content, Holes: holes}
		maps := []process.Mapping{{Start: start, End: start + 1<<30, Read: true, Write: true}}
		if _, err := findSegments(memory, maps); err != nil && !errors.Is(err, errNoSegment) &&
			!errors.Is(err, errNoMemory) {
			t.Fatal(err)
		}

		m := &Malloc{cookie: binary.LittleEndian.Uint64(append(content, make([]byte, 8)...))}
		objects := heaptest.Objects(start, address, size)
		states, err := m.Check(memory, maps, objects)
		isUnknown := err == nil && states[3] == heap.Unknown && states[4] == heap.Unknown
		if !isUnknown || len(states) != len(objects) {
			t.Fatalf("%v, %v", states, err)
		}
		if memory.Reads > maxPageBytes/mem.PeekSize+maxDelayedBlocks+1<<14 {
			t.Fatalf("%d reads", memory.Reads)
		}

		memory.Reads = 0
		blocks, err := m.Blocks(memory, maps)
		if err != nil && !errors.Is(err, heap.ErrNoBlocks) {
			t.Fatal(err)
		}
		if err == nil {
			heaptest.MustAnswer(t, blocks, objects)
		}
		if memory.Reads > maxLearnedPages*(2+mediumPage/mem.PeekSize)+2*maxTriedPages+4*maxDelayedBlocks {
			t.Fatalf("%d reads for blocks", memory.Reads)
		}
	})
}
