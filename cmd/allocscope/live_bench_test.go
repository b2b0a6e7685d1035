package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer"
)

// longTrace is a recorder that has seen so many samples of a leaking process, and snapshots with so many stacks.
func longTrace(samples, snapshots, stacks int) *recorder {
	session := &tracer.Session{Options: tracer.Options{Interval: 1 << 19}}
	r := &recorder{session: session, flags: traceFlags{pace: 1, duration: durationValue(4 * time.Hour)}}
	member := growth.Member{Process: growth.Process{PID: 1, Command: "x"}, Traced: true}
	for i := range samples {
		s := growth.UnknownSample()
		s.Elapsed, s.RSS = time.Duration(i)*time.Second, int64(1<<30+i<<20)
		r.history.Add(growth.Moment{Elapsed: s.Elapsed, Members: []growth.Member{member}, Processes: []growth.ProcessSample{{PID: 1, Sample: s}}})
	}
	all := make([]*growth.Stack, stacks)
	for i := range all {
		all[i] = &growth.Stack{ID: uint64(i + 1), PID: 1}
		for depth := range 40 {
			all[i].Frames = append(all[i].Frames, growth.Frame{Function: fmt.Sprintf("f%d_%d", i, depth), File: "/srv/train.py", Line: depth, Python: depth > 5})
		}
	}
	every := time.Duration(samples) * time.Second / time.Duration(snapshots)
	for n := range snapshots {
		s := &growth.Snapshot{Elapsed: time.Duration(n) * every, Alive: []int{1}, Interval: 1 << 19, Residents: []growth.Resident{{PID: 1, RSS: 1 << 30, HeapTraced: true, Traced: true}}}
		for i := range n {
			s.Bins = append(s.Bins, time.Duration(i+1)*every)
		}
		for i, stack := range all {
			bytes := int64((n + 1) * (i + 1) << 12)
			h := growth.Holding{Stack: stack, Kind: growth.KindHeap, InuseObjects: float64(n), InuseBytes: bytes, ResidentBytes: bytes, Samples: int64(n), Variance: float64(bytes) * (1 << 19)}
			if n == snapshots-1 {
				for bin := range s.Bins {
					h.AddBirth(growth.Birth{Bin: bin, InuseBytes: float64(bytes) / float64(n), Variance: float64(bytes) / float64(n) * (1 << 19)})
				}
			}
			s.Holdings = append(s.Holdings, h)
		}
		r.snapshots = append(r.snapshots, numbered{s, n})
	}
	return r
}

// What a glance and a comparison take on a trace of four hours with 2,000 stacks, as a share of what they may: a fiftieth of the time.
func BenchmarkLiveLooks(b *testing.B) {
	r := longTrace(4*3600, 60, 2000)
	for b.Loop() {
		p := newProvisional(r)
		main := r.history.Main()
		began := time.Now()
		p.found = judged{main, growth.JudgeProcess(r.caseOf(main))}
		judge := time.Since(began)
		began = time.Now()
		p.compare()
		compare := time.Since(began)
		b.ReportMetric(judge.Seconds()*1000, "judge-ms")
		b.ReportMetric(compare.Seconds()*1000, "compare-ms")
		b.ReportMetric(compare.Seconds()/judge.Seconds(), "compare/judge")
	}
}
