package record

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/census"
	"github.com/allocscope/allocscope/growth/conclude"
	"github.com/allocscope/allocscope/growth/keeper"
	"github.com/allocscope/allocscope/growth/trend"
	"github.com/allocscope/allocscope/growth/verdict"
	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/objects"
	"github.com/allocscope/allocscope/tracer/overhead"
	"github.com/allocscope/allocscope/tracer/overhead/duty"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// A counting is a session whose censuses and searches take so long, and as much CPU time. It notes
// its requests.
type counting struct {
	days
	pids        []int
	censusTime  time.Duration
	searchTime  time.Duration
	hangs       bool    // until the context ends
	ownFloor    float64 // limit of CPU time; 0: there is none
	collections int
	found       []keeper.Search
	gained      keeper.Entries // by the containers that are read once more
	sweptAt     time.Duration  // when a second sweep was asked for
	err         error          // of the process

	used     time.Duration
	asked    []string
	censuses []tracer.CensusOptions
	searches []tracer.KeeperSearch
}

func (c *counting) TracedPIDs() []int             { return slices.Clone(c.pids) }
func (c *counting) ObjectsCPUTime() time.Duration { return c.used }
func (c *counting) Err() error                    { return c.err }

func (c *counting) Overhead() overhead.Overhead {
	o := overhead.Overhead{Elapsed: c.Elapsed()}
	o.OwnFloor = c.ownFloor
	return o
}

func (c *counting) work(ctx context.Context, cost time.Duration) error {
	if c.hangs {
		<-ctx.Done()
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(cost):
		c.used += cost
		return nil
	}
}

func (c *counting) Census(ctx context.Context, o tracer.CensusOptions) (*objects.Census, error) {
	c.asked, c.censuses = append(c.asked, "count"), append(c.censuses, o)
	at := c.Elapsed()
	if err := c.work(ctx, c.censusTime); err != nil {
		return nil, err
	}
	return &objects.Census{Result: census.Result{PID: o.PID, Elapsed: at, Collections: c.collections}}, nil
}

func (c *counting) Search(ctx context.Context, k tracer.KeeperSearch) ([]keeper.Search, error) {
	if k.Reread != nil {
		again := slices.Clone(k.Reread)
		for i := range again {
			again[i] = kept(again[i].Stack, "cache", int64(again[i].Paths[0].Links[0].Entries+c.gained))
			again[i].Elapsed = c.Elapsed()
		}
		return again, nil
	}
	c.asked, c.searches = append(c.asked, "search"), append(c.searches, k)
	if err := c.work(ctx, c.searchTime); err != nil {
		return nil, err
	}
	if len(k.Again) > 0 {
		c.sweptAt = c.Elapsed()
		again := slices.Clone(k.Again)
		for i := range again {
			again[i].Proof = keeper.Proof{
				Lost: 16, Of: 16, First: again[i].Elapsed, Second: c.sweptAt,
			}
		}
		return again, nil
	}
	found := slices.Clone(c.found)
	for i := range found {
		found[i].Elapsed = c.Elapsed()
	}
	return found, nil
}

// trainerPID is the process that grows.
const trainerPID = 100

// newCounting returns the session, and a recorder of a trace of so long.
func newCounting(t *testing.T, length time.Duration) (*counting, *Recorder) {
	t.Helper()
	dir, _ := createFolder(t)
	c := &counting{days: days{started: time.Now()}, pids: []int{7, trainerPID}}
	r, err := New(Setup{
		Session: c, Files: &Files{Folder: dir}, Report: func(Event) {},
	}, Options{Keepers: true, Duration: length, Speed: 1})
	tracertest.NoError(t, err)
	r.snapshots.all = []numberedSnapshot{{&growth.Snapshot{}, 0}}
	t.Cleanup(func() { _ = r.rows.close() })
	return c, r
}

