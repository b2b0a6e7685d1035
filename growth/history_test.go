package growth

import (
	"reflect"
	"testing"
	"time"

	"github.com/allocscope/allocscope/growth/verdict"
)

// seen is a moment of processes that are all traced unless they are workers.
func seen(second int, samples map[int]Sample, roles map[int]Role) TreeSample {
	m := TreeSample{
		Elapsed: time.Duration(second) * time.Second,
		System:  SystemMemory{Available: Unknown, CgroupUsed: Unknown, CgroupLimit: Unknown},
	}
	for pid := range 10 {
		s, ok := samples[pid]
		if !ok {
			continue
		}
		s.Elapsed = m.Elapsed
		role := roles[pid]
		m.Members = append(m.Members,
			Member{Process: Process{PID: pid, Role: role}, Traced: !role.IsWorker()})
		m.Processes = append(m.Processes, ProcessSample{PID: int64(pid), Sample: s})
	}
	return m
}

func unread(rss int64) Sample { return Sample{RSS: rss, PSS: Unknown, Private: Unknown} }

func TestHistoryAdd(t *testing.T) {
	t.Run("sums of the traced processes and the tree", func(t *testing.T) {
		var h History
		roles := map[int]Role{1: RoleRank, 2: RoleRank, 3: RoleLoaderWorker}
		row := h.Add(seen(1, map[int]Sample{
			1: {RSS: 10, PSS: 8, Private: 6, Threads: 2},
			2: {RSS: 20, PSS: Unknown, Private: Unknown, Threads: 3},
			3: {RSS: 5, PSS: 1, Private: 1},
		}, roles))
		if row.RSS != 30 || row.Threads != 5 || row.PSS != Unknown {
			t.Errorf("traced: RSS %d, threads %d, PSS %d; want 30, 5, unknown", row.RSS,
				row.Threads, row.PSS)
		}
		if want := (Tree{Processes: 3, RSS: 35, PSS: Unknown, Private: Unknown}); row.Tree != want {
			t.Errorf("tree %+v, want %+v", row.Tree, want)
		}

		row = h.Add(seen(2, map[int]Sample{
			1: unread(10), 2: {RSS: 20, PSS: 16, Private: 12}, 3: unread(5),
		}, roles))
		if want := (Tree{Processes: 3, RSS: 35, PSS: 25, Private: 19}); row.Tree != want {
			t.Errorf("tree %+v, want %+v: the latest reading of each", row.Tree, want)
		}
	})

	t.Run("a gap without traced processes", func(t *testing.T) {
		var h History
		row := h.Add(seen(1, map[int]Sample{3: {RSS: 5}}, map[int]Role{3: RoleLoaderWorker}))
		if row.RSS != Unknown || row.Steps != Unknown || row.Tree.RSS != 5 {
			t.Errorf("row %+v, want nothing but the tree", row)
		}
	})

	t.Run("an exec begins a new history", func(t *testing.T) {
		var h History
		h.Add(seen(1, map[int]Sample{1: {RSS: 500}}, nil))
		again := seen(2, map[int]Sample{1: {RSS: 200}}, nil)
		again.Members[0].Born = 2 * time.Second
		h.Add(again)
		if len(h.Processes) != 2 || len(h.Processes[0].Timeline) != 1 ||
			h.Main() != h.Processes[1] {
			t.Fatalf("%d processes, want two, the second of them the main one", len(h.Processes))
		}
		between := &Snapshot{Elapsed: 1500 * time.Millisecond, Alive: []int{1}}
		after := &Snapshot{Elapsed: 3 * time.Second, Alive: []int{1}}
		if old := h.Processes[0]; !old.IsIn(between) || old.IsIn(after) {
			t.Error("what the new program holds is taken for the old one's")
		}
	})

	t.Run("the number of processes is bounded", func(t *testing.T) {
		var h History
		h.Add(seen(0, map[int]Sample{1: {RSS: 900}}, nil))
		for second := range 10 * maxHistories {
			command := seen(second+1, map[int]Sample{2: {RSS: 5}, 3: {RSS: 7}},
				map[int]Role{3: RoleOther})
			for i := range command.Members {
				command.Members[i].Born = time.Duration(second)
			}
			h.Add(command)
		}
		if len(h.Processes) != maxHistories || h.Processes[0].PID != 1 || h.Main().PID != 1 {
			t.Errorf("%d processes, main %d, want %d and the trainer", len(h.Processes),
				h.Main().PID, maxHistories)
		}
		if last := h.Processes[len(h.Processes)-1]; last.PID != 3 ||
			last.Last != 10*maxHistories*time.Second {
			t.Errorf("the last is %+v, want the one that lives", last.Process)
		}
	})

	t.Run("GPUs by their latest sample", func(t *testing.T) {
		var h History
		first := []GPUSample{{Index: 0, Instance: -1, Used: 5}, {Index: 1, Instance: 2, Used: 6}}
		second := []GPUSample{{Index: 1, Instance: 2, Used: 9}, {Index: 1, Instance: 3, Used: 1}}
		h.Add(TreeSample{GPUs: first})
		h.Add(TreeSample{Elapsed: time.Second, GPUs: second})
		if len(h.GPUs) != 3 || h.GPUs[0].Used != 5 || h.GPUs[1].Used != 9 ||
			h.GPUs[2].Instance != 3 {
			t.Errorf("%+v", h.GPUs)
		}
		for i := range 1000 {
			h.Add(TreeSample{Elapsed: time.Minute, GPUs: []GPUSample{{Index: i}}})
		}
		if len(h.GPUs) != maxGPUs {
			t.Errorf("%d are remembered", len(h.GPUs))
		}
	})
}

