package tracer_test

// Several processes in one session.

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// mapped is what the mappings of a function hold that have been touched.
func mapped(snapshot *growth.Snapshot, function string) (bytes int64) {
	for _, h := range snapshot.Holdings {
		if h.Kind != growth.KindHeap && slices.Contains(functions(h.Stack), function) {
			bytes += h.InuseBytes
		}
	}
	return bytes
}

func TestProcessesOfOneProgramAreCountedApart(t *testing.T) {
	for _, ranks := range []int{2, 5} {
		t.Run(fmt.Sprint(ranks), func(t *testing.T) {
			j := startJob(t, ranks)
			s := traceJob(t, j, 1)
			for round := range 3 { // in turns
				for i, r := range j.ranks {
					r.order("leak %d %d", 100*(i+1), 64+16*i)
					r.order("hold %d 200", 10*(round+1))
					r.order("drop")
				}
			}
			var alive []int
			for i, r := range j.ranks {
				r.order("hold %d 48", 7+i)
				r.order("map %d 8192 4096", i+1)
				alive = append(alive, r.pid)
			}
			got := snapshot(t, s)
			for i, r := range j.ranks {
				part := got.Of(r.pid)
				mustHold(t, held(part), []string{
					fmt.Sprint("leak_here ", 300*(i+1), 300*(i+1)*(64+16*i)), fmt.Sprint("hold_here ", 7+i, (7+i)*48),
				})
				if bytes, want := mapped(part, "map_here"), int64(4096*(i+1)); bytes != want {
					t.Errorf("map_here of rank %d holds %d bytes, want %d", i, bytes, want)
				}
			}
			if slices.Sort(got.Alive); !slices.Equal(got.Alive, slices.Sorted(slices.Values(alive))) {
				t.Errorf("alive are %v, want %v", got.Alive, alive)
			}
			mustLoseNothing(t, s)
		})
	}
}

func TestBirthsOfSeveralProcessesAddUpAndLieInTheirBins(t *testing.T) {
	j := startJob(t, 2)
	s := traceJob(t, j, 1)
	var moments []time.Duration
	for round := range 4 {
		for i, r := range j.ranks {
			r.order("leak %d 100", 10*(round+1)+i)
		}
		if round < 3 {
			moments = append(moments, snapshot(t, s).Elapsed)
		}
	}
	last, err := s.Snapshot(moments...)
	if err != nil {
		t.Fatal(err)
	}
	if want := append(slices.Clip(moments), last.Elapsed); !slices.Equal(last.Bins, want) {
		t.Errorf("bins end at %v, want %v", last.Bins, want)
	}
	for i, r := range j.ranks {
		var births [4]float64
		for _, h := range last.Of(r.pid).Holdings {
			birthsMustAddUp(t, h)
			if h.Kind == growth.KindHeap && functions(h.Stack)[1] == "leak_here" {
				for _, b := range h.Births {
					births[b.Bin] += b.InuseBytes
				}
			}
		}
		for round, bytes := range births {
			if want := float64(100 * (10*(round+1) + i)); bytes != want {
				t.Errorf("rank %d, bin %d: %.0f bytes, want %.0f", i, round, bytes, want)
			}
		}
	}
}

// birthsMustAddUp wants that births are all that is alive.
func birthsMustAddUp(t testing.TB, h growth.Holding) {
	t.Helper()
	if h.Kind != growth.KindHeap {
		return
	}
	var bytes, variance float64
	for _, b := range h.Births {
		bytes, variance = bytes+b.InuseBytes, variance+b.Variance
	}
	if bytes != float64(h.InuseBytes) || math.Abs(variance-h.Variance) > 1e-9*h.Variance {
		t.Errorf("%v: births of %.0f bytes, variance %g, of %d, %g", functions(h.Stack), bytes, variance, h.InuseBytes, h.Variance)
	}
}

