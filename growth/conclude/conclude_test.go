package conclude

import (
	"reflect"
	"testing"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/verdict"
)

const (
	mib        = 1 << 20
	trainerPID = 7
)

// leaking is an open-ended trace of fifteen minutes of an old process whose only stack grows by 1
// MiB a second, beside a process of the same job that grows as much.
func leaking() *Trace {
	t := &Trace{
		Options: Options{Criteria: verdict.InSeconds().Repeated()}, PID: trainerPID,
		History: &growth.History{}, Checks: verdict.NewRechecks(verdict.InSeconds().Repeated()),
		Others: []growth.OtherProcess{{PID: 9, Growth: 2000 * mib}},
	}
	member := growth.Member{Traced: true, Process: growth.Process{
		PID: trainerPID, Born: -3 * time.Hour, Role: growth.RoleTrainer, Rank: growth.Unknown,
	}}

	for second := range 901 {
		s := growth.UnknownSample()
		s.Elapsed, s.RSS = time.Duration(second)*time.Second, int64(1024+second)*mib
		t.History.Add(growth.TreeSample{
			Elapsed: s.Elapsed, Members: []growth.Member{member},
			Processes: []growth.ProcessSample{{PID: trainerPID, Sample: s}},
		})
		if second%30 != 0 {
			continue
		}
		t.Snapshots = append(t.Snapshots, &growth.Snapshot{
			Elapsed: s.Elapsed, Alive: []int{trainerPID},
			Residents: []growth.Resident{{PID: trainerPID, Traced: true, RSS: s.RSS, Scanned: 1}},
			Holdings: []growth.Holding{{
				Stack: growth.NamedStack(trainerPID, "", "leaks"), Kind: growth.KindMmap,
				InuseBytes: int64(second) * mib, ResidentBytes: int64(second) * mib,
			}},
		})
	}
	return t
}

// TestConclude concludes by one check, and then by three.
func TestConclude(t *testing.T) {
	trace := leaking()
	judged := trace.Judge()
	if len(judged) != 1 || judged[0].Class != verdict.ClassLeak {
		t.Fatalf("%d processes are judged: %+v", len(judged), judged)
	}

	trace.Checks.Add(judged[0].Verdict)
	first := trace.Conclude(judged)
	if v := first.Main.Verdict; v.Class != verdict.ClassSuspected ||
		v.Reason != verdict.ReasonFewRechecks || v.Longer <= 0 {
		t.Errorf("after one check: %s (%s), %v s more", v.Class, v.Reason, v.Longer)
	}
	if judged[0].Class != verdict.ClassLeak || !reflect.DeepEqual(first.Grown, trace.Conclude(judged).Grown) {
		t.Error("it concludes something else the second time")
	}

	trace.Checks.Add(judged[0].Verdict)
	trace.Checks.Add(judged[0].Verdict)
	r := trace.Conclude(judged)
	if v := r.Main.Verdict; v.Class != verdict.ClassLeak || r.Main.Other != nil {
		t.Errorf("after three checks: %s (%s), %+v", v.Class, v.Reason, r.Main.Other)
	}
	if len(r.Related) != 1 || r.Related[0].PID != 9 {
		t.Errorf("other processes that grow: %+v", r.Related)
	}
	if len(r.Grown) != 1 || r.Grown[0].Trend != growth.TrendAccumulating ||
		r.RSS.End-r.RSS.Baseline != r.Pair.End.Holdings[0].InuseBytes-r.Pair.Start.Holdings[0].InuseBytes {
		t.Errorf("RSS %+v, grown %+v", r.RSS, r.Grown)
	}
}

// TestConcludeNothing concludes from a trace in which nothing was traced.
func TestConcludeNothing(t *testing.T) {
	trace := &Trace{PID: trainerPID, History: &growth.History{}}
	r := trace.Conclude(trace.Judge())
	if r.Main.History != nil || r.Main.Class != verdict.ClassTooShort || r.Steps != nil ||
		r.RSS.End != growth.Unknown || r.Outlier != nil || len(r.Grown) != 0 {
		t.Errorf("%+v", r)
	}
}

// TestOtherProcesses leaves out negligible memory.
func TestOtherProcesses(t *testing.T) {
	for want, others := range map[int]map[int]int64{
		0: {1: 100, 2: 4, 3: 0},
		2: {1: 100, 2: 4, 3: 1},
		1: {2: 4},
	} {
		if got := OtherProcesses(1, others); got != want {
			t.Errorf("%d other processes of %v, want %d", got, others, want)
		}
	}
}

// TestPeak: a peak that no sample shows is the highest RSS that the kernel has counted.
func TestPeak(t *testing.T) {
	// RSS grows from 1,024 to 1,924 MiB.
	for name, c := range map[string]struct {
		first, last int64 // MiB
		peak        int64 // 0: nothing is said
		before      bool
	}{
		"between samples":    {1024, 2886, 2886, false},
		"hardly higher":      {1024, 2885, 0, false},
		"before the trace":   {4000, 4000, 4000, true},
		"before, and higher": {4000, 5000, 5000, false},
		"not known":          {0, 0, 0, false},
	} {
		trace := leaking()
		for i, s := range trace.Snapshots {
			s.Residents[0].Peak = c.last * mib
			if i == 0 {
				s.Residents[0].Peak = c.first * mib
			}
		}
		want := c.peak * mib
		if want == 0 {
			want = growth.Unknown
		}
		if r := trace.Conclude(trace.Judge()); r.RSS.Peak != want || r.RSS.PeakBefore != c.before {
			t.Errorf("%s: a peak of %d, before: %v; want %d", name, r.RSS.Peak, r.RSS.PeakBefore, want)
		}
	}
}
