package trend

import (
	"math"
	"testing"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/growthtest"
)

// twoStacks is a trace of eight seconds: memory of one stack grows in the first half, and memory of
// the other one in the second half.
func twoStacks(kind growth.Kind, one, other []growth.Frame) []*growth.Snapshot {
	const seconds, weight = 8, 1000
	births := func(from, to, until int) (births []growth.Birth) {
		for i := from; i <= min(to, until); i++ {
			births = append(births, growth.Birth{Bin: i, InuseBytes: 100 * weight})
		}
		return births
	}

	stacks := []*growth.Stack{{ID: 1, PID: 7, Frames: one}, {ID: 2, PID: 7, Frames: other}}
	var snapshots []*growth.Snapshot
	var bins []time.Duration
	for at := range seconds {
		bins = append(bins, time.Duration(at)*time.Second)
		s := &growth.Snapshot{Elapsed: bins[at], Interval: 1, Bins: bins}
		for i, born := range [][]growth.Birth{
			births(0, seconds/2-1, at), births(seconds/2, seconds-1, at),
		} {
			h := growth.Holding{
				Stack: stacks[i], Kind: kind, InuseBytes: int64(len(born)) * 100 * weight,
			}
			if kind.IsSampled() && at == seconds-1 {
				h.Births = born
			}
			s.Holdings = append(s.Holdings, h)
		}
		snapshots = append(snapshots, s)
	}
	return snapshots
}

func TestOrigins(t *testing.T) {
	generated := func(name string) growth.Frame {
		return growthtest.NativeFrame(name, growth.ModuleAnonymous)
	}
	malloc := growthtest.NativeFrame("malloc", "/usr/lib/libc.so.6")
	mmap := growthtest.NativeFrame("mmap64", "/usr/lib/libc.so.6")
	buffer := growthtest.NativeFrame("node::AllocateBuffer", "/usr/bin/node")
	entry := growthtest.NativeFrame("Builtins_InterpreterEntry", "/usr/bin/node")

	for name, c := range map[string]struct {
		kind       growth.Kind
		one, other []growth.Frame
		together   bool
	}{
		"a function is compiled again": {
			growth.KindHeap,
			[]growth.Frame{malloc, buffer, generated("[anonymous]+0x7f01"), entry},
			[]growth.Frame{malloc, buffer, generated("[anonymous]+0x7f92")},
			true,
		},
		"and has a name": {
			growth.KindHeap,
			[]growth.Frame{malloc, buffer, generated("remember"), entry},
			[]growth.Frame{malloc, buffer, generated("remember")},
			true,
		},
		"two functions with names": {
			growth.KindHeap,
			[]growth.Frame{malloc, buffer, generated("remember")},
			[]growth.Frame{malloc, buffer, generated("forget")},
			false,
		},
		"two call sites of one runtime": {
			growth.KindHeap,
			[]growth.Frame{malloc, buffer, generated("[anonymous]+0x7f01")},
			[]growth.Frame{
				malloc, growthtest.NativeFrame("node::Open", "/usr/bin/node"),
				generated("[anonymous]+0x7f02"),
			},
			false,
		},
		"a runtime maps its heap": {
			growth.KindMmap,
			[]growth.Frame{mmap, growthtest.NativeFrame("v8::Allocate", "/usr/bin/node"), entry},
			[]growth.Frame{mmap, growthtest.NativeFrame("v8::Collect", "/usr/bin/node")},
			true,
		},
		"a program maps memory": {
			growth.KindMmap,
			[]growth.Frame{mmap, growthtest.NativeFrame("load", "/srv/app")},
			[]growth.Frame{mmap, growthtest.NativeFrame("store", "/srv/app")},
			false,
		},
		"native code without generated code": {
			growth.KindHeap,
			[]growth.Frame{malloc, buffer, entry},
			[]growth.Frame{malloc, buffer},
			false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, trend := range JudgeStacks(twoStacks(c.kind, c.one, c.other), lasting(0, 7), 1) {
				if got := trend.Trend == growth.TrendAccumulating; got != c.together {
					t.Errorf("stack %d is %s, want to be judged with the other: %v", trend.Stack.ID,
						trend.Trend, c.together)
				}
			}
		})
	}
}

// Each of the two stacks has too few samples, and grew in one half of the window alone.
func TestOriginsInBursts(t *testing.T) {
	const samples = 12
	evidence := growth.BurstEvidence{
		Bursts: 4, Fingerprinted: samples, Unchanged: samples, Diversity: 1, SizeClass: 48,
	}
	site := func(name string) []growth.Frame {
		return []growth.Frame{
			growthtest.NativeFrame("malloc", "/usr/lib/libc.so.6"),
			growthtest.NativeFrame("node::AllocateBuffer", "/usr/bin/node"),
			growthtest.NativeFrame(name, growth.ModuleAnonymous),
		}
	}

	for other, together := range map[string]bool{"[anonymous]+0x7f92": true, "forget": false} {
		trace := twoStacks(growth.KindHeap, site("[anonymous]+0x7f01"), site(other))
		for i, s := range trace {
			s.Heap = growth.HeapCoverage{Bursts: 1 + i, Open: time.Second, Extrapolation: 1}
			for k := range s.Holdings {
				of := evidence
				of.Bytes = float64(s.Holdings[k].InuseBytes)
				s.Holdings[k].Evidence, s.Holdings[k].Samples = &of, samples
			}
		}

		for _, trend := range JudgeStacks(trace, lasting(0, 7), math.NaN()) {
			if got := trend.Trend == growth.TrendAccumulating; got != together {
				t.Errorf("beside %s, stack %d is %s %s", other, trend.Stack.ID, trend.Trend,
					trend.Undecided)
			}
		}
	}
}
