package tracer_test

import (
	"fmt"
	"testing"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer"
)

// following is the way of source cuda alone, which is watched by what it counts.
func following(name string, options tracer.Options, counts bpf.Counter, blocks bool) way {
	return way{name, func(b *testing.B, pid int) func() {
		options.PID, options.Sources = pid, []string{"cuda"}
		s, err := tracer.Open(b.Context(), options)
		if err != nil {
			b.Fatalf("%+v", err)
		}
		if awaitCUDA(b, s); blocks {
			awaitBlocks(b, s)
		}
		return func() {
			if s.Counted(counts) == 0 {
				b.Error("nothing was seen")
			}
			mustLoseNothing(b, s)
			if err := s.Close(); err != nil {
				b.Fatal(err)
			}
		}
	}}
}

// What it costs to allocate and to free through a driver that does nothing else: a real one takes microseconds to milliseconds.
func BenchmarkAPairOfDriverCalls(b *testing.B) {
	const pairs = 20_000
	g := startCUDA(b, libcuda(b))
	ways := []way{following("traced", tracer.Options{}, bpf.CountGpuCalls, false)}
	nsPerPair := func() float64 {
		began := cpuTime(b, g.PID())
		g.do(fmt.Sprintf("churn malloc %d 1000", pairs))
		return float64((cpuTime(b, g.PID()) - began).Nanoseconds()) / pairs
	}
	report(b, ways, compare(b, ways, g.PID(), nsPerPair), "ns-CPU/pair", "")
}

// What it costs to be told of a block and of its return, by a Python program, whose stacks are the longest to walk.
func BenchmarkAPairOfBlocks(b *testing.B) {
	const pairs = 5_000
	g := startBlocks(b, realLibC10(b))
	g.do("driver " + libcuda(b))
	ways := []way{
		following("interval=1", tracer.Options{Interval: 1}, bpf.CountBlocks, true),
		following("interval=512KiB", tracer.Options{}, bpf.CountBlocks, true),
	}
	nsPerPair := func() float64 {
		began := cpuTime(b, g.PID())
		g.do(fmt.Sprintf("churn %d 512 0", pairs))
		return float64((cpuTime(b, g.PID()) - began).Nanoseconds()) / pairs
	}
	report(b, ways, compare(b, ways, g.PID(), nsPerPair), "ns-CPU/pair", "")
}