// An object of s bytes is sampled with p = 1 - exp(-s/interval), and then stands for w = s/p bytes with variance w(w - s).
func TestTheVarianceOfSeveralProcessesIsThatOfTheirSamples(t *testing.T) {
	const objects, size, interval = 4000, 512, 4096
	j := startJob(t, 2)
	s := traceJob(t, j, interval)
	for _, r := range j.ranks {
		r.order("leak %d %d", objects, size)
	}
	middle := snapshot(t, s).Elapsed
	for _, r := range j.ranks {
		r.order("leak %d %d", objects, size)
	}
	got, err := s.Snapshot(middle)
	if err != nil {
		t.Fatal(err)
	}
	p := 1 - math.Exp(-float64(size)/interval)
	w := math.Round(size / p)
	for _, r := range j.ranks {
		for _, h := range got.Of(r.pid).Holdings {
			birthsMustAddUp(t, h)
			if h.Kind != growth.KindHeap || functions(h.Stack)[1] != "leak_here" {
				continue
			}
			deviation := math.Sqrt(2 * objects * p * (1 - p))
			if off := float64(h.Samples) - 2*objects*p; math.Abs(off) > 5*deviation {
				t.Errorf("%d samples, want %.0f ± %.0f", h.Samples, 2*objects*p, deviation)
			}
			if want := float64(h.Samples) * w * (w - size); math.Abs(h.Variance-want) > 1e-9*want || len(h.Births) != 2 {
				t.Errorf("variance %g, want %g; births %v", h.Variance, want, h.Births)
			}
		}
	}
}

func TestMoreProcessesThanThereIsRoomForAreRefusedInWords(t *testing.T) {
	const room = 64
	s := open(t, tracer.Options{PID: startSteps(t).PID(), Interval: 1})
	last := startSteps(t)
	var targets []*tracertest.Target
	for range room - 1 {
		targets = append(targets, startSteps(t))
		if err := s.Attach(targets[len(targets)-1].PID()); err != nil {
			t.Fatal(err)
		}
	}
	before := descriptors(t)
	if err := s.Attach(last.PID()); err == nil || !strings.Contains(err.Error(), "as many processes are traced as can be: 64") {
		t.Errorf("%v", err)
	}
	if more := descriptors(t) - before; more != 0 || len(entries(t, s, last.PID())) != 0 {
		t.Errorf("%d descriptors and %v are left of the one too many", more, entries(t, s, last.PID()))
	}
	for i, target := range targets {
		order(target, "leak %d 64", i+1)
	}
	got := snapshot(t, s)
	for i, target := range targets {
		mustHold(t, held(got.Of(target.PID())), []string{fmt.Sprint("leak_here ", i+1, 64*(i+1))})
	}
	end(t, s, targets[0])
	if err := s.Attach(last.PID()); err != nil {
		t.Errorf("where one has ended: %v", err)
	}
}

func TestStacksOfSeveralProcessesThatTheKernelsMapCannotHoldAreAllKept(t *testing.T) {
	const stacks, processes, room = 1024, 4, 3000
	var targets []*tracertest.Target
	for range processes {
		target := tracertest.Start(t, tracertest.Build(t, "stacks.c", "-fno-omit-frame-pointer"))
		target.Await("ready")
		targets = append(targets, target)
	}
	s := open(t, tracer.Options{PID: targets[0].PID(), Interval: 1, MaxStacks: room})
	for _, target := range targets[1:] {
		if err := s.Attach(target.PID()); err != nil {
			t.Fatal(err)
		}
	}
	for _, target := range targets {
		target.Say("go")
		target.Await("done")
		snapshot(t, s) // all that was told has been read
	}
	seen := make(map[int]int)
	for _, h := range snapshot(t, s).Holdings {
		if len(h.Stack.Frames) >= 12 && h.Stack.Truncated == "" && h.InuseObjects == 1 {
			seen[h.Stack.PID]++
		}
	}
	for _, target := range targets {
		if n := seen[target.PID()]; n != stacks {
			t.Errorf("%d distinct stacks of PID %d, want %d", n, target.PID(), stacks)
		}
	}
	mustLoseNothing(t, s)
}
