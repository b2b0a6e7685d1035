package tracer_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

func TestEveryAllocatorFunctionIsCountedAsItsManualSays(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			target := tracertest.Start(t, tracertest.Build(t, "semantics.c", "-pthread"))
			target.Await("ready")
			s := open(t, tracer.Options{PID: target.PID(), Interval: 1, Mode: mode})
			target.Say("go")
			truth := target.Await("done")
			got := held(snapshot(t, s))
			mustHold(t, got, truth)
			// 1000 by the program; the C library frees its caches of a thread that ends.
			if n := mustLoseNothing(t, s).FreesUntracked; n < 1000 || n > 1010 {
				t.Errorf("%d frees of older memory, want 1000", n)
			}
		})
	}
}

func TestALeakIsCountedExactlyBesideAHundredfoldChurn(t *testing.T) {
	t.Parallel()
	perThread, size := 10000, 96
	if testing.Short() { // emulated, say
		perThread = 200
	}
	for _, flags := range [][]string{{"-pthread", "-fno-omit-frame-pointer"}, {"-pthread", "-fomit-frame-pointer"}} {
		for _, threads := range []int{1, 8} {
			t.Run(fmt.Sprint(flags[1], " ", threads), func(t *testing.T) {
				target := tracertest.Start(t, tracertest.Build(t, "leak.c", flags...), fmt.Sprint(threads), fmt.Sprint(perThread), fmt.Sprint(size), "100")
				target.Await("ready")
				s := open(t, tracer.Options{PID: target.PID(), Interval: 1})
				target.Say("go")
				target.Await("done")
				got := held(snapshot(t, s))
				if want := [2]int64{int64(threads * perThread), int64(threads * perThread * size)}; got["leak_here"] != want {
					t.Errorf("leak_here holds %d, want %d (objects, bytes)", got["leak_here"], want)
				}
				if churn, ok := got["churn_here"]; ok {
					t.Errorf("churn_here holds %d, want nothing", churn)
				}
				if events := mustLoseNothing(t, s); events.Allocations < uint64(threads*perThread*101) {
					t.Errorf("%d allocations seen of %d", events.Allocations, threads*perThread*101)
				}
			})
		}
	}
}

// The estimate of n objects of s bytes, each taken with probability p, has the standard deviation s sqrt(n (1-p)/p).
func TestTheEstimateOfASampledLeakIsInsideItsBound(t *testing.T) {
	t.Parallel()
	const objects, size, interval = 16384, 64 << 10, 512 << 10 // 1 GiB
	p := 1 - math.Exp(-float64(size)/interval)
	deviation := size * math.Sqrt(objects*(1-p)/p)
	var inside99, rounds int
	var mean float64
	for range 4 {
		target := tracertest.Start(t, tracertest.Build(t, "leak.c", "-pthread"), "1", fmt.Sprint(objects), fmt.Sprint(size), "0")
		target.Await("ready")
		s := open(t, tracer.Options{PID: target.PID(), Interval: interval})
		var before int64
		for range 5 {
			target.Say("go")
			target.Await("done")
			now := held(snapshot(t, s))["leak_here"][1]
			error := (float64(now-before) - objects*size) / deviation
			before = now
			rounds++
			mean += error
			if math.Abs(error) < 2.576 {
				inside99++
			}
			if math.Abs(error) > 4.5 {
				t.Errorf("round %d: off by %.1f standard deviations", rounds, error)
			}
		}
		mustLoseNothing(t, s)
		target.Hangup()
	}
	t.Logf("%d of %d rounds inside the 99 %% bound; mean error %.2f standard deviations of one round", inside99, rounds, mean/float64(rounds))
	if inside99 < rounds-3 { // by chance once in 30,000 runs of this test
		t.Errorf("%d of %d rounds inside the 99 %% bound", inside99, rounds)
	}
	if math.Abs(mean/math.Sqrt(float64(rounds))) > 4.5 {
		t.Errorf("biased: mean error %.2f standard deviations over %d rounds", mean/float64(rounds), rounds)
	}
}
