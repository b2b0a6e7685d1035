package judge

import (
	"path"
	"slices"
	"strings"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/diagnosis"
	"github.com/allocscope/allocscope/growth/verdict"
)

// minFillShare is the share of the growth from which on a block is one of those that fill.
const minFillShare = 0.01

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
	hasRuntime := growsInRuntime(e)
	for _, block := range last.Blocks {
		if !block.IsObject && hasRuntime {
			continue
		}
		fills := float64(block.Touched - touchedFirst(window, block))
		if fills < minFillShare*grown {
			continue
		}
		b.Share += fills / grown
		b.Left += float64(block.Bytes - block.Touched)
	}
	if b.Share == 0 {
		return nil
	}
	b.Share = min(b.Share, 1)
	return b
}

// touchedFirst is how much of a block was touched at the first snapshot that has it.
func touchedFirst(window []*growth.Snapshot, block growth.Block) int64 {
	for _, s := range window {
		for _, b := range s.Residents[0].Blocks {
			if b.Start == block.Start && b.Bytes == block.Bytes {
				return b.Touched
			}
		}
	}
	return block.Touched
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
