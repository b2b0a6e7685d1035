package spike

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/allocscope/allocscope/growth"
)

const pid = 7

var (
	trainer   = &growth.Stack{ID: 1, PID: pid, Frames: []growth.Frame{{Function: "train", Python: true, File: "/job/train.py", Line: 3}}}
	validator = &growth.Stack{ID: 2, PID: pid, Frames: []growth.Frame{{Function: "validate", Python: true, File: "/job/train.py", Line: 9}}}
	freeHeap  = growth.NamedStack(pid, "[heap: unclassified]", "main heap")
)

func heap(stack *growth.Stack, bytes int64) growth.Holding {
	return growth.Holding{
		Stack: stack, Kind: growth.KindHeap, InuseBytes: bytes, ResidentBytes: bytes, InuseObjects: 1,
	}
}

// snapshotOf has the usual memory of a trainer, and the memory above it.
func snapshotOf(at time.Duration, rss int64) *growth.Snapshot {
	return &growth.Snapshot{
		Elapsed:   at,
		Holdings:  []growth.Holding{heap(trainer, usual), heap(validator, max(0, rss-usual))},
		Residents: []growth.Resident{{PID: pid, RSS: rss}},
	}
}

// watch follows fifteen minutes with a snapshot each so many seconds, as a trace does.
func watch(of shape, every int) *Watch {
	w := &Watch{PID: pid}
	random := rand.New(rand.NewPCG(1, 2))
	for second := range 900 {
		at := time.Duration(second) * time.Second
		rss := usual + int64(of(second, random)*mib)
		s := growth.UnknownSample()
		s.Elapsed, s.RSS = at, rss
		w.Add(s)
		switch {
		case second%every == 0:
			w.AddSnapshot(snapshotOf(at, rss), false)
		case w.IsDue():
			w.AddSnapshot(snapshotOf(at, rss), true)
		}
	}

	return w
}

func TestWatch(t *testing.T) {
	t.Run("spikes between snapshots", func(t *testing.T) {
		got := watch(spikesOf(400, 5, 60), 30).Spikes()
		if got.Count < 14 || got.Peak != 400*mib || got.Period != time.Minute {
			t.Errorf("%d spikes of %d bytes, each %s", got.Count, got.Peak, got.Period)
		}
		if got.Extra != spikeSnapshots {
			t.Errorf("%d extra snapshots of spikes that are alike, want %d", got.Extra,
				spikeSnapshots)
		}
		mustHold(t, got.Highest, 400*mib)
	})

	t.Run("snapshots that lie in spikes will do", func(t *testing.T) {
		got := watch(spikesOf(400, 5, 60), 2).Spikes()
		if got.Extra > spikeSnapshots {
			t.Errorf("%d extra snapshots", got.Extra)
		}
		mustHold(t, got.Highest, 400*mib)
	})

	t.Run("the highest of many", func(t *testing.T) {
		higher := func(second int, random *rand.Rand) float64 {
			return float64(1+second/60) * spikesOf(100, 5, 60)(second, random)
		}
		got := watch(sum(higher, noise(5)), 30).Spikes()
		if got.Extra > maxExtra+8 {
			t.Errorf("%d extra snapshots", got.Extra)
		}
		if h := got.Highest; h == nil || h.Height < 1120*mib { // a quarter below the highest
			t.Errorf("highest %+v", h)
		}
	})

	t.Run("a spike that builds up", func(t *testing.T) {
		got := watch(buildsUp(900, 20, 90), 30).Spikes()
		if got.Count < 9 || got.Highest == nil || got.Highest.Height < 700*mib {
			t.Errorf("%d spikes, highest %+v", got.Count, got.Highest)
		}
	})

	for name, of := range map[string]shape{
		"noise": noise(30), "growth": ramp(20), "step": step(500, 300), "warm-up": saturates(4000, 60),
	} {
		t.Run(name, func(t *testing.T) {
			got := watch(of, 30).Spikes()
			if got.Count != 0 || got.Highest != nil || got.Extra > maxExtra {
				t.Errorf("%+v", got)
			}
		})
	}
}

// mustHold checks that validate alone holds so many bytes in a spike, as its suspect has them.
func mustHold(t *testing.T, c *Capture, bytes int64) {
	t.Helper()
	if c == nil || c.After == nil {
		t.Fatalf("captured %+v", c)
	}
	contents := c.Contents()
	if len(contents) != 1 || contents[0].Stack != validator || contents[0].ResidentBytes != bytes {
		t.Errorf("in the spike %+v, want %d bytes of validate", contents, bytes)
	}
	suspects := Suspects(contents, nil)
	if len(suspects) != 1 || suspects[0].Frame.Line != 9 || suspects[0].Growth != float64(bytes) ||
		suspects[0].Share != 1 {
		t.Errorf("suspects %+v", suspects)
	}
}

func TestContents(t *testing.T) {
	free := func(bytes int64) growth.Holding {
		return growth.Holding{Stack: freeHeap, Kind: growth.KindUnclassified, ResidentBytes: bytes}
	}
	touched := func(stack *growth.Stack, bytes int64) growth.Holding {
		return growth.Holding{Stack: stack, Kind: growth.KindHeap, ResidentBytes: bytes}
	}
	snapshot := func(holdings ...growth.Holding) *growth.Snapshot {
		return &growth.Snapshot{Holdings: holdings}
	}

	for _, c := range []struct {
		name    string
		capture Capture
		touched []growth.Holding
		want    map[string]int64 // by root and function
	}{
		{
			"what stays is no part", Capture{
				Before: snapshot(heap(trainer, 100)),
				At:     snapshot(heap(trainer, 150), heap(validator, 70)),
				After:  snapshot(heap(trainer, 160), heap(validator, 20)),
			}, nil, map[string]int64{"validate": 50},
		},
		{
			"first touch divides the heap",
			Capture{
				Before: snapshot(free(10)), At: snapshot(free(90)),
			},
			[]growth.Holding{touched(validator, 90), touched(trainer, 30)},
			map[string]int64{growth.RootGrowth + "validate": 60, growth.RootGrowth + "train": 20},
		},
		{
			"what was not touched stays",
			Capture{
				Before: snapshot(free(10)), At: snapshot(free(110), heap(trainer, 5)),
			},
			[]growth.Holding{touched(validator, 75)},
			map[string]int64{
				growth.RootGrowth + "validate": 75, "[heap: unclassified]main heap": 25, "train": 5,
			},
		},
		{
			"nothing was touched",
			Capture{Before: snapshot(), At: snapshot(free(40))},
			nil,
			map[string]int64{"[heap: unclassified]main heap": 40},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.capture.At.Touched = c.touched
			contents := c.capture.Contents()
			got := make(map[string]int64)
			for _, h := range contents {
				got[h.Stack.Root+h.Stack.Frames[0].Function] += h.ResidentBytes
			}
			for what, bytes := range c.want {
				if got[what] != bytes {
					t.Errorf("%s has %d bytes, want %d", what, got[what], bytes)
				}
			}
			if len(got) != len(c.want) {
				t.Errorf("contents %v, want %v", got, c.want)
			}
			if !slices.IsSortedFunc(contents, func(a, b growth.Holding) int {
				return int(b.ResidentBytes - a.ResidentBytes)
			}) {
				t.Errorf("not the largest first: %v", contents)
			}
		})
	}
}
