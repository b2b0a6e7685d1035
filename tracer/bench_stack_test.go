package tracer_test

import (
	"testing"

	"github.com/cilium/ebpf"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// runTime makes the kernel measure a BPF program. It returns a function that reads the measurement:
// time in ns, and runs.
func runTime(b *testing.B, s *tracer.Session, name string) func() (ns, runs float64) {
	b.Helper()
	program := tracertest.Must(tracer.Kernel(s).Program(name))(b)
	const statsRunTime = 0 // BPF_STATS_RUN_TIME, include/uapi/linux/bpf.h
	stats := tracertest.Must(ebpf.EnableStats(statsRunTime))(b)
	b.Cleanup(func() { stats.Close() })
	return func() (ns, runs float64) {
		stats := tracertest.Must(program.Stats())(b)

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
