package tracer_test

import (
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// runTime makes the kernel measure a BPF program. It returns a function that reads the measurement:
// time in ns, and runs.
func runTime(b *testing.B, s *tracer.Session, name string) func() (ns, runs float64) {
	b.Helper()
	program, err := tracer.Kernel(s).Program(name)
	must(b, err)
	const statsRunTime = 0 // BPF_STATS_RUN_TIME, include/uapi/linux/bpf.h
	stats, err := ebpf.EnableStats(statsRunTime)
	must(b, err)
	b.Cleanup(func() { stats.Close() })
	return func() (ns, runs float64) {
		stats, err := program.Stats()
		must(b, err)

		return float64(stats.Runtime.Nanoseconds()), float64(stats.RunCount)
	}
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

// BenchmarkTrackedAllocation measures in the kernel the cost of a trainer's allocation beyond
// seeing it: the stack, and the live map twice.
func BenchmarkTrackedAllocation(b *testing.B) {
	const steps = 10
	target := startTrainer(b)
	target.train(4*steps, nothing)
	each := make(map[uint64][]float64)
	for range costRounds {
		for _, interval := range []uint64{1, kernel.MaxInterval} {
			s := open(b, tracer.Options{PID: target.PID(), Interval: interval})
			read := runTime(b, s, bpf.ProgHeapSession)
			target.train(steps, nothing)
			ns, _ := read()
			events := mustLoseNothing(b, s)
			each[interval] = append(each[interval], ns/float64(events.Allocations))
			must(b, s.Close())
		}
	}

	b.ReportMetric(0, "ns/op")
	b.ReportMetric((median(each[1])-median(each[kernel.MaxInterval]))/1000, "µs/allocation")
}

func BenchmarkUnwindTables(b *testing.B) {
	target := startTrainer(b)
	costs := make(metrics)
	for range 5 {
		began := time.Now()
		s, err := tracer.Open(b.Context(), tracer.Options{PID: target.PID()})
		must(b, err)

		costs.add("ms-to-counting", milliseconds(began))
		awaitTables(s)
		costs.add("ms-to-all-tables", milliseconds(began))
		tables := tracer.Tables(s).Stats()
		costs.add("MiB-tables", float64(tables.Bytes)/(1<<20))
		costs.add("rows", float64(tables.Rows))
		costs.add("files", float64(tables.Files))
		must(b, s.Close())
	}

	costs.report(b)
}

func BenchmarkVerifier(b *testing.B) {
	target := start(b, tracertest.Build(b, "leak.c", "-pthread"), "1", "1", "64", "0")
	s := open(b, tracer.Options{PID: target.PID()})

	programs, err := tracer.Kernel(s).AllPrograms()
	must(b, err)
	for name, program := range programs {
		info, err := program.Info()
		must(b, err)

		if n, ok := info.VerifiedInstructions(); ok {
			b.Run(name, func(b *testing.B) {
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(float64(n), "instructions")
			})
		}
	}
}
