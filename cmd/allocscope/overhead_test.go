package main

import (
	"bytes"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/overhead"
)

// inStorm is what a session tells that had to go to windows.
func inStorm() overhead.Overhead {
	return overhead.Overhead{
		Limit: 0.03, Traced: 100 * time.Second, InProbes: 1500 * time.Millisecond, Own: 400 * time.Millisecond, Mode: overhead.HeapBursts, Interval: 64 << 10,
		Bursts: 11, Open: 5500 * time.Millisecond, StepBefore: 182100 * time.Microsecond, StepSince: 183900 * time.Microsecond,
		Changes: []overhead.Change{{At: 2500 * time.Millisecond, Mode: overhead.HeapBursts, Text: "heap probes would take 41 %: watched in windows"}},
	}
}

func TestTheSummaryHasWhatTheSessionTellsOfItsCost(t *testing.T) {
	share, inProbes, before, since := 0.019, 1.5, 0.1821, 0.1839
	want := &summary.Overhead{
		Limit: 0.03, Share: &share, InProbesS: &inProbes, OwnS: 0.4, TracedS: 100, Mode: summary.HeapBursts, Bursts: 11, OpenS: 5.5, LagS: 60, IntervalBytes: 64 << 10,
		StepBeforeS: &before, StepSinceS: &since,
		Changes: []summary.OverheadChange{{AtS: 2.5, Mode: summary.HeapBursts, Text: "heap probes would take 41 %: watched in windows"}},
	}
	if got := inWindows(overheadOf(inStorm()), growth.Watch{Windows: 11, Lag: time.Minute}); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestWithoutALimitTheShareIsNotKnown(t *testing.T) {
	free, idle := inStorm(), inStorm()
	free.Limit, idle.Traced = 0, 0
	for _, o := range []overhead.Overhead{free, idle, {Mode: overhead.HeapFull, Interval: 1}} {
		if got := overheadOf(o); got.Share != nil || got.InProbesS != nil {
			t.Errorf("%+v has the share %v", o, *got.Share)
		}
	}
	if got := overheadOf(overhead.Overhead{Mode: overhead.HeapFull}); got.StepBeforeS != nil || got.StepSinceS != nil {
		t.Error("steps that were not seen have a time")
	}
}

func TestTheModesOfASessionAreThoseOfTheSummary(t *testing.T) {
	for tracers, exports := range map[overhead.HeapMode]string{
		overhead.HeapFull: summary.HeapFull, overhead.HeapBursts: summary.HeapBursts, overhead.HeapOff: summary.HeapOff,
	} {
		if string(tracers) != exports {
			t.Errorf("%s is %s in the summary", tracers, exports)
		}
	}
}

func TestEachChangeOfTheProbesIsLoggedOnce(t *testing.T) {
	var out bytes.Buffer
	before := slog.Default()
	slog.SetDefault(newLogger(&out, false))
	defer slog.SetDefault(before)
	changes := []overhead.Change{{Text: "one"}, {Text: "two"}, {Text: "three"}}
	said := 0
	for _, there := range []int{0, 1, 1, 3, 3} {
		said = logOverhead(changes[:there], said)
	}
	if out.String() != "one\ntwo\nthree\n" {
		t.Errorf("logs %q", out.String())
	}
}

// In windows a sample stands for what was allocated between them, too.
func TestTheIntervalOfAProfileIsWhatASampleStandsFor(t *testing.T) {
	for want, s := range map[uint64]*growth.Snapshot{
		1:          {},
		512 << 10:  {Interval: 512 << 10, Watch: growth.Watch{Factor: 50}},
		3_276_800:  {Interval: 64 << 10, Watch: growth.Watch{Windows: 3, Factor: 50}},
		64 << 10:   {Interval: 64 << 10, Watch: growth.Watch{Windows: 3, Factor: 0.5}},
		65_536e9:   {Interval: 64 << 10, Watch: growth.Watch{Windows: 3, Factor: 1e300}},
		50 * 1_000: {Interval: 1000, Watch: growth.Watch{Windows: 1, Factor: 50}},
	} {
		if got := sampledEvery(s); got != want {
			t.Errorf("%+v: %d bytes, want %d", s.Watch, got, want)
		}
	}
}

func TestAProfileSaysHowTheHeapWasWatched(t *testing.T) {
	watch := growth.Watch{Windows: 11, Lag: time.Minute, Blind: "the allocator is jemalloc"}
	got := overheadComments(inWindows(overheadOf(inStorm()), watch), watch)
	want := []string{
		"heap in windows", "holders of heap memory are from 11 windows of 0.5 s; what is younger than 60 s is not in",
		"whether heap memory is alive is not seen from outside: the allocator is jemalloc",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := overheadComments(overheadOf(overhead.Overhead{Mode: overhead.HeapFull}), growth.Watch{}); !slices.Equal(got, []string{"heap watched all the time"}) {
		t.Errorf("%q", got)
	}
}

func TestTheResultSaysWhatTracingCostAndWhatIsFromWindows(t *testing.T) {
	var out bytes.Buffer
	s := &summary.Summary{DurationS: 300, Overhead: overheadOf(inStorm()), Accumulating: []summary.Accumulation{{Function: "leak", Kind: growth.KindHeap}}}
	if err := printResult(&out, s, "folder"); err != nil {
		t.Fatal(err)
	}
	mustSay(
		t, "the result", out.String(), "\noverhead 1.9 % of the traced CPU time (limit 3 %), 1.5 % in the probes: heap in 11 windows, 5.5 s of 300 s\n",
		"\nstep 182.1 ms before, 183.9 ms with heap probes: +1.0 %\n", "What holds more than at the boundary (heap from 11 windows of 0.5 s):",
	)
	out.Reset()
	s.Overhead = overheadOf(overhead.Overhead{Mode: overhead.HeapFull})
	if err := printResult(&out, s, "folder"); err != nil || strings.Contains(out.String(), "overhead") || !strings.Contains(out.String(), "than at the boundary:\n") {
		t.Errorf("without a limit prints %v\n%s", err, out.String())
	}
}

func TestTheLimitOfTheOverheadReachesTheTrace(t *testing.T) {
	t.Parallel()
	for flag, want := range map[string]float64{"2.5%": 0.025, "off": 0} {
		c, dir := tracing(t, startSteps(t), "--overhead", flag)
		c.interrupt()
		if o := readSummary(t, dir).Overhead; o == nil || o.Limit != want || o.IntervalBytes != 1 {
			t.Errorf("--overhead %s: %+v", flag, o)
		}
		const once = "every allocation is taken while heap is probed"
		if said := strings.Count(c.stderr.String(), once); said != min(int(1000*want), 1) || strings.Contains(c.stderr.String(), "overhead up to 2.5 %") != (want > 0) {
			t.Errorf("--overhead %s logs\n%s", flag, c.stderr.String())
		}
		if p := readProfile(t, dir, folder.GrowthFile); !slices.ContainsFunc(p.Comments, func(comment string) bool { return strings.HasPrefix(comment, "heap ") }) {
			t.Errorf("--overhead %s: the profile says %q", flag, p.Comments)
		}
	}
}