func TestHistoryHalts(t *testing.T) {
	var h History
	for second, halt := range []Halt{HaltFrozen, HaltFrozen, "", HaltStopped, HaltStopped, HaltFrozen} {
		m := seen(second, map[int]Sample{1: unread(10)}, nil)
		m.Members[0].Condition.Halt = halt
		h.Add(m)
	}
	p := h.Processes[0]
	if p.Stopped != 2*time.Second || p.Frozen != 2*time.Second || p.Condition.Halt != HaltFrozen {
		t.Errorf("stopped %v, frozen %v, at the end %q", p.Stopped, p.Frozen, p.Condition.Halt)
	}
}

func TestHistoryMain(t *testing.T) {
	t.Run("not what runs after the trainer", func(t *testing.T) {
		var h History
		h.Add(seen(1, map[int]Sample{1: {RSS: 900}}, nil))
		h.Add(seen(2, map[int]Sample{2: {RSS: 20}}, nil))
		if main := h.Main(); main.PID != 1 {
			t.Errorf("main is %d, want the trainer that was there before", main.PID)
		}
	})

	t.Run("the last to live, then the one that grew most", func(t *testing.T) {
		var h History
		h.Add(seen(1, map[int]Sample{1: {RSS: 1}, 2: {RSS: 1}, 3: {RSS: 1}}, nil))
		h.Add(seen(2, map[int]Sample{1: {RSS: 300}, 2: {RSS: 350}, 3: {RSS: 900}}, nil))
		h.Add(seen(3, map[int]Sample{1: {RSS: 300}, 2: {RSS: 360}}, nil))
		if main := h.Main(); main.PID != 2 {
			t.Errorf("main is %d, want 2: 3 has exited, and 1 grew less", main.PID)
		}
		if (&History{}).Main() != nil {
			t.Error("an empty history has a main process")
		}
	})
}

func TestIsShortLived(t *testing.T) {
	var h History
	h.Add(seen(1, map[int]Sample{1: {RSS: 1}, 2: {RSS: 1}}, nil))
	h.Add(seen(2, map[int]Sample{1: {RSS: 1}, 3: {RSS: 1}, 4: {RSS: 1}}, nil))
	h.Add(seen(3, map[int]Sample{3: {RSS: 1}, 5: {RSS: 1}}, nil))
	for _, track := range h.Processes {
		if got, want := h.IsShortLived(track), track.PID == 2 || track.PID == 4; got != want {
			t.Errorf("process %d: %v, want %v", track.PID, got, want)
		}
	}
}

func TestHeadroom(t *testing.T) {
	for _, c := range []struct {
		around SystemMemory
		room   int64
		limit  string
	}{
		{SystemMemory{Available: 100, CgroupUsed: 30, CgroupLimit: 80}, 50, "cgroup"},
		{
			SystemMemory{Available: 100, CgroupUsed: 30, CgroupLimit: 80, CgroupThrottles: true},
			50, "cgroup-high",
		},
		{SystemMemory{Available: 40, CgroupUsed: 30, CgroupLimit: 80}, 40, "machine"},
		{SystemMemory{Available: Unknown, CgroupUsed: 90, CgroupLimit: 80}, 0, "cgroup"},
		{SystemMemory{Available: 40, CgroupUsed: Unknown, CgroupLimit: Unknown}, 40, "machine"},
		{SystemMemory{Available: Unknown, CgroupUsed: Unknown, CgroupLimit: Unknown}, 0, ""},
	} {
		if got := c.around.Headroom(); got.Left != c.room || got.Of != c.limit {
			t.Errorf("room of %+v is %d by %q, want %d by %q", c.around, got.Left, got.Of, c.room,
				c.limit)
		}
	}
}

