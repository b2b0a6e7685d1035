package conclude

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/verdict"
)

// A member of the trace of a tree: its RSS in MiB by the second.
type member struct {
	pid    int
	role   growth.Role
	traced bool
	rss    func(second int) float64
}

func flat(mebibytes float64) func(int) float64 {
	return func(int) float64 { return mebibytes }
}

func rising(from, perMinute float64) func(int) float64 {
	return func(second int) float64 { return from + perMinute*float64(second)/60 }
}

// filling levels off, with a scale in seconds.
func filling(from, by, scale float64) func(int) float64 {
	return func(second int) float64 { return from + by*(1-math.Exp(-float64(second)/scale)) }
}

// traceOf is a trace of ten minutes of a tree, the named process first, with 10 GiB left in the
// machine at its end.
func traceOf(members ...member) *Trace {
	t := &Trace{
		Options: Options{Criteria: verdict.InSeconds()}, PID: members[0].pid, History: &growth.History{},
	}
	for second := range 601 {
		s := growth.TreeSample{
			Elapsed: time.Duration(second) * time.Second,
			System: growth.SystemMemory{
				Available: 10 << 30, CgroupUsed: growth.Unknown, CgroupLimit: growth.Unknown,
			},
		}
		for _, m := range members {
			sample := growth.UnknownSample()
			sample.Elapsed, sample.RSS = s.Elapsed, int64(m.rss(second)*mib)
			sample.PSS, sample.Private = sample.RSS, sample.RSS
			s.Members = append(s.Members, growth.Member{Traced: m.traced, Process: growth.Process{
				PID: m.pid, Parent: members[0].pid, Born: -3 * time.Hour, Role: m.role, Rank: growth.Unknown,
			}})
			s.Processes = append(s.Processes, growth.ProcessSample{PID: int64(m.pid), Sample: sample})
		}
		t.History.Add(s)
	}
	t.Snapshots = []*growth.Snapshot{{}, {Elapsed: 600 * time.Second}}
	return t
}

func conclude(t *Trace) Result { return t.Conclude(t.Judge()) }

// TestWorstOfTree has the process that the result is about, and its verdict.
func TestWorstOfTree(t *testing.T) {
	const worker, trainer = growth.RoleWorker, growth.RoleTrainer
	parent := func(rss func(int) float64) member { return member{1, trainer, true, rss} }

	for name, c := range map[string]struct {
		members []member
		pid     int
		class   verdict.Class
		reason  verdict.Reason
	}{
		"nothing grows": {
			[]member{parent(flat(500)), {2, worker, false, flat(300)}},
			1, verdict.ClassPlateau, verdict.ReasonNoGrowth,
		},
		"a traced worker grows": {
			[]member{parent(flat(500)), {2, worker, true, rising(300, 70)}, {3, worker, false, rising(300, 70)}},
			2, verdict.ClassGrowing, verdict.ReasonStillGrowing,
		},
		"workers grow that are not traced": {
			[]member{parent(flat(500)), {2, worker, false, rising(300, 70)}, {3, worker, false, rising(300, 70)}},
			1, verdict.ClassGrowing, verdict.ReasonWorkers,
		},
		"workers that grow by next to nothing": {
			[]member{parent(flat(500)), {2, worker, false, rising(20, 1)}},
			1, verdict.ClassPlateau, verdict.ReasonNoGrowth,
		},
		"a traced worker fills a buffer": {
			[]member{parent(flat(500)), {2, worker, true, filling(300, 110, 60)}},
			1, verdict.ClassPlateau, verdict.ReasonNoGrowth,
		},
		"a traced worker still fills a buffer": {
			[]member{parent(flat(500)), {2, worker, true, filling(300, 400, 250)}},
			2, verdict.ClassSaturating, verdict.ReasonSlowsDown,
		},
		"the parent grows, too, and a worker far faster": {
			[]member{parent(rising(500, 10)), {2, worker, true, rising(300, 90)}},
			2, verdict.ClassGrowing, verdict.ReasonStillGrowing,
		},
		"the parent grows as fast": {
			[]member{parent(rising(500, 60)), {2, worker, true, rising(300, 70)}},
			1, verdict.ClassGrowing, verdict.ReasonStillGrowing,
		},
	} {
		r := conclude(traceOf(c.members...))
		if r.Main.History.PID != c.pid || r.Main.Class != c.class || r.Main.Reason != c.reason {
			t.Errorf("%s: PID %d, %s (%s), want %d, %s (%s)", name, r.Main.History.PID, r.Main.Class,
				r.Main.Reason, c.pid, c.class, c.reason)
		}
	}
}

