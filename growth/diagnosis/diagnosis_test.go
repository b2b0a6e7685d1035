package diagnosis

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/breakdown"
	"github.com/allocscope/allocscope/growth/claim"
	"github.com/allocscope/allocscope/growth/growthtest"
	"github.com/allocscope/allocscope/growth/trend"
	"github.com/allocscope/allocscope/growth/verdict"
)

const (
	diagnosedPID = 7
	mib          = 1 << 20
)

// A scene is evidence over a window of two minutes, in which the RSS grows.
type scene struct{ Evidence }

func newScene() *scene {
	return &scene{Evidence{
		PID: diagnosedPID, Class: verdict.ClassGrowing, Elapsed: 2 * time.Minute,
	}}
}

// row adds memory that grows by so many MiB.
func (s *scene) row(kind growth.Kind, stack *growth.Stack, grown, err float64) *scene {
	const start = 500 * mib
	s.Rows = append(s.Rows, breakdown.Row{
		PID: s.PID, Kind: kind, Stack: stack, Start: start, End: start + int64(grown*mib),
		Error: err * mib,
	})
	return s
}

// named adds memory without an allocation site.
func (s *scene) named(kind growth.Kind, root string, grown, err float64) *scene {
	return s.row(kind, growth.NamedStack(diagnosedPID, root), grown, err)
}

// allocated adds the memory of a stack, and its trend.
func (s *scene) allocated(
	kind growth.Kind, frame growth.Frame, of growth.Trend, grown, err float64,
) *scene {
	stack := &growth.Stack{
		ID: uint64(len(s.Rows) + 1), PID: diagnosedPID, Frames: []growth.Frame{frame},
	}
	s.Trends = append(s.Trends, trend.StackTrend{Stack: stack, Kind: kind, Trend: of})
	return s.row(kind, stack, grown, err)
}

// stored adds the growth of the storages of tensors in MiB, between two moments in seconds.
func (s *scene) stored(from, to, grown, margin float64) *scene {
	s.Storages = Storages{
		Bytes: grown * mib, Margin: margin * mib,
		From: time.Duration(from * float64(time.Second)), To: time.Duration(to * float64(time.Second)),
	}
	return s
}

func (s *scene) but(change func(s *scene)) *scene {
	change(s)
	return s
}

// walked adds a walk of malloc's heaps at so many seconds, with so many MiB free.
func (s *scene) walked(second, free int) *scene {
	s.Walks = append(s.Walks, growth.HeapWalk{
		At: time.Duration(second) * time.Second, FreeResident: int64(free) * mib,
	})
	return s
}

var (
	remember = growthtest.PythonFrame("remember", "/src/train.py", 7)
	compute  = growthtest.PythonFrame("compute", "/src/train.py", 9)
	inPython = growthtest.NativeFrame("_PyObject_Malloc", "/usr/bin/python3.13")
	pin      = growthtest.NativeFrame("at::native::_pin_memory", "/x/libtorch.so")
)

func beforeTracing() *growth.Stack {
	return growth.NamedStack(diagnosedPID, "[before tracing]", "heap")
}

// text has the parts in MiB: "heap-leak 60 high, undecided 40".
func text(all []Diagnosis) string {
	var parts []string
	for _, d := range all {
		line := fmt.Sprintf("%s %.0f %s", d.Cause, float64(d.Bytes)/mib, d.Confidence)
		if d.Free != 0 {
			line += " walked"
		}
		parts = append(parts, strings.TrimSpace(line))
	}
	return strings.Join(parts, ", ")
}

