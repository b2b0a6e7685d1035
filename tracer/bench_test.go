package tracer_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/probe"
	"github.com/allocscope/allocscope/tracer/source"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

func cpuTimeDuring(b *testing.B, pid int, work func()) time.Duration {
	began := cpuTime(b, pid)
	work()
	return cpuTime(b, pid) - began
}

// cpuTime of another process, user and kernel.
func cpuTime(b *testing.B, pid int) time.Duration {
	const cpuClockSched = 2 // CPUCLOCK_SCHED, include/linux/posix-timers_types.h
	var now unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|cpuClockSched), &now); err != nil {
		b.Fatalf("read CPU time of %d: %v", pid, err)
	}
	return time.Duration(now.Nano())
}

const costRounds = 9

// A way of tracing a process: start attaches and returns a function that detaches again.
type way struct {
	name  string
	start func(b *testing.B, pid int) (stop func())
}

// A cost is the cost of one way, round by round: without it just before, with it, and the
// milliseconds to attach and to detach.
type cost struct{ native, traced, attach, detach []float64 }

// compare takes the ways in turns, each right after a measurement without any.
func compare(b *testing.B, ways []way, pid int, measure func() float64) map[string]*cost {
	costs := make(map[string]*cost)
	for _, w := range ways {
		costs[w.name] = &cost{}
	}

	for range costRounds {
		for _, w := range ways {
			p := costs[w.name]
			p.native = append(p.native, measure())
			began := time.Now()
			stop := w.start(b, pid)
			p.attach = append(p.attach, milliseconds(began))
			p.traced = append(p.traced, measure())
			began = time.Now()
			stop()
			p.detach = append(p.detach, milliseconds(began))
		}
	}
	return costs
}

// report prints one line per way.
func report(b *testing.B, ways []way, costs map[string]*cost, unit string) {
	var native []float64
	for _, p := range costs {
		native = append(native, p.native...)
	}

	b.Run("native", func(b *testing.B) {
		b.ReportMetric(0, "ns/op") // leaves it out
		b.ReportMetric(median(native), unit)
	})

	for _, w := range ways {
		b.Run(w.name, func(b *testing.B) {
			p := costs[w.name]
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(median(p.traced), unit)
			b.ReportMetric(median(ratios(p.traced, p.native)), "x-native")
			b.ReportMetric(median(p.attach), "ms-to-attach")
			b.ReportMetric(median(p.detach), "ms-to-detach")
		})
	}
}

func ratios(a, b []float64) []float64 {
	quotients := make([]float64, len(a))
	for i := range a {
		quotients[i] = a[i] / b[i]
	}
	return quotients
}

func milliseconds(since time.Time) float64 {
	return float64(time.Since(since).Microseconds()) / 1000
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

// opening is the way of this tracer with the given options.
func opening(name string, options tracer.Options) way {
	return way{name, func(b *testing.B, pid int) func() {
		options.PID = pid
		s := open(b, options)
		return func() {
			if events := mustLoseNothing(b, s); events.Allocations == 0 {
				b.Error("no allocation was seen")
			}
			must(b, s.Close())
		}
	}}
}

// printedNumber is the number that a program prints on an order.
func printedNumber(b *testing.B, target *tracertest.Target, order string) float64 {
	b.Helper()
	number := tracertest.Must(strconv.ParseFloat(target.Do(order)[0], 64))(b)
	return number
}

// BenchmarkMallocFree measures a pair of malloc and free in each mode, and attaching and detaching.
func BenchmarkMallocFree(b *testing.B) {
	tracertest.NeedsRoot(b)
	target := start(b, tracertest.Build(b, "pair.c"))
	nsPerPair := func() float64 { return printedNumber(b, target, "go") }
	var ways []way
	for _, mode := range modes {
		name := strings.ReplaceAll(mode.String(), " ", "-")
		ways = append(ways,
			opening(name+"/interval=512KiB", tracer.Options{Mode: mode}),
			opening(name+"/interval=1", tracer.Options{Mode: mode, Interval: 1}))
	}
	report(b, ways, compare(b, ways, target.PID(), nsPerPair), "ns/pair")
}

// sampling attaches source fault alone. A process that the session does not trace pays for the
// event and for finding out that it is not traced.
func sampling(name string, s *tracer.Session, interval uint64) way {
	return way{name, func(b *testing.B, _ int) func() {
		status, links := source.AttachFaults(tracer.Kernel(s), interval)
		if !status.Attached {
			b.Fatal(status.Reason)
		}

		return func() {
			must(b, probe.Close(links))
		}
	}}
}

func BenchmarkPageFault(b *testing.B) {
	target, _, _ := startFaults(b)
	other := start(b, tracertest.Build(b, "pair.c"))
	traced := open(b, tracer.Options{PID: target.PID(), Sources: []string{"mapping"}})
	untraced := open(b, tracer.Options{PID: other.PID(), Sources: []string{"mapping"}})
	ways := []way{
		sampling("traced/interval=512KiB", traced, 512<<10),
		sampling("traced/interval=64KiB", traced, 64<<10),
		sampling("traced/interval=1", traced, 1),
		sampling("untraced/interval=512KiB", untraced, 512<<10),
	}

	nsPerFault := func() float64 { return printedNumber(b, target, "cost 1024") }
	report(b, ways, compare(b, ways, target.PID(), nsPerFault), "ns/fault")
}

// following is the way of source cuda alone. It fails where no block was seen.
func following(name string, options tracer.Options) way {
	return way{name, func(b *testing.B, pid int) func() {
		options.PID, options.Sources = pid, []string{"cuda"}
		s := open(b, options)
		awaitCUDA(b, s)
		awaitBlocks(b, s)

		return func() {
			if counted(b, s, bpf.CountBlocks) == 0 {
				b.Error("no block was seen")
			}
			mustLoseNothing(b, s)
			must(b, s.Close())
		}
	}}
}

// BenchmarkBlocks measures a block and its return in a Python program, whose stacks are the longest
// to walk.
func BenchmarkBlocks(b *testing.B) {
	const pairs = 5_000
	g := startBlocks(b, realLibC10(b))
	g.Do("driver " + libcuda(b))
	ways := []way{
		following("interval=1", exact),
		following("interval=512KiB", tracer.Options{}),
	}

	nsPerPair := func() float64 {
		churn := func() { g.Do(fmt.Sprintf("churn %d 512 0", pairs)) }
		return float64(cpuTimeDuring(b, g.PID(), churn)) / pairs
	}
	report(b, ways, compare(b, ways, g.PID(), nsPerPair), "ns-CPU/pair")
}

// BenchmarkPythonStack measures the stacks of mmap that are walked, some of each call site.
func BenchmarkPythonStack(b *testing.B) {
	target := start(b, python, tracertest.Source("deep.py"))
	s := open(b, tracer.Options{PID: target.PID(), NativeFrames: true})

	for range 3 * costRounds {
		order(target, "300")
	}
	walked, _ := counters(b, s)
	ns := float64(counted(b, s, bpf.CountKernelWalkNs)) / float64(walked.Stacks)

	frames, calls := 0.0, 0.0
	for _, h := range snapshot(b, s).Holdings {
		frames, calls = frames+float64(len(h.Stack.Frames))*h.AllocObjects, calls+h.AllocObjects
	}

	mustLoseNothing(b, s)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(ns/1000, "µs/stack")
	b.ReportMetric(frames/calls, "frames/stack")
}