// TestTogether adds up the growth in the memory of the machine: 10 GiB are left.
func TestTogether(t *testing.T) {
	const minute = 60.0
	other := func(pid int, perMinute float64) growth.OtherProcess {
		return growth.OtherProcess{
			PID: pid, Relation: growth.RelationMachine, Growth: 1 << 30, Rate: perMinute * mib / minute,
		}
	}

	for name, c := range map[string]struct {
		members []member
		others  []growth.OtherProcess
		minutes float64 // 0: there is no forecast for all
		with    []int
		workers int
	}{
		"alone": {[]member{{1, growth.RoleTrainer, true, rising(500, 60)}}, nil, 0, nil, 0},
		"with others": {
			[]member{{1, growth.RoleTrainer, true, rising(500, 60)}},
			[]growth.OtherProcess{other(8, 100), other(9, 352)},
			20,
			[]int{9, 8},
			0,
		},
		"others that grow by next to nothing": {
			[]member{{1, growth.RoleTrainer, true, rising(500, 60)}}, []growth.OtherProcess{other(8, 2)}, 0, nil, 0,
		},
		"others that have stopped growing": {
			[]member{{1, growth.RoleTrainer, true, rising(500, 60)}}, []growth.OtherProcess{other(8, 0)}, 0, nil, 0,
		},
		"another one alone": {
			[]member{{1, growth.RoleTrainer, true, flat(500)}}, []growth.OtherProcess{other(8, 512)}, 20, []int{8}, 0,
		},
		"a traced worker and its siblings": {
			[]member{
				{1, growth.RoleTrainer, true, flat(500)},
				{2, growth.RoleWorker, true, rising(300, 128)},
				{3, growth.RoleWorker, false, rising(300, 128)},
				{4, growth.RoleWorker, false, rising(300, 128)},
			}, nil, 10240. / 384, nil, 2,
		},
		"ranks": {
			[]member{
				{1, growth.RoleRank, true, rising(500, 256)}, {2, growth.RoleRank, true, rising(500, 256)},
			}, nil, 20, []int{2}, 0,
		},
	} {
		trace := traceOf(c.members...)
		trace.Others = c.others
		got := conclude(trace).Together
		if c.minutes == 0 {
			if got != nil {
				t.Errorf("%s: %+v, want none", name, got)
			}
			continue
		}
		if got == nil || math.Abs(got.ToLimit/minute-c.minutes) > .05*c.minutes ||
			fmt.Sprint(got.With) != fmt.Sprint(c.with) || got.Workers != c.workers ||
			got.Headroom.Of != growth.LimitMachine {
			t.Errorf("%s: %+v, want %v min with %v and %d workers", name, got, c.minutes, c.with, c.workers)
		}
	}
}

