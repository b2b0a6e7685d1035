package tracer_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf/link"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer"
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

func testProducerSampled(t *testing.T) {
	t.Parallel()
	target, s := openOn(t, start(t, buildProducer(t), fmt.Sprint(sampledInterval),
		fmt.Sprint(sampledObjects), fmt.Sprint(sampledSize)), tracer.Options{})
	mustBeUnbiased(t, leakErrors(t, target, s, "leak", 20))
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
		mustHoldIn(t, held(snapshot(t, s)), "leak_here", 16_000, 16_000*96)
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
	mustHoldIn(t, held(snapshot(t, s)), "produce", 1000, 64_000)
	mustLoseNothing(t, s)
}

// The kernel refuses a semaphore at an instruction where somebody has a probe without it.
func testProducerOtherTool(t *testing.T) {
	t.Parallel()
	program := buildProducer(t, "-DOTHER") // a file of its own
	target := start(t, program, "1", "1000", "64")
	nothing := tracertest.Must(loadKernel(t, probe.Single).Program(bpf.ProgShimMarker))(t)

	s := open(t, tracer.Options{PID: target.PID()})
	var offset uint64
	line := sourceOf(t, s, "heap").Details[0]
	scan(t, line[strings.LastIndex(line, " "):], " 0x%x", &offset)
	must(t, s.Close())
	executable := tracertest.Must(link.OpenExecutable(program))(t)
	other, err := executable.Uprobe("", nothing, &link.UprobeOptions{Address: offset})
	must(t, err)
	defer other.Close()

	s = open(t, tracer.Options{PID: target.PID(), Interval: 1})
	if heap := sourceOf(t, s, "heap"); !heap.Attached || len(heap.Producers) > 0 || heap.Reason == "" {
		t.Errorf("%+v", heap)
	}
	order(target, "leak")
	mustHoldIn(t, held(snapshot(t, s)), "produce", 1000, 64_000)
}
