package record

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/overhead"
)

// inStorm is the overhead of a session whose heap is sampled in bursts.
func inStorm() overhead.Overhead {
	return overhead.Overhead{
		Limits: overhead.Limits{Limit: 0.03, OwnFloor: 0.02}, Elapsed: 100 * time.Second, Traced: 50 * time.Second,
		InProbes: 2500 * time.Millisecond, Busiest: 1700 * time.Millisecond,
		Waited: 200 * time.Millisecond, SeesWaits: true, InShim: 100 * time.Millisecond,
		OwnCPU: overhead.OwnCPU{Own: 400 * time.Millisecond},
		Mode:   growth.HeapBursts, Interval: 64 << 10,
		Bursts: 11, Open: 5500 * time.Millisecond, StepBefore: 182100 * time.Microsecond,
		StepSince: 183900 * time.Microsecond,
		Changes: []overhead.Change{{
			At: 2500 * time.Millisecond, Mode: growth.HeapBursts,
			OverheadChange: growth.OverheadChange{Reason: growth.OverheadFewTensors},
		}},
	}
}

func TestOverheadSummary(t *testing.T) {
	slowdown, inProbes, waited, shim, before, since := 0.02, 2.5, 0.2, 0.1, 0.1821, 0.1839
	want := &summary.Overhead{
		Limit: 0.03, Slowdown: &slowdown, InProbesS: &inProbes, WaitedS: &waited, ShimS: &shim,
		OwnS: 0.4, OwnLimitS: 2, TracedS: 50,
		Mode: growth.HeapBursts, Bursts: 11, OpenS: 5.5, LagS: 60, IntervalBytes: 64 << 10,
		StepBeforeS: &before, StepSinceS: &since,
		Changes: []summary.OverheadChange{{
			AtS: 2.5, Mode: growth.HeapBursts,
			OverheadChange: growth.OverheadChange{Reason: growth.OverheadFewTensors},
		}},
	}

	if got := withLag(overheadSummary(inStorm()), growth.HeapCoverage{
		Bursts: 11,
		Lag:    time.Minute,
	}); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestOverheadNoLimit(t *testing.T) {
	free, idle := inStorm(), inStorm()
	free.Limit, idle.Elapsed = 0, 0
	for _, o := range []overhead.Overhead{free, idle, {Mode: growth.HeapFull, Interval: 1}} {
		if got := overheadSummary(o); got.Slowdown != nil || got.InProbesS != nil {
			t.Errorf("%+v has the slow-down %v", o, *got.Slowdown)
		}
	}

	if got := overheadSummary(overhead.Overhead{Mode: growth.HeapFull}); got.StepBeforeS != nil ||
		got.StepSinceS != nil {
		t.Error("steps that were not seen have a time")
	}
}

// changing is a session with changes of its overhead.
type changing struct {
	days
	changes  []overhead.Change
	own      overhead.OwnCPU
	searched time.Duration
}

func (c *changing) ObjectsCPUTime() time.Duration { return c.searched }

func (c *changing) Overhead() overhead.Overhead {
	return overhead.Overhead{Changes: c.changes, OwnCPU: c.own}
}

// The start and the searches are told apart from the rest.
func TestOverheadOnce(t *testing.T) {
	session := &changing{
		own: overhead.OwnCPU{
			Start: time.Second, Own: 2 * time.Second, End: 400 * time.Millisecond,
		},
		searched: 5 * time.Second,
	}
	watch := &objectWatch{atEnd: 3 * time.Second}
	got := (&meter{session: session, snapshots: &snapshotSeries{}, objects: watch}).overhead()
	if got.OwnS != 2 || got.StartS != 1 || got.EndS != 0.4 {
		t.Errorf("own %g s, start %g s, end %g s; want 2, 1, 0.4", got.OwnS, got.StartS, got.EndS)
	}
	if got.SearchS != 5 || got.SearchAtEndS != 3 {
		t.Errorf("search %g s, at the end %g s; want 5, 3", got.SearchS, got.SearchAtEndS)
	}
}

func TestOverheadChanges(t *testing.T) {
	var got reported
	session := &changing{}
	m := meter{
		session: session, snapshots: &snapshotSeries{}, objects: &objectWatch{}, report: got.report,
	}
	for _, there := range []int{0, 1, 1, 3, 3} {
		session.changes = make([]overhead.Change, there)
		m.overhead()
	}
	if len(got) != 3 {
		t.Errorf("reports %d of 3 changes", len(got))
	}
}

// In bursts a sample represents allocations between them, too.
func TestEffectiveInterval(t *testing.T) {
	for want, s := range map[uint64]*growth.Snapshot{
		1:          {},
		512 << 10:  {Interval: 512 << 10, Heap: growth.HeapCoverage{Extrapolation: 50}},
		3_276_800:  {Interval: 64 << 10, Heap: growth.HeapCoverage{Bursts: 3, Extrapolation: 50}},
		64 << 10:   {Interval: 64 << 10, Heap: growth.HeapCoverage{Bursts: 3, Extrapolation: 0.5}},
		65_536e9:   {Interval: 64 << 10, Heap: growth.HeapCoverage{Bursts: 3, Extrapolation: 1e300}},
		50 * 1_000: {Interval: 1000, Heap: growth.HeapCoverage{Bursts: 1, Extrapolation: 50}},
	} {
		if got := effectiveInterval(s); got != want {
			t.Errorf("%+v: %d bytes, want %d", s.Heap, got, want)
		}
	}
}

func TestHeapComments(t *testing.T) {
	coverage := growth.HeapCoverage{Bursts: 11, Lag: time.Minute, Untrackable: "the allocator is jemalloc"}
	got := words.HeapComments(withLag(overheadSummary(inStorm()), coverage), coverage.Untrackable)
	o := withLag(overheadSummary(inStorm()), coverage)

	want := []string{
		words.HeapMode(o.Mode), "allocation sites of heap memory are from " + words.FromBursts(o),
		"objects of the heap cannot be tracked: the allocator is jemalloc",
	}

	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}

	if got := words.HeapComments(overheadSummary(overhead.Overhead{Mode: growth.HeapFull}),
		""); !slices.Equal(got, []string{words.HeapMode(growth.HeapFull)}) {
		t.Errorf("%q", got)
	}
}