func TestGivenHeadroom(t *testing.T) {
	for _, c := range []struct {
		limit int64
		tree  Tree
		want  Headroom
	}{
		{0, Tree{RSS: 30, PSS: 20}, Headroom{}},
		{100, Tree{Processes: 2, RSS: 30, PSS: 20}, Headroom{80, 100, LimitGiven}},
		{100, Tree{Processes: 1, RSS: 30, PSS: 20}, Headroom{70, 100, LimitGiven}},
		{100, Tree{Processes: 2, RSS: 30, PSS: Unknown}, Headroom{70, 100, LimitGiven}},
		{10, Tree{RSS: 30, PSS: 20}, Headroom{0, 10, LimitGiven}},
		{100, Tree{RSS: Unknown, PSS: Unknown}, Headroom{}},
	} {
		if got := GivenHeadroom(c.limit, c.tree); got != c.want {
			t.Errorf("of %d and %+v: %+v, want %+v", c.limit, c.tree, got, c.want)
		}
	}
}

func TestNearest(t *testing.T) {
	none, near, far := Headroom{}, Headroom{30, 90, LimitData}, Headroom{40, 0, LimitMachine}
	for _, c := range []struct{ a, b, want Headroom }{
		{none, none, none}, {none, far, far}, {far, none, far}, {far, near, near}, {near, far, near},
	} {
		if got := c.a.Nearest(c.b); got != c.want {
			t.Errorf("of %+v and %+v the nearest is %+v", c.a, c.b, got)
		}
	}
}

func TestGPUHeadroom(t *testing.T) {
	if room := GPUHeadroom(nil, 7); room != Unknown {
		t.Errorf("without GPUs %d", room)
	}
	own := []int{3, 7}
	gpus := []GPUSample{
		{Used: Unknown, Total: 5, Users: own},
		{Used: 60, Total: 80, Users: own},
		{Used: 70, Total: 80, Users: own},
		{Used: 3, Total: Unknown, Users: own},
		{Used: 79, Total: 80, Users: []int{9}},
	}
	if room := GPUHeadroom(gpus, 7); room != 10 {
		t.Errorf("%d", room)
	}
	if room := GPUHeadroom(gpus, 8); room != Unknown {
		t.Errorf("of a process that is listed on none of several %d", room)
	}
	if room := GPUHeadroom([]GPUSample{{Used: 9, Total: 8}}, 7); room != 0 {
		t.Errorf("used more than there is: %d", room)
	}
}

func TestGroups(t *testing.T) {
	var h History
	roles := map[int]Role{
		1: RoleTrainer, 2: RoleCompileWorker, 3: RoleCompileWorker, 4: RoleCompileWorker,
		5: RoleOther,
	}
	h.Add(seen(1, map[int]Sample{
		1: unread(900), 2: {RSS: 400, PSS: 60, Private: 50}, 3: unread(410), 4: unread(420),
		5: {RSS: 9, PSS: 8, Private: 7},
	}, roles))
	other := Group{
		GroupKey: GroupKey{Role: RoleOther}, Count: 1,
		Largest: 5, RSS: 9, PSS: 8, Private: 7,
	}
	compiling := Group{
		GroupKey: GroupKey{Role: RoleCompileWorker}, Count: 3,
		Largest: 4, RSS: 410, PSS: Unknown, Private: Unknown,
	}
	mustGroup(t, &h, []Group{other, compiling})

	h.Add(seen(2, map[int]Sample{
		1: unread(900), 2: unread(400), 3: {RSS: 410, PSS: 61, Private: 51},
		4: {RSS: 420, PSS: 62, Private: 52}, 5: unread(9),
	}, roles))
	compiling.PSS, compiling.Private = 183, 153
	mustGroup(t, &h, []Group{compiling, other})

	h.Add(seen(3, map[int]Sample{1: unread(900), 2: {RSS: 400, PSS: 70, Private: 60}}, roles))
	mustGroup(t, &h, []Group{{
		GroupKey: GroupKey{Role: RoleCompileWorker}, Count: 1, Largest: 2,
		RSS: 400, PSS: 70, Private: 60,
	}})

	want := verdict.Series{X: []float64{2, 3}, Y: []float64{153, 60}}
	if got := h.Groups()[0].History; !reflect.DeepEqual(got, want) {
		t.Errorf("history %+v, want the sums of the moments at which all had been read", got)
	}
}