func TestDiagnose(t *testing.T) {
	const (
		heap, retained, unclassified = growth.KindHeap, growth.KindRetained, growth.KindUnclassified

		free, unknown = "[heap: free but resident]", "[heap: unclassified]"
	)
	leaking := func(grown, err float64) *scene {
		return newScene().allocated(heap, remember, growth.TrendAccumulating, grown, err)
	}
	inBursts := func(s *scene) { s.Missing = growth.Losses{{Kind: claim.Bursts}} }
	lost := func(pid int) func(s *scene) {
		return func(s *scene) {
			s.Missing = growth.Losses{{Kind: growth.LossLiveFull, Count: 1, PID: pid}}
		}
	}

	for name, c := range map[string]struct {
		*scene
		want string
	}{
		"a stack that accumulates": {leaking(100, 0), "heap-leak 100 high"},
		"with the headers of its objects": {
			leaking(100, 0).named(growth.KindMetadata, "[heap: allocator metadata]", 20, 0),
			"heap-leak 120 high",
		},
		"with a large error":        {leaking(100, 30), "heap-leak 100 medium"},
		"with a larger error":       {leaking(100, 60), "heap-leak 100 low"},
		"not proven":                {leaking(100, 100), "undecided 100"},
		"stacks that are transient": {newScene().allocated(heap, compute, growth.TrendTransient, 90, 0), "undecided 90"},
		"a leak in bursts": {
			leaking(60, 6).named(unclassified, unknown, 40, 6).but(inBursts),
			"heap-leak 60 medium, undecided 40",
		},
		"a leak in memory from before tracing": {
			leaking(100, 0).row(growth.KindBeforeTracing, beforeTracing(), -70, 0),
			"heap-leak 30 high",
		},
		"a leak in free memory, and pages of a file": {
			leaking(100, 0).named(retained, free, -100, 0).named(growth.KindFile, "[file: /x]", 9, 0),
			"page-cache 9 high",
		},
		"freed and kept": {
			newScene().named(retained, free, 97, 1).
				allocated(heap, compute, growth.TrendNoGrowth, 3, 1),
			"fragmentation 97 high, undecided 3",
		},
		"freed, kept, and not yet used again": {
			newScene().named(retained, free, 97, 1).
				allocated(heap, compute, growth.TrendNoGrowth, -40, 1),
			"fragmentation 57 high",
		},
		"a leak and fragmentation": {
			leaking(66, 1).named(retained, free, 33, 1),
			"heap-leak 66 high, fragmentation 33 high",
		},
		"free or alive, in bursts": {
			newScene().named(unclassified, unknown, 97, 1).but(inBursts), "undecided 97",
		},
		"not freed, as far as it is known what is": {
			newScene().named(retained, free, 97, 1).but(lost(0)), "undecided 97",
		},
		"lost by another process": {
			newScene().named(retained, free, 97, 1).but(lost(diagnosedPID + 1)),
			"fragmentation 97 high",
		},
		"lost, and free by walks": {
			newScene().named(retained, free, -10, 1).named(unclassified, unknown, 110, 1).
				but(lost(diagnosedPID)).walked(0, 100).walked(120, 190),
			"fragmentation 90 high walked, undecided 10",
		},
		"a leak beside losses": {leaking(100, 0).but(lost(0)), "heap-leak 100 medium"},
		"free by walks": {
			newScene().named(unclassified, unknown, 100, 1).but(inBursts).
				walked(0, 100).walked(60, 145).walked(120, 195),
			"fragmentation 95 high walked, undecided 5",
		},
		"free by walks of a part of the window": {
			newScene().named(unclassified, unknown, 100, 1).but(inBursts).
				walked(60, 145).walked(90, 165),
			"fragmentation 80 medium walked, undecided 20",
		},
		"free by walks, the first before the window": {
			newScene().named(unclassified, unknown, 100, 1).but(inBursts).
				but(func(s *scene) { s.Start = 60 * time.Second }).
				walked(0, 0).walked(40, 40).walked(160, 160),
			"fragmentation 100 medium walked",
		},
		"the first walk long before the window": {
			newScene().named(unclassified, unknown, 100, 1).but(inBursts).
				but(func(s *scene) { s.Start = 90 * time.Second }).
				walked(20, 40).walked(180, 160),
			"undecided 100",
		},
		"walks that are too near": {
			newScene().named(unclassified, unknown, 100, 1).but(inBursts).
				walked(60, 145).walked(80, 165),
			"undecided 100",
		},
		"one walk": {
			newScene().named(unclassified, unknown, 100, 1).but(inBursts).walked(60, 145),
			"undecided 100",
		},
		"walks show more than the heap has grown": {
			newScene().named(unclassified, unknown, 50, 1).but(inBursts).
				walked(0, 100).walked(120, 300),
			"fragmentation 50 high walked",
		},
		"walks show that all of it is in use": {
			newScene().named(unclassified, unknown, 50, 1).but(inBursts).
				walked(0, 100).walked(120, 100),
			"undecided 50",
		},
		"a heap that is not probed, by walks": {
			newScene().named(heap, growth.RootUnknownSite, 50, 0).but(inBursts).
				walked(0, 100).walked(120, 130),
			"fragmentation 30 high walked, undecided 20",
		},
		"Python's arenas": {
			newScene().allocated(growth.KindPython, remember, growth.TrendAccumulating, 40, 0).
				allocated(heap, inPython, growth.TrendAccumulating, 10, 0),
			"python-objects 50 medium",
		},
		"tensors that call sites in bursts do not explain": {
			newScene().named(unclassified, unknown, 80, 1).
				allocated(heap, remember, growth.TrendAccumulating, 20, 5).but(inBursts).
				stored(30, 90, 45, 2),
			"tensors 70 medium, heap-leak 20 medium, undecided 10",
		},
		"tensors that call sites explain": {
			newScene().allocated(heap, remember, growth.TrendAccumulating, 60, 5).
				named(unclassified, unknown, 40, 1).but(inBursts).stored(0, 120, 110, 2),
			"heap-leak 60 medium, undecided 40",
		},
		"tensors beyond the growth of the heap": {
			newScene().named(unclassified, unknown, 20, 1).
				named(growth.KindShmem, "[shared memory: /x]", 80, 0).but(inBursts).
				stored(0, 120, 100, 2),
			"shared-memory 80 high, tensors 20 medium",
		},
		"tensors of the step that is under way": {
			newScene().named(unclassified, unknown, 100, 1).but(inBursts).stored(0, 120, 60, 70),
			"undecided 100",
		},
		"tensors over a short time": {
			newScene().named(unclassified, unknown, 100, 1).but(inBursts).stored(100, 120, 20, 1),
			"undecided 100",
		},
		"tensors of the warm-up": {
			newScene().named(unclassified, unknown, 100, 1).but(inBursts).but(
				func(s *scene) { s.Start = 10 * time.Minute },
			).stored(60, 720, 900, 1),
			"undecided 100",
		},
		"mapped": {
			newScene().allocated(growth.KindMmap, remember, growth.TrendAccumulating, 30, 0).
				named(growth.KindStack, "[thread stacks]", 20, 0).
				named(growth.KindJIT, "[generated code]", 10, 0),
			"mmap-growth 60 high",
		},
		"mapped before tracing": {
			newScene().named(growth.KindMmap, "[mapped before tracing]", 30, 0),
			"mmap-growth 30 medium",
		},
		"shared": {newScene().named(growth.KindShmem, "[shared memory: /x]", 30, 0), "shared-memory 30 high"},
		"copied, of what was inherited": {
			newScene().named(growth.KindCOW, "[copy-on-write]", 50, 0).
				named(growth.KindInherited, "[inherited]", -20, 0),
			"copy-on-write 30 high",
		},
		"inherited memory that seems to grow": {
			newScene().named(growth.KindInherited, "[inherited]", 80, 0).
				named(heap, "[before tracing: heap]", -50, 0),
			"undecided 30",
		},
		"pages of a file": {newScene().named(growth.KindFile, "[file: /data]", 30, 0), "page-cache 30 high"},
		"pinned": {
			newScene().named(growth.KindPinned, "", 20, 0).
				allocated(growth.KindMmap, pin, growth.TrendAccumulating, 10, 0).
				allocated(heap, pin, growth.TrendAccumulating, 10, 0),
			"pinned 40 high",
		},
		"five at once, and what shrinks": {
			leaking(40, 0).named(growth.KindShmem, "[shared memory: /x]", 30, 0).
				named(growth.KindFile, "[file: /data]", 20, 0).
				named(growth.KindPinned, "", 10, 0).named(growth.KindMmap, "[x]", -25, 0).
				named(growth.KindUnexplained, "[unexplained]", 5, 0),
			"heap-leak 40 high, shared-memory 30 high, page-cache 20 high, pinned 10 high, " +
				"undecided -20",
		},
		"too little of it": {
			leaking(99, 0).named(growth.KindFile, "[file: /data]", 1, 0),
			"heap-leak 99 high, undecided 1",
		},
		"memory that is swapped out is no RSS": {
			leaking(10, 0).named(growth.KindSwapped, "[swapped out]", 90, 0), "heap-leak 10 high",
		},
		"unexplained": {newScene().named(growth.KindUnexplained, "[unexplained]", 10, 0), "undecided 10"},
		"rows that do not add up": {
			leaking(100, 0).named(retained, free, 90, 0).
				named(growth.KindUnexplained, "[unexplained]", -90, 0),
			"undecided 100",
		},
		"a growth that slows":   {leaking(10, 0).but(func(s *scene) { s.Class = verdict.ClassSaturating }), "heap-leak 10 medium"},
		"nothing grows":         {leaking(10, 0).named(retained, free, -10, 0), ""},
		"it shrinks":            {leaking(10, 0).named(growth.KindFile, "[file: /x]", -20, 0), ""},
		"no row":                {newScene(), ""},
		"the verdict is steady": {leaking(10, 0).but(func(s *scene) { s.Class = verdict.ClassPlateau }), ""},
		"other processes do not count": {
			leaking(10, 0).but(func(s *scene) { s.Rows[0].PID = 8 }), "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			all := Diagnose(c.Evidence)
			if got := text(all); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
			checkSum(t, c.Evidence, all)
		})
	}
}