// second lets a second pass, after which RSS is so many MiB.
func (c *counting) second(r *Recorder, mib int64) {
	time.Sleep(time.Second)
	sample := growth.UnknownSample()
	sample.Elapsed, sample.RSS = c.Elapsed(), mib<<20
	r.history.Add(growth.TreeSample{
		Elapsed: c.Elapsed(),
		System: growth.SystemMemory{
			Available: 1 << 40, SwapFree: growth.Unknown, CgroupUsed: growth.Unknown,
			CgroupLimit: growth.Unknown,
		},
		Members: []growth.Member{{
			Process: growth.Process{PID: trainerPID, Role: growth.RoleTrainer, Rank: growth.Unknown},
			Traced:  true,
		}},
		Processes: []growth.ProcessSample{{PID: trainerPID, Sample: sample}},
	})
	r.objects.watch(r.Recorded)
	synctest.Wait()
}

// grows is a verdict on the process with suspects of such stacks.
func (r *Recorder) grows(stacks ...uint64) conclude.Process {
	v := found(verdict.ClassLeak, 0)
	v.History = r.history.Main()
	for _, id := range stacks {
		v.Suspects = append(v.Suspects, trend.Suspect{StackIDs: []uint64{id, id + 1}})
	}
	return v
}

// kept is the answer that a dict keeps the objects of a stack.
func kept(stack uint64, name string, entries int64) keeper.Search {
	return keeper.Search{
		PID: trainerPID, Stack: stack, Samples: 16,
		Paths: []keeper.Path{{
			Root: keeper.Root{Kind: keeper.RootGlobal, Module: "__main__", Name: name},
			Links: []keeper.Link{{
				How: keeper.HowVariable, Type: "dict", Entries: keeper.Entries(entries),
				Readings: []keeper.Reading{{Address: 1 << 20, Entries: keeper.Entries(entries)}},
			}},
			Samples: 16,
		}},
	}
}

func TestObjectWatch(t *testing.T) {
	for name, test := range map[string]func(*testing.T){
		"early and at the end":            testEarlyAndEnd,
		"containers read once more":       testReread,
		"rest at the end":                 testRestAtEnd,
		"second sweep proves a loss":      testLoss,
		"half-way search is tried again":  testHalfwayAgain,
		"end refutes the half-way search": testEndRefutes,
		"command may end at any time":     testCommand,
		"end has no time":                 testEndWithoutTime,
		"end hangs":                       testEndHangs,
		"end is interrupted":              testEndInterrupted,
		"searched process comes first":    testSearchedFirst,
		"budget":                          testObjectBudget,
		"process that has exited":         testObjectsAfterExit,
		"process that executes another":   testObjectsAfterExec,
		"collections since the first one": testCollections,
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
	}
}

// finish searches at the end, and returns the results.
func (c *counting) finish(r *Recorder, v conclude.Process) []keeper.Search {
	r.objects.finish(context.Background(), r.Recorded(), v, summary.EndedDuration)
	return r.Recorded().KeepersOf(v.History)
}

func testEarlyAndEnd(t *testing.T) {
	c, r := newCounting(t, 4*time.Minute)
	c.found, c.searchTime = []keeper.Search{kept(1, "cache", 100)}, 4*time.Second
	for i := range int64(230) {
		if i == 200 {
			c.found = []keeper.Search{kept(1, "cache", 100+240)}
		}
		c.second(r, 1000+10*i)
	}
	early := r.objects.latest[0].Elapsed
	if len(c.searches) != 1 || early < firstSearch || early > firstSearch+10*time.Second {
		t.Fatalf("%d searches, the first at %s, want one after %s", len(c.searches), early,
			firstSearch)
	}

	for i := range int64(10) {
		c.second(r, 3300+10*i)
	}
	got := c.finish(r, r.grows(1))
	if len(got) != 1 || got[0].IsEarlier || got[0].Elapsed > c.Elapsed() || len(c.searches) != 2 {
		t.Fatalf("%+v after %d searches, want the answer of one before the end", got,
			len(c.searches))
	}
	want := 240 / (got[0].Elapsed - early).Minutes()
	if more := got[0].Paths[0].Links[0].PerMinute; more != want {
		t.Errorf("the dict grows by %v a minute, want %v", more, want)
	}
}