// TestTimeToFill counts memory that fills up as long as it does.
func TestTimeToFill(t *testing.T) {
	endless := func(rate float64) grower { return grower{rate: rate} }
	ending := func(rate, left float64) grower { return grower{rate: rate, left: left} }

	for name, c := range map[string]struct {
		all  []grower
		want float64
	}{
		"endless":            {[]grower{endless(10), endless(40)}, 20},
		"ends later":         {[]grower{endless(10), ending(40, 900)}, 20},
		"ends before":        {[]grower{endless(10), ending(40, 400)}, 60},
		"both end before":    {[]grower{ending(10, 90), ending(40, 400)}, math.Inf(1)},
		"one ends, one not":  {[]grower{ending(10, 90), ending(40, 4000)}, 910. / 40},
		"ends and two go on": {[]grower{ending(100, 500), endless(10), endless(40)}, 10},
		"nothing":            {nil, math.Inf(1)},
	} {
		if got := timeToFill(1000, c.all); math.Abs(got-c.want) > 1e-9 && got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestTogetherInCgroup counts processes outside of the container for the machine alone.
func TestTogetherInCgroup(t *testing.T) {
	trace := traceOf(member{1, growth.RoleTrainer, true, rising(500, 60)})
	last := &trace.History.Rows[len(trace.History.Rows)-1].System
	last.CgroupLimit, last.CgroupUsed = 2<<30, 1<<30
	trace.Others = []growth.OtherProcess{{PID: 8, Growth: 1 << 30, Rate: mib}}
	if got := conclude(trace).Together; got != nil {
		t.Errorf("a process of the machine fills the container, too: %+v", got)
	}
	trace.Others[0].InCgroup = true
	if got := conclude(trace).Together; got == nil || math.Abs(got.ToLimit-1024/2) > 30 ||
		got.Headroom.Of != growth.LimitCgroup {
		t.Errorf("both fill the container: %+v", got)
	}
}

// TestWrongProcess names another process only where the idle one has started it.
func TestWrongProcess(t *testing.T) {
	for name, c := range map[string]struct {
		relation growth.Relation
		isIdle   bool
		want     verdict.Class
	}{
		"an idle launcher":                   {growth.RelationStarted, true, verdict.ClassWrongProcess},
		"a flat trainer that has started it": {growth.RelationStarted, false, verdict.ClassPlateau},
		"another program of its script":      {growth.RelationJob, true, verdict.ClassPlateau},
		"another program of the machine":     {growth.RelationMachine, true, verdict.ClassPlateau},
	} {
		trace := traceOf(member{1, growth.RoleTrainer, true, flat(500)})
		trace.IsIdle = c.isIdle
		trace.Others = []growth.OtherProcess{{PID: 8, Relation: c.relation, Growth: 2 << 30, Rate: 1}}
		r := conclude(trace)
		if r.Main.Class != c.want {
			t.Errorf("%s: %s", name, r.Main.Class)
		}
		if isNoted := len(r.Related) == 1; isNoted != (c.want == verdict.ClassPlateau) {
			t.Errorf("%s: related %+v", name, r.Related)
		}
	}
}

// TestOutside has memory besides the processes that grows by 120 MiB/min.
func TestOutside(t *testing.T) {
	rise := func(of func(*growth.SystemMemory) *int64, inCgroup bool) *Trace {
		trace := traceOf(member{1, growth.RoleTrainer, true, flat(500)})
		for i := range trace.History.Rows {
			system := &trace.History.Rows[i].System
			if inCgroup {
				system.CgroupLimit, system.CgroupUsed = 8<<30, 600*mib
			}
			*of(system) += int64(120 * mib * i / 60)
		}
		return trace
	}
	shared := func(m *growth.SystemMemory) *int64 { return &m.Shared }
	kernel := func(m *growth.SystemMemory) *int64 { return &m.Kernel }
	used := func(m *growth.SystemMemory) *int64 { return &m.CgroupUsed }
	files := []growth.RAMFiles{{
		Path: "/dev/shm", Growth: 1200 * mib, Left: 600 * mib, New: 1200, NewBytes: 1200 * mib,
	}}
	foreign := []growth.RAMFiles{{Path: "/dev/shm", Growth: 1200 * mib, Left: 600 * mib, NewBytes: mib}}

	withRow := func(trace *Trace, kind growth.ContainerKind) *Trace {
		trace.Container = growth.Containers{
			First: &growth.Container{Charged: 600 * mib},
			Last: &growth.Container{
				Charged: 1800 * mib,
				Rows:    []growth.ContainerRow{{Kind: kind, Bytes: 1200 * mib}},
			},
		}
		return trace
	}

	for name, c := range map[string]struct {
		trace *Trace
		files []growth.RAMFiles
		want  OutsideKind // empty: none
	}{
		"page cache of a container":              {withRow(rise(used, true), growth.ContainerCache), nil, ""},
		"sockets of a container":                 {withRow(rise(used, true), growth.ContainerSockets), nil, OutsideKernel},
		"memory that was moved":                  {withRow(rise(used, true), growth.ContainerRest), nil, OutsideUnknown},
		"files of the job's user":                {rise(shared, false), files, OutsideFiles},
		"files of somebody else":                 {rise(shared, false), foreign, ""},
		"shared memory of the machine, no files": {rise(shared, false), nil, ""},
		"files in a container":                   {rise(shared, true), foreign, OutsideFiles},
		"shared memory of a container":           {rise(shared, true), nil, OutsideFiles},
		"kernel memory of a container":           {rise(kernel, true), nil, OutsideKernel},
		"kernel memory of the machine":           {rise(kernel, false), nil, ""},
		"a container":                            {rise(used, true), nil, OutsideUnknown},
		"nothing":                                {traceOf(member{1, growth.RoleTrainer, true, flat(500)}), files, ""},
	} {
		c.trace.RAMFiles = c.files
		r := conclude(c.trace)
		if c.want == "" {
			if r.Outside != nil || r.Main.Class != verdict.ClassPlateau {
				t.Errorf("%s: %+v, %s", name, r.Outside, r.Main.Class)
			}
			continue
		}
		if r.Outside == nil || r.Outside.Kind != c.want || r.Main.Reason != verdict.ReasonOutside ||
			math.Abs(r.Main.Rate*60/mib-120) > 3 {
			t.Errorf("%s: %+v, %s (%s), rate %v", name, r.Outside, r.Main.Class, r.Main.Reason, r.Main.Rate)
		}
		if c.files != nil && math.Abs(r.Main.ToLimit-300) > 10 {
			t.Errorf("%s: full in %v s, want 300: the file system has a limit of its own", name, r.Main.ToLimit)
		}
	}
}
