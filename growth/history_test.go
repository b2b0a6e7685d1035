package growth

import (
	"math"
	"testing"
	"time"
)

const mib = 1 << 20

// seen is a moment of processes that are all traced unless they are workers.
func seen(second int, samples map[int]Sample, roles map[int]Role) Moment {
	m := Moment{Elapsed: time.Duration(second) * time.Second, Around: Around{Available: Unknown, CgroupUsed: Unknown, CgroupLimit: Unknown}}
	for pid := range 10 {
		s, ok := samples[pid]
		if !ok {
			continue
		}
		s.Elapsed = m.Elapsed
		role := roles[pid]
		m.Members = append(m.Members, Member{Process: Process{PID: pid, Role: role}, Traced: !role.IsWorker()})
		m.Processes = append(m.Processes, ProcessSample{PID: int64(pid), Sample: s})
	}
	return m
}

func TestARowSumsTheTracedProcessesAndTheTree(t *testing.T) {
	var h History
	roles := map[int]Role{1: RoleRank, 2: RoleRank, 3: RoleLoaderWorker}
	row := h.Add(seen(1, map[int]Sample{
		1: {RSS: 10, PSS: 8, Private: 6, Threads: 2},
		2: {RSS: 20, PSS: Unknown, Private: Unknown, Threads: 3},
		3: {RSS: 5, PSS: 1, Private: 1},
	}, roles))
	if row.RSS != 30 || row.Threads != 5 || row.PSS != Unknown {
		t.Errorf("traced: RSS %d, threads %d, PSS %d; want 30, 5, unknown", row.RSS, row.Threads, row.PSS)
	}
	if want := (Tree{Processes: 3, RSS: 35, PSS: Unknown, Private: Unknown}); row.Tree != want {
		t.Errorf("tree %+v, want %+v", row.Tree, want)
	}
	row = h.Add(seen(2, map[int]Sample{
		1: {RSS: 10, PSS: Unknown, Private: Unknown}, 2: {RSS: 20, PSS: 16, Private: 12}, 3: {RSS: 5, PSS: Unknown, Private: Unknown},
	}, roles))
	if want := (Tree{Processes: 3, RSS: 35, PSS: 25, Private: 19}); row.Tree != want {
		t.Errorf("tree %+v, want %+v: the latest reading of each", row.Tree, want)
	}
}

func TestARowWithoutTracedProcessesIsAGap(t *testing.T) {
	var h History
	row := h.Add(seen(1, map[int]Sample{3: {RSS: 5}}, map[int]Role{3: RoleLoaderWorker}))
	if row.RSS != Unknown || row.Steps != Unknown || row.Tree.RSS != 5 {
		t.Errorf("row %+v, want nothing but the tree", row)
	}
}

func TestAProcessThatExecutesAnotherProgramGetsANewTrack(t *testing.T) {
	var h History
	h.Add(seen(1, map[int]Sample{1: {RSS: 500}}, nil))
	again := seen(2, map[int]Sample{1: {RSS: 200}}, nil)
	again.Members[0].Born = 2 * time.Second
	h.Add(again)
	if len(h.Tracks) != 2 || len(h.Tracks[0].Timeline) != 1 || h.Main() != h.Tracks[1] {
		t.Fatalf("%d tracks, want two, the second of them the main one", len(h.Tracks))
	}
	between, after := &Snapshot{Elapsed: 1500 * time.Millisecond, Alive: []int{1}}, &Snapshot{Elapsed: 3 * time.Second, Alive: []int{1}}
	if old := h.Tracks[0]; !old.IsIn(between) || old.IsIn(after) {
		t.Error("what the new program holds is taken for the old one's")
	}
}

func TestWhatRunsAfterATrainerIsNotTheMainProcess(t *testing.T) {
	var h History
	h.Add(seen(1, map[int]Sample{1: {RSS: 900}}, nil))
	h.Add(seen(2, map[int]Sample{2: {RSS: 20}}, nil))
	if main := h.Main(); main.PID != 1 {
		t.Errorf("main is %d, want the trainer that was there before", main.PID)
	}
}

func TestATraceRemembersABoundedNumberOfProcesses(t *testing.T) {
	var h History
	h.Add(seen(0, map[int]Sample{1: {RSS: 900}}, nil))
	for second := range 10 * maxHistories {
		command := seen(second+1, map[int]Sample{2: {RSS: 5}, 3: {RSS: 7}}, map[int]Role{3: RoleOther})
		command.Members[0].Born, command.Members[1].Born = time.Duration(second), time.Duration(second)
		h.Add(command)
	}
	if len(h.Tracks) != maxHistories || h.Tracks[0].PID != 1 || h.Main().PID != 1 {
		t.Errorf("%d tracks, main %d, want %d and the trainer", len(h.Tracks), h.Main().PID, maxHistories)
	}
	if last := h.Tracks[len(h.Tracks)-1]; last.PID != 3 || last.Last != 10*maxHistories*time.Second {
		t.Errorf("the last is %+v, want the one that lives", last.Process)
	}
}

func TestTheMainProcessIsTheLastToLiveAndThenTheOneThatGrewMost(t *testing.T) {
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
}