func TestGroupOfReplacedWorkers(t *testing.T) {
	const life, rate = 20, 1 << 20
	roles := map[int]Role{1: RoleTrainer, 2: RoleWorker, 3: RoleWorker, 4: RoleWorker, 5: RoleWorker}

	record := func(rss func(age int) int64) Group {
		var h History
		for second := range 4 * life {
			worker := 2 + second/life // each replaces the one before
			s := seen(second, map[int]Sample{
				1: unread(900), worker: unread(rss(second % life)),
			}, roles)
			for i := range s.Members {
				s.Members[i].Parent, s.Members[i].Traced = 1, s.Members[i].PID == 1
			}
			h.Add(s)
		}
		return h.Groups()[0]
	}

	grows := record(func(age int) int64 { return 50<<20 + int64(age)*rate })
	if grows.Replaced != 3 || grows.Growing != 3 || grows.Grown != (life-1)*rate ||
		grows.Life != (life-1)*time.Second {
		t.Errorf("workers that grow until they are replaced: %+v", grows)
	}
	starts := record(func(age int) int64 { return int64(min(age, 3)) * 20 * rate })
	if starts.Replaced != 3 || starts.Growing != 0 {
		t.Errorf("workers that only start up: %+v", starts)
	}

	var h History
	h.Add(seen(1, map[int]Sample{1: unread(900), 2: unread(5), 3: unread(5)}, roles))
	h.Add(seen(2, map[int]Sample{1: unread(900), 2: unread(5), 3: unread(5)}, roles))
	h.Add(seen(3, map[int]Sample{1: unread(900), 3: unread(5)}, roles))
	if g := h.Groups()[0]; g.Count != 1 || g.Replaced != 0 {
		t.Errorf("a worker that ended for good: %+v", g)
	}
}

func TestGroupHasTracedWorkers(t *testing.T) {
	roles := map[int]Role{1: RoleTrainer, 2: RoleWorker, 3: RoleWorker}
	s := seen(1, map[int]Sample{1: unread(9), 2: {RSS: 5, Private: 5}, 3: {RSS: 6, Private: 6}}, roles)
	for i := range s.Members {
		s.Members[i].Parent, s.Members[i].Traced = 1, s.Members[i].PID == 2
	}
	var h History
	h.Add(s)
	if g := h.Groups()[0]; g.Count != 2 || g.Traced != 1 || g.Private != 11 {
		t.Errorf("%+v", g)
	}

	alone := seen(1, map[int]Sample{2: unread(5)}, roles) // the user has named a worker
	alone.Members[0].Traced = true
	var own History
	own.Add(alone)
	if groups := own.Groups(); len(groups) != 0 {
		t.Errorf("a worker serves itself: %+v", groups)
	}
}

func mustGroup(t *testing.T, h *History, want []Group) {
	t.Helper()
	got := h.Groups()
	for i := range got {
		got[i].History, got[i].ended = verdict.Series{}, 0
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("groups\n%+v, want\n%+v", got, want)
	}
}

func TestHistoryOfDays(t *testing.T) {
	const ranks, seconds = 6, 100_000 // thinned twice
	roles := make(map[int]Role)
	for pid := 1; pid <= ranks; pid++ {
		roles[pid] = RoleRank
	}

	var h History
	for second := range seconds {
		samples := make(map[int]Sample, ranks)
		for pid := 1; pid <= ranks; pid++ {
			if pid == 1 || second > 100 {
				samples[pid] = unread(int64(second))
			}
		}
		if row := h.Add(seen(second, samples, roles)); row.Elapsed != time.Duration(second)*time.Second {
			t.Fatalf("the row of second %d is of %s", second, row.Elapsed)
		}
		if last := h.Rows[len(h.Rows)-1].Elapsed; last != time.Duration(second)*time.Second {
			t.Fatalf("the last row at second %d is of %s", second, last)
		}
	}

	total := len(h.Rows)
	for _, p := range h.Processes {
		total += len(p.Timeline)
		first, last := p.Timeline[0], p.Timeline[len(p.Timeline)-1]
		if first.Elapsed != p.First || last.Elapsed != p.Last || last.RSS != seconds-1 {
			t.Errorf("PID %d: from %s to %s, RSS %d at the end", p.PID, first.Elapsed, last.Elapsed,
				last.RSS)
		}

		gaps := make(map[time.Duration]int)
		for i := 2; i < len(p.Timeline)-1; i++ { // the first and the last are always there
			gaps[p.Timeline[i].Elapsed-p.Timeline[i-1].Elapsed]++
		}
		if len(gaps) != 1 {
			t.Errorf("PID %d: times between samples %v, want one", p.PID, gaps)
		}
	}
	if total > maxSamples+ranks+1 || total < maxSamples/4 {
		t.Errorf("%d samples are kept", total)
	}
}
