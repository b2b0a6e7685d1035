package jemalloc

import (
	"errors"
	"testing"

	"github.com/allocscope/allocscope/tracer/heap"
	"github.com/allocscope/allocscope/tracer/heap/heaptest"
	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// FuzzCheck checks that no contents of memory make the search for the tree, or a check, panic or
// read without end.
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
		file := process.FileID{Inode: 1}
		maps := []process.Mapping{
			{Start: start, End: start + 1<<16, Read: true, Inode: 1},
			{Start: start + 1<<16, End: start + 5<<19, Read: true, Write: true, Inode: 1},
			{Start: start + 3<<20, End: start + 6<<20, Read: true, Write: true},
		}
		if _, _, err := findTree(memory, maps, file); err != nil && !errors.Is(err, errNoTree) {
			t.Fatal(err)
		}

		found := mem.Spans{{Start: start, End: start + 1<<16}}
		j := &Malloc{root: address &^ 7, variables: found}
		if size%2 == 1 {
			j.caches, j.listOffset = cacheLayouts[size/2%2], 64
		}
		objects := heaptest.Objects(start, address, size)
		states, err := j.Check(memory, maps, objects)
		isUnknown := err == nil && states[3] == heap.Unknown && states[4] == heap.Unknown
		if !isUnknown || len(states) != len(objects) {
			t.Fatalf("%v, %v", states, err)
		}
		before := memory.Reads
		blocks := tracertest.Must(j.Blocks(memory, maps))(t)
		heaptest.MustAnswer(t, blocks, objects)
		memory.Reads = before

		const maxArenaReads = maxArenas * (arenaBytes/mem.PeekSize + arenaBytes/8 + 2)
		const maxReads = maxLeaves*(nodeBytes/mem.PeekSize+2*maxLeafElements) + maxArenaReads
		if memory.Reads > maxReads+2*maxTcaches+maxCachePeeks+1<<12 {
			t.Fatalf("%d reads", memory.Reads)
		}
	})
}