// The containers of a trace's only search are read once more at its end.
func testReread(t *testing.T) {
	for gained, want := range map[keeper.Entries]bool{2: false, 30: true} {
		c, r := newCounting(t, time.Minute)
		c.found, c.gained = []keeper.Search{kept(1, "cache", 100)}, gained
		c.ownFloor, c.used = 0.02, time.Hour // there is no time for a first search
		for i := range int64(60) {
			c.second(r, 1000+10*i)
		}
		searched := r.objects.latest[0].Elapsed
		time.Sleep(10 * time.Second)
		got := c.finish(r, r.grows(1))[0].Paths[0].Links[0].PerMinute
		if got > 0 != want || want && got != 30/(c.Elapsed()-searched).Minutes() {
			t.Errorf("%d more entries: %v a minute", gained, got)
		}
	}
}

// Suspects that the last search before the end did not have are searched for at the end.
func testRestAtEnd(t *testing.T) {
	for name, test := range map[string]struct {
		stacks []uint64
		extend bool
		want   [][]uint64 // stacks that are searched for at the end; nil: there is no search
	}{
		"the same":    {stacks: []uint64{1}},
		"another one": {stacks: []uint64{1, 5}, want: [][]uint64{{5, 6}}},
		"extended":    {stacks: []uint64{1}, extend: true, want: [][]uint64{{1, 2}}},
	} {
		c, r := newCounting(t, time.Minute)
		c.found = []keeper.Search{kept(1, "cache", 100)}
		c.ownFloor, c.used = 0.02, time.Hour // there is no time for a first search
		for i := range int64(60) {
			c.second(r, 1000+10*i)
		}
		if test.extend {
			r.end.Extend()
		}
		before := len(c.searches)
		got := c.finish(r, r.grows(test.stacks...))
		var stacks [][]uint64
		for _, k := range c.searches[before:] {
			stacks = append(stacks, k.Stacks...)
		}
		if !slices.EqualFunc(stacks, test.want, slices.Equal) {
			t.Errorf("%s: searched for %v at the end, want %v", name, stacks, test.want)
		}
		if len(got) == 0 || got[0].IsEarlier {
			t.Errorf("%s: %+v, want an answer of the end", name, got)
		}
	}
}

// lost is the answer that nothing refers to the objects of a type.
func lost() keeper.Search {
	s := keeper.Search{
		PID: trainerPID, Type: "int", Samples: 16, Reason: keeper.ReasonUnreferenced,
		Sweep: keeper.Sweep{Samples: 16},
	}
	for i := range uint64(16) {
		s.Sweep.Lost = append(s.Sweep.Lost, 0x1000+i)
	}
	return s
}

// Objects that nothing refers to are searched for again, some time later, once. The proof stays, whatever is found
// at the end.
func testLoss(t *testing.T) {
	c, r := newCounting(t, 4*time.Minute)
	var proven []LossProven
	r.objects.report = func(e Event) {
		if p, ok := e.(LossProven); ok {
			proven = append(proven, p)
		}
	}
	c.found, c.searchTime = []keeper.Search{lost()}, time.Second
	for i := range int64(120) {
		c.second(r, 1000+10*i)
	}

	if len(c.searches) != 2 || len(c.searches[1].Again) != 1 || len(c.searches[1].Stacks) != 0 {
		t.Fatalf("%+v, want a search and one second sweep", c.searches)
	}
	if len(proven) != 1 || proven[0].Elapsed < firstSearch || c.sweptAt > 90*time.Second {
		t.Fatalf("%+v at %s, want a proof within 90 s", proven, c.sweptAt)
	}

	c.found = []keeper.Search{{PID: trainerPID, Type: "int", Samples: 16, Reason: keeper.ReasonBudget}}
	got := c.finish(r, r.grows(1))
	if len(got) != 1 || got[0].Proof != proven[0].Proof {
		t.Errorf("%+v, want the proof", got)
	}
}