func TestAGlimpseIsWhatWasSeenOnceAndHasGone(t *testing.T) {
	var h History
	h.Add(seen(1, map[int]Sample{1: {RSS: 1}, 2: {RSS: 1}}, nil))
	h.Add(seen(2, map[int]Sample{1: {RSS: 1}, 3: {RSS: 1}, 4: {RSS: 1}}, nil))
	h.Add(seen(3, map[int]Sample{3: {RSS: 1}, 5: {RSS: 1}}, nil))
	for _, track := range h.Tracks {
		if got, want := h.IsGlimpse(track), track.PID == 2 || track.PID == 4; got != want {
			t.Errorf("process %d: %v, want %v", track.PID, got, want)
		}
	}
}

func TestGapsAreNoPartOfASeries(t *testing.T) {
	s := Timeline{{Elapsed: time.Second, RSS: 7}, {Elapsed: 2 * time.Second, RSS: Unknown}, {Elapsed: 3 * time.Second, RSS: 9}}.Series()
	if len(s.X) != 2 || s.X[1] != 3 || s.Y[1] != 9 {
		t.Errorf("series %+v", s)
	}
}

// machine is a history of 20 s in which the tree, which holds something already, and the memory around it grow evenly.
func machine(holds, tree, around int64) *History {
	var h History
	for second := range int64(21) {
		m := seen(int(second), map[int]Sample{1: {RSS: holds + tree*second/20}}, nil)
		m.Around.Available = 64<<30 - around*second/20
		h.Add(m)
	}
	return &h
}

func TestTheWrongProcessIsWatchedWhereAnotherGrows(t *testing.T) {
	trainer := []Outsider{{PID: 7, Command: "python3 train.py", Growth: 1100 * mib}}
	for name, c := range map[string]struct {
		tree, around int64
		outsiders    []Outsider
		class, want  Class
		holds        int64
	}{
		"a wrapper":                          {3 * mib, 1112 * mib, trainer, ClassPlateau, ClassWrongProcess, 0},
		"the tree explains it":               {900 * mib, 1112 * mib, trainer, ClassPlateau, ClassPlateau, 0},
		"what is watched leaks in any case":  {3 * mib, 1112 * mib, trainer, ClassLeak, ClassLeak, 0},
		"little grows":                       {0, 100 * mib, trainer, ClassPlateau, ClassPlateau, 0},
		"no process outside explains it":     {0, 9000 * mib, trainer, ClassPlateau, ClassPlateau, 0},
		"a neighbour of a large trainer":     {0, 1112 * mib, trainer, ClassPlateau, ClassPlateau, 2000 * mib},
		"nothing is known of what is around": {0, 1112 * mib, nil, ClassTooShort, ClassTooShort, 0},
	} {
		t.Run(name, func(t *testing.T) {
			got := Covered(Verdict{Class: c.class}, machine(max(mib, c.holds), c.tree, c.around), c.outsiders, Criteria{MinFlat: 10, Around: 256 * mib})
			if got.Class != c.want {
				t.Errorf("%s (%s), want %s", got.Class, got.Why, c.want)
			}
		})
	}
	if got := Covered(Verdict{Class: ClassPlateau}, machine(mib, 0, 1<<31), trainer, Criteria{MinFlat: 60, Around: 256 * mib}); got.Class != ClassPlateau {
		t.Errorf("%s after 20 s, want nothing said before a minute", got.Class)
	}
}

func TestTheLimitIsTheCgroupsWhereThatComesFirst(t *testing.T) {
	for _, c := range []struct {
		around Around
		room   int64
		limit  string
	}{
		{Around{Available: 100, CgroupUsed: 30, CgroupLimit: 80}, 50, "cgroup"},
		{Around{Available: 40, CgroupUsed: 30, CgroupLimit: 80}, 40, "machine"},
		{Around{Available: Unknown, CgroupUsed: 90, CgroupLimit: 80}, 0, "cgroup"},
		{Around{Available: 40, CgroupUsed: Unknown, CgroupLimit: Unknown}, 40, "machine"},
		{Around{Available: Unknown, CgroupUsed: Unknown, CgroupLimit: Unknown}, Unknown, ""},
	} {
		if room, limit := c.around.Room(); room != c.room || limit != c.limit {
			t.Errorf("room of %+v is %d by %q, want %d by %q", c.around, room, limit, c.room, c.limit)
		}
	}
}

func TestStepsAreCountedInTheWindow(t *testing.T) {
	var timeline Timeline
	for second := range 11 {
		steps := int64(Unknown) // libtorch comes later
		if second >= 2 {
			steps = int64(second-2) * 30
		}
		timeline = append(timeline, Sample{Elapsed: time.Duration(second) * time.Second, Steps: steps})
	}
	if got := stepsPerSecond(timeline, Window{From: 5 * time.Second, To: 10 * time.Second}); got != 30 {
		t.Errorf("%v steps a second, want 30", got)
	}
	if got := stepsPerSecond(timeline, Window{From: 0, To: time.Second}); !math.IsNaN(got) {
		t.Errorf("%v steps a second before any was counted", got)
	}
}
