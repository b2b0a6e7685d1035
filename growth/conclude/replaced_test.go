package conclude

import (
	"testing"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/growthtest"
	"github.com/allocscope/allocscope/growth/verdict"
)

// lifeOfWorker is how long, in seconds, each worker of serverOf lives.
const lifeOfWorker = 20

// serverOf is the trace of a server with one worker at a time, each with so many MiB at an age in
// seconds. All of them are traced. In the last second of its life a worker frees its memory.
func serverOf(seconds int, mebibytes func(age, generation int) float64) *Trace {
	t := &Trace{Options: Options{Criteria: verdict.InSeconds()}, PID: 1, History: &growth.History{}}
	handle := growthtest.PythonFrame("handle", "/srv/app.py", 8)
	process := func(pid int, role growth.Role, born time.Duration) growth.Member {
		return growth.Member{Traced: true, From: max(0, born), Process: growth.Process{
			PID: pid, Parent: 1, Born: born, Role: role, Rank: growth.Unknown, Service: "app.py",
		}}
	}

	for second := range seconds {
		now := time.Duration(second) * time.Second
		age, generation := second%lifeOfWorker, second/lifeOfWorker
		pid, held := 10+generation, int64(mebibytes(age, generation)*mib)
		rss := 40*mib + held
		if age == lifeOfWorker-1 {
			rss = 40*mib + int64(mebibytes(0, generation)*mib)
		}
		born := now - time.Duration(age)*time.Second

		s := growth.TreeSample{Elapsed: now, Members: []growth.Member{
			process(1, growth.RoleTrainer, -time.Hour), process(pid, growth.RoleWorker, born),
		}}
		for i, bytes := range []int64{50 * mib, rss} {
			sample := growth.UnknownSample()
			sample.Elapsed, sample.RSS, sample.PSS, sample.Private = now, bytes, bytes, bytes
			s.Processes = append(s.Processes,
				growth.ProcessSample{PID: int64(s.Members[i].PID), Sample: sample})
		}
		t.History.Add(s)

		if age == lifeOfWorker-2 || second == 0 {
			stack := &growth.Stack{ID: uint64(pid), PID: pid, Frames: []growth.Frame{handle}}
			t.Snapshots = append(t.Snapshots, &growth.Snapshot{
				Elapsed: now, Alive: []int{1, pid}, Interval: 1,
				Holdings: []growth.Holding{{
					Stack: stack, Kind: growth.KindHeap, InuseBytes: held, AllocBytes: float64(held),
				}},
			}, &growth.Snapshot{Elapsed: born + lifeOfWorker*time.Second - 1, Alive: []int{1, pid}})
		}
	}
	return t
}

// The workers of a server are followed from one to the next: the service is judged by their sum,
// and the line is named by the memory that each of them held.
func TestReplacedWorkers(t *testing.T) {
	growing := func(age, _ int) float64 { return 2 * float64(age) }

	r := conclude(serverOf(600, growing))
	if len(r.Groups) != 1 || r.Groups[0].Service != "app.py" || r.Groups[0].Generations == nil {
		t.Fatalf("groups %+v", r.Groups)
	}
	g := &r.Groups[0]
	if r.Main.History.PID != 1 || r.Main.Reason != verdict.ReasonReplaced || g.Verdict.Class.Grows() {
		t.Errorf("PID %d is %s (%s), its workers are %s: they are replaced, and the sum is bounded",
			r.Main.History.PID, r.Main.Class, r.Main.Reason, g.Verdict.Class)
	}
	if of := g.Generations; of.Traced < 10 || len(of.Suspects) != 1 ||
		of.Suspects[0].Frame.Function != "handle" || of.Suspects[0].Share < 0.9 {
		t.Errorf("call sites of the workers: %+v", of)
	}

	// A sawtooth is no growth of the sum.
	if r := conclude(serverOf(65, growing)); r.Groups[0].Verdict.Class.Grows() ||
		r.Main.Reason != verdict.ReasonReplaced {
		t.Errorf("after three workers: %s (%s)", r.Groups[0].Verdict.Class, r.Main.Reason)
	}

	higher := func(age, generation int) float64 { return 10*float64(generation) + 2*float64(age) }
	if r := conclude(serverOf(600, higher)); r.Main.Reason != verdict.ReasonWorkers {
		t.Errorf("each begins with more than the one before: %s (%s)", r.Main.Class, r.Main.Reason)
	}

	starting := func(age, _ int) float64 { return 20 * float64(min(age, 3)) }
	if r := conclude(serverOf(600, starting)); r.Main.Reason == verdict.ReasonReplaced {
		t.Error("workers that only start up grow until they are replaced")
	}
}

// A worker that outlives the others is judged for itself.
func TestIsReplaced(t *testing.T) {
	trace := serverOf(200, func(age, _ int) float64 { return 2 * float64(age) })
	young := trace.History.Processes[len(trace.History.Processes)-1]
	old := *young
	old.First = old.Last - 3*lifeOfWorker*time.Second
	if !trace.History.IsReplaced(young) || trace.History.IsReplaced(&old) {
		t.Errorf("young %v, old %v", trace.History.IsReplaced(young), trace.History.IsReplaced(&old))
	}
}