// checkSum checks that the parts sum to the growth, to the byte.
func checkSum(t *testing.T, e Evidence, all []Diagnosis) {
	t.Helper()
	var rss, sum int64
	var share, rate float64
	for _, r := range e.Rows {
		if r.PID == e.PID && r.Kind != growth.KindSwapped {
			rss += r.Delta()
		}
	}

	for _, d := range all {
		sum += d.Bytes
		share += d.Share
		rate += d.Rate
	}

	if len(all) == 0 {
		return
	}
	if sum != rss || math.Abs(share-1) > 1e-9 || math.Abs(rate-float64(rss)/120) > 1e-3 {
		t.Errorf("%d bytes, share %g, %g B/s; the RSS grew by %d", sum, share, rate, rss)
	}
}

func TestMainOf(t *testing.T) {
	for name, c := range map[string]struct {
		all  []Diagnosis
		want Cause
	}{
		"most of it":       {[]Diagnosis{{Cause: Fragmentation, Share: 0.5, Confidence: High}}, Fragmentation},
		"less than half":   {[]Diagnosis{{Cause: Fragmentation, Share: 0.49, Confidence: High}}, Undecided},
		"hardly confident": {[]Diagnosis{{Cause: Fragmentation, Share: 0.9, Confidence: Low}}, Undecided},
		"undecided":        {[]Diagnosis{{Cause: Undecided, Share: 1}}, Undecided},
		"nothing":          {nil, Undecided},
	} {
		got, ok := MainOf(c.all)
		if !ok {
			got.Cause = Undecided
		}
		if got.Cause != c.want {
			t.Errorf("%s: %q, want %q", name, got.Cause, c.want)
		}
	}
}
