package conclude

import (
	"math"
	"testing"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/verdict"
)

// A gain is the growth of a row of anonymous memory of a container, in MiB.
type gain struct {
	pid int
	by  int64
}

// inContainer is a trace in a container that grows besides the tree by 60 MiB/min, for ten minutes.
// Its rows of anonymous memory have these gains, and forks count some of it twice.
func inContainer(main func(int) float64, forked int64, gains ...gain) *Trace {
	trace := traceOf(member{1, growth.RoleTrainer, true, main},
		member{2, growth.RoleWorker, false, flat(50)})
	for i := range trace.History.Rows {
		row := &trace.History.Rows[i]
		row.System.CgroupLimit = 4 << 30
		row.System.CgroupUsed = row.Tree.RSS + int64(100*mib+60*mib*i/60)
	}
	first, last := &growth.Container{Limit: 4 << 30}, &growth.Container{Limit: 4 << 30}

	add := func(kind growth.ContainerKind, key string, pid int, by int64) {
		row := growth.ContainerRow{Kind: kind, Key: key, PID: pid, Name: "sidecar", Bytes: 100 * mib}
		first.Rows = append(first.Rows, row)
		row.Bytes += by * mib
		last.Rows = append(last.Rows, row)
	}
	for _, g := range gains {
		add(growth.ContainerAnonymous, string(rune('a'+g.pid)), g.pid, g.by)
	}
	add(growth.ContainerForked, "", 0, -forked)

	last.Elapsed = 10 * time.Minute
	trace.Container = growth.Containers{First: first, Last: last}
	return trace
}

// TestOutsideProcesses names the process outside of the tree that fills the container.
func TestOutsideProcesses(t *testing.T) {
	for name, c := range map[string]struct {
		forked int64
		gains  []gain
		kind   OutsideKind
		pid    int
		grown  int64 // MiB
	}{
		"a sibling":                   {0, []gain{{1, 0}, {8, 600}}, OutsideProcesses, 8, 600},
		"several":                     {0, []gain{{7, 200}, {8, 300}, {9, 100}}, OutsideProcesses, 8, 600},
		"many small ones":             {0, manyGains(60, 10), OutsideProcesses, 10, 600},
		"forks of a sibling":          {500, []gain{{7, 550}, {8, 550}}, OutsideProcesses, 7, 600},
		"cache that is in use":        {0, []gain{{8, 100}}, "", 0, 0},
		"a worker that is not traced": {0, []gain{{2, 600}}, "", 0, 0},
		"one takes another's place":   {0, []gain{{8, 600}, {9, -600}}, "", 0, 0},
	} {
		r := conclude(inContainer(flat(500), c.forked, c.gains...))
		o := r.Outside
		if c.kind == "" {
			if o != nil || r.Main.Class != verdict.ClassPlateau {
				t.Errorf("%s: %+v, %s, want none", name, o, r.Main.Class)
			}
			continue
		}
		if o == nil || o.Kind != c.kind || o.Process == nil || o.Process.PID != c.pid ||
			o.Grown != c.grown*mib || r.Main.Reason != verdict.ReasonOutside || r.Together != nil {
			t.Errorf("%s: %+v, %s, together %+v", name, o, r.Main.Reason, r.Together)
		}
	}
}

func manyGains(count int, by int64) (gains []gain) {
	for i := range count {
		gains = append(gains, gain{10 + i, by})
	}
	return gains
}

// TestOutsideForkedTree has a sibling that grows beside a tree whose workers share ever more memory.
func TestOutsideForkedTree(t *testing.T) {
	o := conclude(inContainer(flat(500), 1200, gain{8, 600})).Outside
	if !o.isOfOne() || o.Process.PID != 8 || o.Grown != 600*mib {
		t.Errorf("%+v", o)
	}
	if o := conclude(inContainer(flat(500), 0, gain{7, 300}, gain{8, 300})).Outside; o.isOfOne() {
		t.Errorf("one of two: %+v", o)
	}
}

