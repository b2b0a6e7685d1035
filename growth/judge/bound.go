package judge

import (
	"path"
	"slices"
	"strings"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/diagnosis"
	"github.com/allocscope/allocscope/growth/verdict"
)

const (
	// minFillShare is the share of the growth from which on a block is one of those that fill.
	minFillShare = 0.01
	// maxLeftOfFull is the share of a block that a full one may have left.
	maxLeftOfFull = 0.02
	// maxLeftOfOthers bounds the untouched bytes of blocks that were made in the window and hardly
	// fill, in parts of all that is left: a mapping that was extended has more.
	maxLeftOfOthers = 0.1
)

// boundOf is the end of the growth of a process, as far as it lies in blocks of a known size: arrays
// and mappings whose pages are touched for the first time. Growth in a block counts from the
// snapshot on that has it first, so that blocks which are made and filled at once do not count.
// It returns nil where nothing grows so. snapshots are of one process, and were scanned.
func boundOf(snapshots []*growth.Snapshot, e diagnosis.Evidence) *verdict.Bound {
	var window []*growth.Snapshot
	for _, s := range snapshots {
		if s.Elapsed >= e.Start && s.Elapsed <= e.Start+e.Elapsed {
			window = append(window, s)
		}
	}
	if len(window) < 2 {
		return nil
	}

	first, last := window[0].Residents[0], window[len(window)-1].Residents[0]
	grown := float64(last.RSS - first.RSS)
	if first.RSS == growth.Unknown || last.RSS == growth.Unknown || grown <= 0 {
		return nil
	}

	b := &verdict.Bound{Of: verdict.BoundMemory, Now: float64(last.RSS)}
	least := minFillShare * grown
	filling := fillingBlocks(window, least, growsInRuntime(e))
	for _, f := range filling {
		b.Share += float64(f.fills) / grown
		b.Left += float64(f.Bytes - f.Touched)
	}
	isExtended := leftOfOthers(window, least) > maxLeftOfOthers*b.Left
	if b.Share == 0 || isExtended || hasGone(window, least) {
		return nil
	}
	b.Share = min(b.Share, 1)
	return b
}

// hasGone reports whether a block that filled in the window, by so many bytes at least, is gone, or
// has another size now: another block has taken its place, and may be replaced as well.
func hasGone(window []*growth.Snapshot, least float64) bool {
	type key struct {
		start uint64
		bytes int64
	}
	first, latest := make(map[key]int64), make(map[key]int64)
	for _, s := range window {
		for _, b := range s.Residents[0].Blocks {
			k := key{b.Start, b.Bytes}
			if _, ok := first[k]; !ok {
				first[k] = b.Touched
			}
			latest[k] = b.Touched
		}
	}

	for _, b := range window[len(window)-1].Residents[0].Blocks {
		delete(latest, key{b.Start, b.Bytes})
	}
	for k, touched := range latest {
		if float64(touched-first[k]) >= least {
			return true
		}
	}
	return false
}

// leftOfOthers is the untouched bytes of the blocks that were made in the window and filled by
// less.
func leftOfOthers(window []*growth.Snapshot, least float64) (left float64) {
	for _, b := range window[len(window)-1].Residents[0].Blocks {
		if fills, isYoung := filledSince(window, b); isYoung && float64(fills) < least {
			left += float64(b.Bytes - b.Touched)
		}
	}
	return left
}

// A fillingBlock is a block of which so many bytes were touched since the first snapshot that has
// it. It isYoung if that is not the first one of the window.
type fillingBlock struct {
	growth.Block
	fills   int64
	isYoung bool
}

// fillingBlocks are the blocks of a window that fill by so many bytes at least. A young block does
// not count beside one that is full: then each may be followed by another one.
func fillingBlocks(window []*growth.Snapshot, least float64, objectsOnly bool) []fillingBlock {
	var filling []fillingBlock
	hasFull := false
	for _, block := range window[len(window)-1].Residents[0].Blocks {
		if objectsOnly && !block.IsObject {
			continue
		}
		f := fillingBlock{Block: block}
		f.fills, f.isYoung = filledSince(window, block)
		if float64(f.fills) >= least {
			filling = append(filling, f)
			left := float64(block.Bytes - block.Touched)
			hasFull = hasFull || left < maxLeftOfFull*float64(block.Bytes)
		}
	}

	return slices.DeleteFunc(filling, func(f fillingBlock) bool { return f.isYoung && hasFull })
}

// filledSince is how much of a block was touched since the first snapshot that has it, and whether
// that is a later one than the first.
func filledSince(window []*growth.Snapshot, block growth.Block) (bytes int64, isYoung bool) {
	for i, s := range window {
		for _, b := range s.Residents[0].Blocks {
			if b.Start == block.Start && b.Bytes == block.Bytes {
				return block.Touched - b.Touched, i > 0
			}
		}
	}
	return 0, true
}

// runtimes are prefixes of the files of runtimes that manage a heap in mappings of their own: these
// grow again once they are full.
var runtimes = []string{
	"libjvm", "node", "libnode", "libv8", "libcoreclr", "libmono", "libluajit", "luajit", "libruby",
	"libphp", "php", "beam",
}

// growsInRuntime reports whether the mappings that grow may be the heap of a runtime: a stack that
// touches them is of one, or of code that is not known, such as generated code or a program with a
// malloc of its own.
func growsInRuntime(e diagnosis.Evidence) bool {
	for i := range e.Rows {
		r := &e.Rows[i]
		isMapping := r.Kind == growth.KindOlder || r.Kind == growth.KindMmap
		if r.PID == e.PID && isMapping && r.Delta() > 0 && isOfRuntime(r.Stack) {
			return true
		}
	}
	return false
}

func isOfRuntime(s *growth.Stack) bool {
	return slices.ContainsFunc(s.Frames, func(f growth.Frame) bool {
		if f.Python || f.Module == nil {
			return strings.HasPrefix(f.Function, "[unknown]")
		}
		isPrefix := func(prefix string) bool {
			return strings.HasPrefix(path.Base(f.Module.Path), prefix)
		}
		return slices.ContainsFunc(runtimes, isPrefix)
	})
}
