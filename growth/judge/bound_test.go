package judge

import (
	"math"
	"testing"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/verdict"
)

// filling is a process of five minutes that grows by 1 MiB/s in an array of so many MiB, made before
// the trace.
func filling(size int64) Case {
	c := growingIn(growth.KindOlder, growth.RootOlder)
	for _, s := range c.Snapshots {
		s.Residents[0].Blocks = []growth.Block{{
			Start: 1 << 40, Bytes: size * mib, IsObject: true,
			Touched: int64(mebibytes(s.Elapsed.Seconds())),
		}}
	}
	return c
}

// changed changes the blocks of all snapshots.
func (c Case) changed(change func(second float64, r *growth.Resident)) Case {
	for _, s := range c.Snapshots {
		change(s.Elapsed.Seconds(), &s.Residents[0])
	}
	return c
}

func TestBound(t *testing.T) {
	frames := func(c Case, frame growth.Frame) Case {
		for _, s := range c.Snapshots {
			s.Residents[0].Blocks[0].IsObject = false
			s.Holdings[0].Stack = &growth.Stack{
				PID: judgedPID, Root: growth.RootOlder, Frames: []growth.Frame{frame},
			}
		}
		return c
	}
	limited := filling(800)
	limited.Headroom = 400 * mib

	for name, c := range map[string]struct {
		Case
		want verdict.Class
		left float64 // MiB; 0: the end is not known
	}{
		"an array that fills":     {filling(800), verdict.ClassFillsUp, 500},
		"the limit is met before": {limited, verdict.ClassGrowing, 500},
		"it is replaced by larger ones": {filling(0).changed(func(second float64, r *growth.Resident) {
			r.Blocks[0].Bytes = int64(mebibytes(second) * 2)
		}), verdict.ClassGrowing, 0},
		"each is made and filled at once": {filling(0).changed(func(second float64, r *growth.Resident) {
			r.Blocks = []growth.Block{{
				Start: uint64(second) << 30, Bytes: 100 * mib, Touched: 99 * mib, IsObject: true,
			}}
		}), verdict.ClassGrowing, 0},
		"made in the trace, and filled slowly": {filling(800).changed(
			func(second float64, r *growth.Resident) {
				if second < 10 {
					r.Blocks = nil
				}
			}), verdict.ClassFillsUp, 500},
		"one is filled slowly after the other": {filling(0).changed(
			func(second float64, r *growth.Resident) {
				r.Blocks = nil
				for i := range int64(second)/100 + 1 {
					r.Blocks = append(r.Blocks, growth.Block{
						Start: uint64(i) << 32, Bytes: 100 * mib, IsObject: true,
						Touched: min(100, int64(second)-100*i) * mib,
					})
				}
			}), verdict.ClassGrowing, 0},
		"replaced by a larger one before it is full": {filling(800).changed(
			func(second float64, r *growth.Resident) {
				if second < 100 {
					r.Blocks[0].Start, r.Blocks[0].Bytes = 1<<41, 500*mib
				}
			}), verdict.ClassGrowing, 0},
		"extended where it is": {filling(800).changed(
			func(second float64, r *growth.Resident) {
				if second < 100 {
					r.Blocks[0].Bytes = 500 * mib
				}
			}), verdict.ClassGrowing, 0},
		"continued by a mapping that is not touched yet": {filling(800).changed(
			func(second float64, r *growth.Resident) {
				if second > 100 {
					r.Blocks = append(r.Blocks, growth.Block{
						Start: 1<<40 + 800*mib, Bytes: 100 * mib, IsObject: true,
					})
				}
			}), verdict.ClassGrowing, 0},
		"beside one that is little touched, and as old": {filling(800).changed(
			func(_ float64, r *growth.Resident) {
				r.Blocks = append(r.Blocks, growth.Block{
					Start: 1 << 41, Bytes: 100 * mib, Touched: mib, IsObject: true,
				})
			}), verdict.ClassFillsUp, 500},
		"most grows elsewhere": {filling(800).changed(func(second float64, r *growth.Resident) {
			r.Blocks[0].Touched = int64(0.7 * mebibytes(second))
		}), verdict.ClassGrowing, 0},
		"a large mapping that hardly grows": {filling(800).changed(
			func(second float64, r *growth.Resident) {
				r.Blocks = append(r.Blocks, growth.Block{Start: 1, Bytes: 1 << 45, IsObject: true})
			}), verdict.ClassFillsUp, 500},
		"a mapping": {
			frames(filling(800), growth.Frame{Function: "fill", Python: true}),
			verdict.ClassFillsUp, 500,
		},
		"the heap of a runtime": {frames(filling(800), growth.Frame{
			Function: "G1Allocate", Module: &growth.Module{Path: "/usr/lib/jvm/server/libjvm.so"},
		}), verdict.ClassGrowing, 0},
		"code that is not known": {
			frames(filling(800), growth.Frame{Function: "[unknown]+0x17"}),
			verdict.ClassGrowing, 0,
		},
	} {
		got := Process(c.Case)
		if got.Class != c.want || (got.Fill != nil) != (c.left > 0) {
			t.Errorf("%s: %s (%s), %+v", name, got.Class, got.Reason, got.Findings.Bound)
			continue
		}
		if c.left > 0 && math.Abs(got.Fill.Left-c.left*mib) > 1 {
			t.Errorf("%s: %.0f MiB more, want %.0f", name, got.Fill.Left/mib, c.left)
		}
	}
}