// TestOutsideCountsOnce has the forecast of a process that grows, and of one that does not, where
// others fill the container at 60 MiB/min.
func TestOutsideCountsOnce(t *testing.T) {
	sibling := growth.OtherProcess{
		PID: 8, Relation: growth.RelationJob, Growth: 600 * mib, Rate: mib, InCgroup: true,
	}
	for name, c := range map[string]struct {
		main      func(int) float64
		perMinute float64 // of all that grows; 0: there is no forecast for several
	}{
		"flat":    {flat(500), 0},
		"growing": {rising(500, 30), 90},
	} {
		for _, others := range [][]growth.OtherProcess{nil, {sibling}} {
			trace := inContainer(c.main, 0, gain{8, 600})
			trace.Others = others
			r := conclude(trace)
			switch {
			case len(r.Related) != 0 && c.perMinute == 0:
				t.Errorf("%s: the headline names %+v", name, r.Related)
			case c.perMinute == 0 && (r.Together != nil || math.Abs(r.Main.Rate*60/mib-60) > 3):
				t.Errorf("%s: together %+v, alone %v", name, r.Together, r.Main.Rate)
			case c.perMinute == 0:
			case r.Together == nil || math.Abs(r.Together.Rate*60/mib-c.perMinute) > 3 ||
				len(r.Together.With) != 1 || r.Together.With[0] != 8:
				t.Errorf("%s: together %+v, want %v MiB/min with PID 8", name, r.Together, c.perMinute)
			}
		}
	}

	trace := inContainer(rising(500, 30), 0)

	trace.Container.Last.Rows = append(trace.Container.Last.Rows,
		growth.ContainerRow{Kind: growth.ContainerSockets, Bytes: 600 * mib})
	if got := conclude(trace).Together; got == nil || got.Outside != OutsideKernel ||
		math.Abs(got.Rate*60/mib-90) > 3 {
		t.Errorf("sockets besides: %+v", got)
	}
}

// TestOutsideAfterJump has memory that grows by 60 MiB/min, and falls a little near the end, behind
// which the verdict judges; and memory that only jumps, and then grows by next to nothing.
func TestOutsideAfterJump(t *testing.T) {
	for name, c := range map[string]struct {
		perMinute float64
		jump      int64 // MiB
		want      bool
	}{
		"grows throughout": {60, -60, true},
		"jumps":            {0.5, 600, false},
	} {
		trace := inContainer(flat(500), 0, gain{8, 600})
		for i := range trace.History.Rows {
			row := &trace.History.Rows[i]
			row.System.CgroupUsed = row.Tree.RSS + int64(100*mib+c.perMinute*mib*float64(i)/60)
			if i > len(trace.History.Rows)*92/100 {
				row.System.CgroupUsed += c.jump * mib
			}
		}
		r := conclude(trace)
		if got := r.Outside.isOfProcesses(); got != c.want || got && r.Main.Length > 60 {
			t.Errorf("%s: %+v, %s for %v s", name, r.Outside, r.Main.Class, r.Main.Length)
		}
	}
}

// TestOutsideReadEarly has a container that was last read long before its end, when little had
// grown.
func TestOutsideReadEarly(t *testing.T) {
	for name, c := range map[string]struct {
		by   int64 // MiB, until the last reading
		at   time.Duration
		want bool
	}{
		"most of the growth":  {30, 40 * time.Second, true},
		"a part of it":        {30, 200 * time.Second, false},
		"next to nothing yet": {10, 12 * time.Second, false},
	} {
		trace := inContainer(flat(500), 0, gain{8, c.by})
		trace.Container.Last.Elapsed = c.at
		if got := conclude(trace).Outside.isOfProcesses(); got != c.want {
			t.Errorf("%s: named: %v", name, got)
		}
	}
}