func testHalfwayAgain(t *testing.T) {
	c, r := newCounting(t, 4*time.Minute)
	c.found = []keeper.Search{
		{PID: trainerPID, Stack: 1, Samples: 16, Reason: keeper.ReasonBudget},
		{PID: trainerPID, Type: "int", Samples: 16, Reason: keeper.ReasonNative}, // less of the growth
	}
	for range 130 {
		c.second(r, 1000) // nothing grows
	}
	for i := range int64(90) {
		c.second(r, 1000+20*i)
		if i == 60 { // it has been searched for in vain
			c.found = []keeper.Search{kept(1, "cache", 100)}
		}
	}
	isFound := slices.ContainsFunc(r.objects.latest,
		func(s keeper.Search) bool { return len(s.Paths) == 1 })
	if n := len(c.searches); n < 2 || n > halfwayTries || !isFound {
		t.Errorf("%d searches, and then %+v: want some until there is an answer", n,
			r.objects.latest)
	}
}

// The first search in a command does not depend on the budget.
func testCommand(t *testing.T) {
	for _, launched := range []bool{false, true} {
		c, r := newCounting(t, 0)
		c.ownFloor, c.used, c.found = 0.02, time.Hour, []keeper.Search{kept(1, "cache", 100)}
		r.options.Launched = launched
		for i := range int64(90) {
			c.second(r, 1000+10*i)
		}

		for range 2 {
			r.objects.searchAgain(r.Recorded(), r.grows(1))
			synctest.Wait()
			c.second(r, 2000)
		}
		got := len(c.searches)
		if !launched && got != 0 || launched && (got != 1 || c.searches[0].Limit != maxObjectTime) {
			t.Errorf("launched: %t: %+v", launched, c.searches)
		}
	}
}

// A search at half of the trace has found a keeper.
func withHalfway(t *testing.T) (*counting, *Recorder) {
	t.Helper()
	c, r := newCounting(t, 4*time.Minute)
	c.found = []keeper.Search{kept(1, "cache", 100)}
	for i := range int64(150) {
		c.second(r, 1000+10*i)
	}
	if len(r.objects.latest) != 1 {
		t.Fatal("there is no answer half-way")
	}
	return c, r
}

func testEndRefutes(t *testing.T) {
	c, r := withHalfway(t)
	// Of the stacks of the suspect, another one has grown most now.
	c.found = []keeper.Search{{PID: trainerPID, Stack: 2, Samples: 16, Reason: keeper.ReasonUnreferenced}}
	v := r.grows(1)
	v.Suspects[0].StackIDs = []uint64{2, 1}
	if got := c.finish(r, v); len(got) != 1 || len(got[0].Paths) > 0 || got[0].IsEarlier {
		t.Errorf("%+v, want that nothing refers to it", got)
	}
}

func testEndWithoutTime(t *testing.T) {
	c, r := withHalfway(t)
	c.found = []keeper.Search{{PID: trainerPID, Stack: 1, Samples: 16, Reason: keeper.ReasonBudget}}
	got := c.finish(r, r.grows(1))
	if len(got) != 1 || len(got[0].Paths) != 1 || !got[0].IsEarlier {
		t.Errorf("%+v, want the answer of half-way", got)
	}
}

func testEndHangs(t *testing.T) {
	c, r := withHalfway(t)
	c.hangs = true
	r.objects.start(context.Background(), r.history.Main(), objectWork{})
	began := time.Now()
	got := c.finish(r, r.grows(1))
	if took := time.Since(began); took != lastObjectsTimeout {
		t.Errorf("the end has waited for %s, want %s", took, lastObjectsTimeout)
	}
	if len(got) != 1 || !got[0].IsEarlier {
		t.Errorf("%+v, want the answer of half-way", got)
	}
}

