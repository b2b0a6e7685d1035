package liveness

import (
	"encoding/binary"
	"errors"
	"path/filepath"
	"testing"

	"github.com/allocscope/allocscope/tracer/heap"
	"github.com/allocscope/allocscope/tracer/heap/glibc"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// heapsOf returns the heaps of the program, once they can be read.
func (p *program) heapsOf() Heaps {
	p.t.Helper()
	for {
		maps := mapsOf(p.t, p.process)
		heaps, err := AllocatorOf(p.process, maps).Heaps(p.process, maps)
		if err == nil {
			return heaps
		}
		if !errors.Is(err, glibc.ErrBrokenChain) {
			p.t.Fatal(err)
		}
	}
}

// chunks returns the chunks in use of the heaps and the number of bytes of all, by following the
// sizes.
func (p *program) chunks(heaps Heaps) (inUse map[uint64]uint64, sum uint64) {
	p.t.Helper()
	inUse = make(map[uint64]uint64)
	for _, s := range heaps.Spans {
		content := make([]byte, s.Len())
		if err := p.process.ReadMemory(s.Start, content); err != nil {
			p.t.Fatal(err)
		}
		header := func(at uint64) uint64 { return binary.LittleEndian.Uint64(content[at+8:]) }

		for at := uint64(0); at < s.Len(); {
			size := header(at) &^ 7            // SIZE_BITS
			if size == 0 && s.Len()-at <= 32 { // a fencepost
				break
			}
			next := at + size
			if size < 16 || size%16 != 0 || next > s.Len() {
				p.t.Fatalf("chunk at %#x of %#x has %d bytes", s.Start+at, s, size)
			}
			if next < s.Len() && header(next)&1 == 1 && !heaps.Cached[s.Start+at] {
				inUse[s.Start+at] = size
			}
			at = next
		}
		sum += s.Len()
	}
	return inUse, sum
}

// The program runs until it has had so many blocks.
const minLive, minFreed = 300, 3000

func (p *program) awaitBlocks() {
	for live := 0; live < minLive || len(p.freedObjects()) < minFreed; {
		objects, _ := p.liveObjects()
		live = len(objects)
	}
}

func TestHeaps(t *testing.T) {
	for _, root := range append(releases(), "/") {
		t.Run("chunks with a mapping of their own, "+filepath.Base(root), func(t *testing.T) {
			mustHoldMapped(t, root)
		})
	}

	t.Run("another malloc", func(t *testing.T) {
		t.Setenv("LD_PRELOAD", "libjemalloc.so.2")
		p := startProgram(t, "lru")
		a := AllocatorOf(p.process, mapsOf(p.t, p.process))
		if _, err := a.Heaps(p.process, mapsOf(t, p.process)); !errors.Is(err, errNotGlibc) {
			t.Error(err)
		}
	})
}

// mustHoldMapped compares the chunks with a mapping of their own with the objects of Python. All of
// an object is in the memory of its chunk, which is a mapping up to its end.
func mustHoldMapped(t *testing.T, root string) {
	t.Helper()
	p, objects := startPythonScript(t, root, pythonLargeObjects)
	heaps := tracertest.Must(AllocatorOf(p, mapsOf(t, p)).Heaps(p, mapsOf(t, p)))(t)

	live := make(map[uint64]bool)
	for _, o := range objects["live"] {
		live[o.Address] = true
		chunk, ok := heaps.Mapped.Find(o.Address)
		if !ok || chunk.Start != o.Address-16 || chunk.End < o.Address+o.Size ||
			chunk.End%process.PageSize != 0 {
			t.Errorf("%d bytes at %#x are in chunk %#x", o.Size, o.Address, chunk)
		}
	}
	for _, o := range objects["dead"] {
		if chunk, ok := heaps.Mapped.Find(o.Address); ok && !live[chunk.Start+16] {
			t.Errorf("%d bytes that were freed at %#x are in chunk %#x", o.Size, o.Address, chunk)
		}
	}
	if len(live) < 100 {
		t.Errorf("%d objects", len(live))
	}
}

// pythonLargeObjects makes objects above the size from which on malloc makes a mapping, and frees
// some.
const pythonLargeObjects = `
import random, sys
random.seed(1)
live = [bytes(random.randrange(200000, 4000000)) for _ in range(200)]
dead = [bytes(5000000) for _ in range(20)]
for kind, objects in ("live", live), ("dead", dead):
    for b in objects:
        print(kind, id(b), sys.getsizeof(b))
del b, objects, dead
print("ready", flush=True)
input()
`

// mustHoldBlocks compares the heaps of a program that stands still with its table of blocks. All
// sizes of all chunks of all releases are multiples of 16, with three flags: SIZE_BITS.
func (p *program) mustHoldBlocks() {
	p.t.Helper()
	p.awaitBlocks()
	p.Say("stop")
	p.Await("stopped")
	heaps := p.heapsOf()
	inUse, sum := p.chunks(heaps)
	if info := p.info(); sum > info.heaps || sum < info.heaps-info.heaps/100-(64<<10) {
		p.t.Errorf("the heaps have %d bytes; malloc_info: %+v", sum, info)
	}

	live, _ := p.liveObjects()
	alive, mapped := make(map[uint64]bool), 0
	for _, o := range live {
		alive[o.Address] = true
		size, ok := inUse[o.Address-16]
		switch {
		case p.isMapped(o):
			mapped++
		case !ok || size < o.Size+8:
			p.t.Errorf("a block of %d bytes at %#x is in a chunk of %d bytes", o.Size, o.Address, size)
		}
	}

	freed, missed := 0, 0
	for _, o := range p.freedObjects() {
		if alive[o.Address] {
			continue
		}
		freed++
		if inUse[o.Address-16] != 0 {
			missed++ // or the program's object there is not in its table
		}
	}
	p.t.Logf("%d live blocks, %d with a mapping; %d freed, %d missed, %d chunks cached in %d spans",
		len(live), mapped, freed, missed, len(heaps.Cached), len(heaps.Spans))
	if len(alive) < minLive/2 || freed < minFreed/10 || missed > freed/50 {
		p.t.Error("too few are found")
	}
	p.Say("go")
	p.Await("going")
}

// isMapped reports whether malloc has made a mapping for a block: IS_MMAPPED.
func (p *program) isMapped(o heap.Object) bool {
	var header [8]byte
	if err := p.process.ReadMemory(o.Address-8, header[:]); err != nil {
		p.t.Fatal(err)
	}
	return header[0]&2 != 0
}
