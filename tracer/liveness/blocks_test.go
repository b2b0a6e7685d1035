package liveness

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/allocscope/allocscope/tracer/heap"
)

func TestBlocks(t *testing.T) {
	for _, c := range []struct {
		library string
		percent int // of the free blocks that are known to be free: see delayedBlocks of mimalloc
	}{{"libjemalloc.so.2", 95}, {"libmimalloc.so.2", 50}} {
		for _, mode := range []string{"mixed", "fast", "lru"} {
			t.Run(c.library+" "+mode, func(t *testing.T) {
				t.Setenv("LD_PRELOAD", c.library)
				p := startProgram(t, mode)
				if c.percent > 50 || mode != "lru" { // that one is slow
					p.mustShow(c.percent)
				}
				p.mustFindBlocks(c.percent)
			})
		}
	}

	t.Run("glibc", func(t *testing.T) {
		p := startProgram(t, "lru")
		a := AllocatorOf(p.process, mapsOf(p.t, p.process))
		if _, err := a.Blocks(p.process, mapsOf(t, p.process)); !errors.Is(err, heap.ErrNoBlocks) {
			t.Error(err)
		}
	})
}

// mustFindBlocks compares the blocks of a program that stands still with its table.
func (p *program) mustFindBlocks(percent int) {
	p.t.Helper()
	p.awaitBlocks()
	p.Say("stop")
	p.Await("stopped")
	maps := mapsOf(p.t, p.process)
	blocks, err := AllocatorOf(p.process, maps).Blocks(p.process, maps)
	if err != nil {
		p.t.Fatal(err)
	}

	live, _ := p.liveObjects()
	alive := make(map[uint64]bool)
	missed := 0
	for _, o := range live {
		alive[o.Address] = true
		block, ok := blocks.At(o.Address + rand.Uint64N(o.Size))
		// An aligned object may begin inside a block.
		switch {
		case !ok:
			missed++
		case block.Start > o.Address || o.Address-block.Start >= max(16<<8, block.Len()/2) ||
			block.End < o.Address+o.Size:
			p.t.Errorf("%d bytes at %#x are in block %#x", o.Size, o.Address, block)
		}
	}

	// Those that Next finds, piece by piece, are the same.
	all := make(map[uint64]bool)
	for _, s := range heap.Spans(mapsOf(p.t, p.process)) {
		for at := s.Start; at < s.End; at += 300_000 {
			end := min(s.End, at+300_000)
			for block, ok := blocks.Next(at, end); ok; block, ok = blocks.Next(block.Start+1, end) {
				same, isLive := blocks.At(block.Start)
				isInside := block.Start >= at && block.Start < end
				if all[block.Start] || !isInside || !isLive || same != block {
					p.t.Fatalf("%#x is in %#x, %t: in piece %#x", block, same, isLive, at)
				}
				all[block.Start] = true
			}
		}
	}
	for _, o := range live {
		if block, ok := blocks.At(o.Address); ok && !all[block.Start] {
			p.t.Errorf("block %#x is not found", block)
		}
	}

	p.mustFindSmall(blocks, live)

	freed, shown := 0, 0
	for _, o := range p.freedObjects() {
		if alive[o.Address] {
			continue
		}
		freed++
		if block, ok := blocks.At(o.Address); !ok || block.Start != o.Address {
			shown++ // free, or in a block that is larger now
		}
	}
	p.t.Logf("%d live blocks of %d, %d missed; %d freed, %d shown",
		len(live), len(all), missed, freed, shown)
	if len(live) < minLive/2 || missed > len(live)/50 || freed < minFreed/10 ||
		shown < freed*percent/100 {
		p.t.Error("too few are found")
	}
}

// mustFindSmall compares the small blocks of jemalloc with the objects that are alive.
func (p *program) mustFindSmall(blocks heap.Blocks, live []heap.Object) {
	p.t.Helper()
	const most = 80 << 10
	heaps := heap.Spans(mapsOf(p.t, p.process))
	slabs, extents, err := blocks.Small(heaps, most)
	if err != nil {
		p.t.Fatal(err)
	}

	if slabs == nil && extents == nil { // mimalloc
		return
	}
	small := slabs.Union(extents)
	inSlabs, inExtents, large := 0, 0, 0
	for _, o := range live {
		block, ok := blocks.At(o.Address)
		isSmall := block.Len() <= most
		switch {
		case !ok:
		case isSmall && !small.Contains(block), !isSmall && slabs.Contains(block):
			p.t.Errorf("block %#x of %d bytes is small: %t", block, block.Len(), !isSmall)
		case !isSmall:
			large++
		case slabs.Contains(block):
			inSlabs++
		default:
			inExtents++
		}
	}

	p.t.Logf("%d in slabs, %d in extents, %d large", inSlabs, inExtents, large)
	if inSlabs == 0 || inExtents == 0 && large > 0 {
		p.t.Error("too few are small")
	}
}