func testEndInterrupted(t *testing.T) {
	c, r := withHalfway(t)
	c.hangs = true
	began := time.Now()
	r.objects.finish(context.Background(), r.Recorded(), r.grows(1), summary.EndedInterrupt)
	if took := time.Since(began); took != interruptedTimeout {
		t.Errorf("after a signal the end has waited for %s, want %s", took, interruptedTimeout)
	}

	ctx, cancel := context.WithTimeout(context.Background(), time.Second) // another signal
	defer cancel()
	began = time.Now()
	r.objects.finish(ctx, r.Recorded(), r.grows(1), summary.EndedInterrupt)
	if took := time.Since(began); took != time.Second {
		t.Errorf("after another signal the end has gone on for %s", took-time.Second)
	}
}

func testSearchedFirst(t *testing.T) {
	c, r := newCounting(t, time.Hour)
	c.pids = []int{1, 2, trainerPID, 3}
	c.censusTime, c.searchTime = 3*time.Second, 4*time.Second
	c.second(r, 1000)
	time.Sleep(time.Minute)
	synctest.Wait()
	c.asked, c.censuses = nil, nil
	c.finish(r, r.grows(1))
	// 10 s of CPU time are for all: of two others, the second begins before they are used up.
	if want := []string{"count", "search", "count"}; !slices.Equal(c.asked, want) {
		t.Errorf("asked %q, want %q", c.asked, want)
	}
	if c.censuses[0].PID != trainerPID || c.searches[0].Limit != maxObjectTime-c.censusTime {
		t.Errorf("%+v, %+v: want the searched process first", c.censuses, c.searches)
	}
}

func testObjectBudget(t *testing.T) {
	c, r := newCounting(t, time.Hour)
	c.ownFloor, c.censusTime = 0.02, 200*time.Millisecond
	c.pids = []int{trainerPID}
	for range 3000 {
		c.second(r, 1000)
	}
	earned := time.Duration(duty.Table[duty.Objects].Most * c.ownFloor * float64(c.Elapsed()))
	if c.used > objectBurst+earned+minObjectTime {
		t.Errorf("%s of CPU time, with %s and %s in advance", c.used, earned, objectBurst)
	}
	for _, o := range c.censuses {
		if o.Limit < minObjectTime || o.Limit > objectBurst+earned {
			t.Errorf("a census with a limit of %s", o.Limit)
		}
	}
}

func testObjectsAfterExit(t *testing.T) {
	c, r := withHalfway(t)
	c.err = errors.New("it has exited")
	if got := c.finish(r, r.grows(1)); len(got) != 1 || !got[0].IsEarlier || len(c.searches) != 1 {
		t.Errorf("%+v after %d searches, want the answer of half-way", got, len(c.searches))
	}
}

// The same variable of another program is another one.
func testObjectsAfterExec(t *testing.T) {
	c, r := withHalfway(t)
	now := kept(1, "cache", 500)
	now.TracedSince = 160 * time.Second
	c.found = []keeper.Search{now}
	old := r.history.Main()
	old.End = c.Elapsed() + time.Second
	time.Sleep(30 * time.Second)
	v := r.grows(1)
	v.History = &growth.ProcessHistory{Member: old.Member, First: now.TracedSince}
	got := c.finish(r, v)
	if len(got) != 1 || got[0].IsEarlier || got[0].Paths[0].Links[0].PerMinute != 0 {
		t.Errorf("%+v, want one answer, without growth since another program", got)
	}
	if before := r.Recorded().KeepersOf(old); len(before) != 1 || before[0].TracedSince != 0 {
		t.Errorf("%+v of the program before, want its own answer", before)
	}
}

func testCollections(t *testing.T) {
	c, r := newCounting(t, 4*time.Minute)
	c.collections = 5
	c.second(r, 1000)
	time.Sleep(2 * time.Minute)
	now := kept(1, "cache", 1)
	now.Collections = 7
	c.found = []keeper.Search{now}
	got := c.finish(r, r.grows(1))
	if got[0].Collections != 2 || got[0].CollectionsTime != 2*time.Minute {
		t.Errorf("%d collections in %s, want 2 in 2m", got[0].Collections, got[0].CollectionsTime)
	}
}
