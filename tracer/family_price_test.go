package tracer_test

// What it costs to follow a tree and to look at several processes: `make bench`.

import (
	"testing"
	"time"

	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// The command does it once a second.
func BenchmarkFollowingATreeOf31Processes(b *testing.B) {
	tracertest.NeedsRoot(b)
	target := tracertest.Start(b, tracertest.Build(b, "family.c"))
	target.Await("ready")
	order(target, "grow 8")
	order(target, "fork 30")
	s := open(b, tracer.Options{PID: target.PID(), Children: true})
	followUntilTraced(b, s, target.PID())
	var took []float64
	for range 10 * priceRounds {
		began := time.Now()
		s.Follow()
		if n := len(s.Sample().Members); n != 31 {
			b.Fatalf("%d members", n)
		}
		took = append(took, milliseconds(began))
		time.Sleep(100 * time.Millisecond) // a budget for rollups gathers by time
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(took), "ms/second")
	b.ReportMetric(median(took)/10, "%-of-a-second")
}

func BenchmarkASnapshotOf8ProcessesWith10000LiveSamplesEach(b *testing.B) {
	const objects, processes = 10_000, 8
	tracertest.NeedsRoot(b)
	j := startJob(b, processes)
	s := traceJob(b, j, 1)
	for _, r := range j.ranks {
		r.order("leak %d 64", objects)
	}
	var took []float64
	for range 3 * priceRounds {
		began := time.Now()
		if live := snapshot(b, s).LiveObjects; live < processes*objects {
			b.Fatalf("%d live samples", live)
		}
		took = append(took, milliseconds(began))
	}
	mustLoseNothing(b, s)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(took), "ms/snapshot")
}

// Ranks come and go while the trace goes on.
func BenchmarkAttachingAndGivingUpAProcess(b *testing.B) {
	root, target := startSteps(b), startSteps(b)
	s := open(b, tracer.Options{PID: root.PID(), Interval: 1})
	var attach, detach []float64
	for range priceRounds {
		began := time.Now()
		if err := s.Attach(target.PID()); err != nil {
			b.Fatal(err)
		}
		attach = append(attach, milliseconds(began))
		order(target, "leak 10000 64")
		began = time.Now()
		if err := s.Detach(target.PID()); err != nil {
			b.Fatal(err)
		}
		detach = append(detach, milliseconds(began))
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(attach), "ms/attach")
	b.ReportMetric(median(detach), "ms/detach")
}
