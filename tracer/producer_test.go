package tracer_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf/link"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/probe"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// TestKernelProducer traces a program that samples its own heap, on every kernel.
func TestKernelProducer(t *testing.T) {
	t.Run("every object of interval 1 is exact", testKernelProducerExact)
}

// TestProducer traces programs that sample their own heap.
func TestProducer(t *testing.T) {
	t.Run("sampled leak is within its confidence bound", testProducerSampled)
	t.Run("other tools and the overhead controller change nothing", testProducerShared)
	t.Run("malloc is probed where arguments cannot be read", testProducerUnsupported)
	t.Run("malloc is probed where another tool ignores the semaphore", testProducerOtherTool)
}

func buildProducer(t *testing.T, flags ...string) string {
	t.Helper()
	return tracertest.Build(t, "producer.c",
		append([]string{"-pthread", "-fno-optimize-sibling-calls", "-lm"}, flags...)...)
}

func testKernelProducerExact(t *testing.T) {
	t.Parallel()
	program := buildProducer(t)
	eachMode(t, func(t *testing.T, mode probe.Mode) {
		target, s := openOn(t, start(t, program, "1"), tracer.Options{Mode: mode})
		if heap := sourceOf(t, s, "heap"); !heap.Attached ||
			!slices.Equal(heap.Producers, []string{program}) {
			t.Errorf("%+v, want the probes of %s", heap, program)
		}

		truth := target.Do("go")
		taken := snapshot(t, s)
		mustHold(t, held(taken), truth)

		allocated := make(map[string][2]float64)
		for _, h := range taken.Holdings {
			if len(h.Stack.Frames) > 1 {
				sum := allocated[h.Stack.Frames[1].Function]
				allocated[h.Stack.Frames[1].Function] = [2]float64{
					sum[0] + h.AllocObjects, sum[1] + h.AllocBytes,
				}
			}
		}
		if got := allocated["case_churn"]; got != [2]float64{10_000, 960_000} {
			t.Errorf("case_churn has allocated %v (objects, bytes)", got)
		}
		if got := allocated["case_replaced"]; got != [2]float64{5, 15_000} {
			t.Errorf("case_replaced has allocated %v (objects, bytes)", got)
		}

		events, losses := counters(t, s)
		if events.FreesUntracked != 1 {
			t.Errorf("%d frees of what was not reported, want 1", events.FreesUntracked)
		}
		want := []growth.Loss{
			{Kind: growth.LossOutPointer, Count: 1, PID: target.PID()}, // of case_unreadable
			{Kind: growth.LossMissedFree, Count: 1, PID: target.PID()}, // of case_twice
		}
		if !slices.Equal(losses, want) {
			t.Errorf("lost %+v", losses)
		}
	})
}

// The bounds are as for a heap that the probes sample.
func testProducerSampled(t *testing.T) {
	t.Parallel()
	const objects, size, interval = 4096, 64 << 10, 512 << 10 // 256 MiB
	p := 1 - math.Exp(-float64(size)/interval)
	deviation := size * math.Sqrt(objects*(1-p)/p)
	program := buildProducer(t)

	var sum, inside float64
	const rounds = 20
	target := start(t, program, fmt.Sprint(interval), fmt.Sprint(objects), fmt.Sprint(size))
	s := open(t, tracer.Options{PID: target.PID()})
	var before int64
	for round := range rounds {
		order(target, "leak")
		taken := snapshot(t, s)
		now := held(taken)["leak_here"][1]
		off := (float64(now-before) - objects*size) / deviation
		before = now
		sum += off
		if math.Abs(off) < 2.576 {
			inside++
		}
		if math.Abs(off) > 4.5 {
			t.Errorf("round %d: off by %.1f standard deviations", round, off)
		}
	}
	mustLoseNothing(t, s)

	t.Logf("%v of %d rounds inside the 99 %% bound; mean error %.2f deviations of one round", inside,
		rounds, sum/rounds)
	if inside < rounds-3 {
		t.Errorf("%v of %d rounds inside the 99 %% bound", inside, rounds)
	}
	if math.Abs(sum/math.Sqrt(rounds)) > 4.5 {
		t.Errorf("biased: mean error %.2f standard deviations", sum/rounds)
	}
}

// A second session is another tool. The tool that limits its overhead opens and closes the probes
// of functions, of which there are none.
func testProducerShared(t *testing.T) {
	t.Parallel()
	target := start(t, buildProducer(t), "1")
	sessions := []*tracer.Session{
		open(t, tracer.Options{PID: target.PID()}),
		open(t, tracer.Options{PID: target.PID(), Overhead: 0.03}),
		open(t, tracer.Options{PID: target.PID(), Mode: probe.Single}),
	}

	truth := target.Do("go")
	for _, s := range sessions {
		mustHold(t, held(snapshot(t, s)), truth)
	}
	must(t, sessions[2].Close())

	target.Do("go") // forged objects are claimed again
	for _, s := range sessions[:2] {
		if got := held(snapshot(t, s))["leak_here"]; got != [2]int64{16_000, 16_000 * 96} {
			t.Errorf("leak_here holds %d (objects, bytes)", got)
		}
	}
}

func testProducerUnsupported(t *testing.T) {
	t.Parallel()
	target, s := openOn(t, start(t, buildProducer(t, "-DUNSUPPORTED"), "1", "1000", "64"), exact)
	heap := sourceOf(t, s, "heap")
	if !heap.Attached || len(heap.Producers) > 0 || !strings.Contains(heap.Reason, "(%rip)") {
		t.Errorf("%+v", heap)
	}

	order(target, "leak")
	if got := held(snapshot(t, s))["produce"]; got != [2]int64{1000, 64_000} {
		t.Errorf("produce holds %d (objects, bytes)", got)
	}
	mustLoseNothing(t, s)
}

// The kernel refuses a semaphore at an instruction where somebody has a probe without it.
func testProducerOtherTool(t *testing.T) {
	t.Parallel()
	program := buildProducer(t, "-DOTHER") // a file of its own
	target := start(t, program, "1", "1000", "64")
	k, err := kernel.Load(kernel.Config{
		MaxLive: 64, MaxStacks: 64, MaxFaults: 64, Mode: probe.Single,
	})
	must(t, err)
	defer k.Close()
	nothing, err := k.Program(bpf.ProgShimMarker)
	must(t, err)

	s := open(t, tracer.Options{PID: target.PID()})
	var offset uint64
	line := sourceOf(t, s, "heap").Details[0]
	if _, err := fmt.Sscanf(line[strings.LastIndex(line, " "):], " 0x%x", &offset); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	must(t, s.Close())
	executable, err := link.OpenExecutable(program)
	must(t, err)
	other, err := executable.Uprobe("", nothing, &link.UprobeOptions{Address: offset})
	must(t, err)
	defer other.Close()

	s = open(t, tracer.Options{PID: target.PID(), Interval: 1})
	if heap := sourceOf(t, s, "heap"); !heap.Attached || len(heap.Producers) > 0 || heap.Reason == "" {
		t.Errorf("%+v", heap)
	}
	order(target, "leak")
	if got := held(snapshot(t, s))["produce"]; got != [2]int64{1000, 64_000} {
		t.Errorf("produce holds %d (objects, bytes)", got)
	}
}
