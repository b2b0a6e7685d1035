package compare

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/allocscope/allocscope/export/exporttest"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth/verdict"

	pprof "github.com/google/pprof/profile"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

func TestStates(t *testing.T) {
	before := profileOf(t, 1, heap(stack(1, "gone", "main"), 10, 1000),
		heap(stack(1, "less", "main"), 30, 1000), heap(stack(1, "still", "main"), 5, 100),
		heap(stack(1, "more", "main"), 1, 64))
	after := profileOf(t, 1, heap(stack(1, "come", "main"), 7, 1000),
		heap(stack(1, "less", "main"), 10, 1000), heap(stack(1, "still", "main"), 5, 100),
		heap(stack(1, "more", "main"), 40, 64))
	r := profiles(t, before, after)
	for function, want := range map[string]Difference{
		"gone":  {exactly(10_000), exactly(0), exactly(-10_000), StateVanished, false},
		"less":  {exactly(30_000), exactly(10_000), exactly(-20_000), StateShrank, false},
		"still": {exactly(500), exactly(500), exactly(0), StateSame, false},
		"more":  {exactly(64), exactly(2560), exactly(2496), StateGrew, false},
		"come":  {exactly(0), exactly(7000), exactly(7000), StateAppeared, false},
	} {
		if got := rowOf(t, r, function).Difference; got != want {
			t.Errorf("%s: %+v, want %+v", function, got, want)
		}
	}
	var order []string
	for _, s := range r.Stacks {
		order = append(order, s.Function)
	}
	if want := []string{"less", "gone", "come", "more", "still"}; !slices.Equal(order, want) {
		t.Errorf("order %q, want %q", order, want)
	}
	if r.Outcome != OutcomeLess || r.Total.Change != exactly(-20_504) || len(r.Components) != 1 ||
		r.Components[0].Component != "train.py" || r.Components[0].Change != r.Total.Change {
		t.Errorf("%s: total %+v, owners %+v", r.Outcome, r.Total, r.Components)
	}

	t.Run("same profile", func(t *testing.T) {
		for _, every := range []uint64{1, interval} {
			p, _ := mixed(t, every)
			for _, r := range []*Result{profiles(t, p, p.Copy()), compared(t, Options{}, p, p)} {
				if r.Outcome != OutcomeSame || r.Total.Change.Bytes != 0 || len(r.Stacks) < 10 {
					t.Errorf("%s %+v, %d stacks", r.Outcome, r.Total, len(r.Stacks))
				}
				for _, s := range r.Stacks {
					if s.State != StateSame || s.Change.Bytes != 0 || s.Before != s.After {
						t.Errorf("%s: %+v", s.Function, s.Difference)
					}
				}
			}
		}
	})

	t.Run("reversed", func(t *testing.T) {
		a, b := mixed(t, interval)
		later := b.Copy()
		later.DurationNanos *= 2
		for what, ways := range map[string][2]*Result{
			"independent":  {profiles(t, a, b), profiles(t, b, a)},
			"of one trace": {ofOne(t, a, later), ofOne(t, later, a)},
		} {
			there, back := ways[0], ways[1]
			opposite := map[State]State{
				StateAppeared: StateVanished, StateVanished: StateAppeared, StateGrew: StateShrank,
				StateShrank: StateGrew, StateSame: StateSame,
			}
			if len(there.Stacks) != len(back.Stacks) {
				t.Fatalf("%s: %d and %d rows", what, len(there.Stacks), len(back.Stacks))
			}
			for i, s := range append(there.Stacks, StackRow{Difference: there.Total}) {
				o := append(back.Stacks, StackRow{Difference: back.Total})[i]
				if s.Before != o.After || s.After != o.Before ||
					s.Change != (Estimate{-o.Change.Bytes, -o.Change.High, -o.Change.Low}) {
					t.Errorf("%s: %s: %+v and back %+v", what, s.Function, s.Difference,
						o.Difference)
				}
				if s.Before.Bytes >= 0 && s.After.Bytes >= 0 && s.State != opposite[o.State] {
					t.Errorf("%s: %s: %s and back %s", what, s.Function, s.State, o.State)
				}
			}
		}
	})

	t.Run("small changes between runs", func(t *testing.T) {
		for _, test := range []struct {
			before, after, slack float64
			want                 State
		}{
			{100, 96, minChangeShare, StateSame},
			{96, 100, minChangeShare, StateSame},
			{-100, -96, minChangeShare, StateSame},
			{100, 94, minChangeShare, StateShrank},
			{94, 100, minChangeShare, StateGrew},
			{100, 0, minChangeShare, StateVanished},
			{100, 99, 0, StateShrank},
			{99, 100, 0, StateGrew},
			{100, 100, 0, StateSame},
		} {
			r := row{
				before: exact(test.before), after: exact(test.after),
				change: exact(test.after - test.before), minChange: test.slack,
			}
			if got := r.state(); got != test.want {
				t.Errorf("%g, then %g with a slack of %g: %s, want %s", test.before, test.after,
					test.slack, got, test.want)
			}
		}
	})
}

func exact(value float64) estimate { return estimate{value, value, value} }

func TestSites(t *testing.T) {
	t.Run("same functions and files", func(t *testing.T) {
		before := profileOf(t, 1, heap(stack(1, "load:10", "main:40"), 10, 1000))
		after := profileOf(t, 1, heap(stack(2, "load:12", "main:45"), 20, 1000),
			heap(stack(3, "load:13", "main:45"), 11, 1000))
		slices.Reverse(after.Sample)
		r := profiles(t, before, after)
		if len(r.Stacks) != 1 || r.Stacks[0].Change != exactly(21_000) {
			t.Fatalf("%+v", r.Stacks)
		}
		want := []string{"load (/job/2/train.py:12)", "main (/job/2/train.py:45)"}
		if got := r.Stacks[0].Stack; !slices.Equal(got, want) {
			t.Errorf("stack %q, want that of the side that holds more, %q", got, want)
		}
	})

	t.Run("different", func(t *testing.T) {
		elsewhere := stack(1, "load", "main")
		elsewhere.Frames[1].File = "/job/1/other.py"
		mapped := heap(stack(1, "load", "main"), 1, 4096)
		mapped.Kind = growth.KindMmap
		p := profileOf(t, 1, heap(stack(1, "load", "main"), 1, 1),
			heap(stack(1, "load", "run"), 1, 1),
			heap(elsewhere, 1, 1), mapped)
		other := profileOf(t, 1, heap(stack(1, "load", "main"), 1, 1))
		other.Sample[0].Label["component"] = []string{"somebody"}
		if r := profiles(t, p, other); len(r.Stacks) != 5 {
			t.Errorf("%d rows, want 5: %+v", len(r.Stacks), r.Stacks)
		}
	})
}

// mixed is two profiles with all sorts of samples.
func mixed(t testing.TB, every uint64) (before, after *pprof.Profile) {
	var a, b []growth.Holding
	for i := range int64(40) {
		s := func(pid int) *growth.Stack {
			return stack(pid, fmt.Sprintf("leaf%d:%d", i%9, i), fmt.Sprintf("caller%d", i%4),
				"main")
		}
		a = append(a, heap(s(1), 100+7*i, 100*(i+1)))
		if i%3 != 0 {
			b = append(b, heap(s(2), 90+11*(i%17), 100*(i+1)))
		}
	}
	a = append(a, rest(growth.KindRetained, "[heap: free but resident]", 50<<20),
		rest(growth.KindUnexplained, "[unexplained]", -4096))
	b = append(b, rest(growth.KindRetained, "[heap: free but resident]", 70<<20),
		rest(growth.KindFile, "[file: /x]", 8192))
	return profileOf(t, every, a...), profileOf(t, every, b...)
}

// ofOne compares two moments of one trace.
func ofOne(t testing.TB, a, b *pprof.Profile) *Result {
	t.Helper()
	for _, p := range []*pprof.Profile{a, b} {
		for _, s := range p.Sample {
			s.Label["pid"] = []string{"1"}
		}
	}
	return compared(t, Options{}, a, b)
}

// flatOf are the values of the functions by go tool pprof.
func flatOf(t *testing.T, sample string, arguments ...string) map[string]int64 {
	t.Helper()
	flat := make(map[string]int64)
	for name, sum := range exporttest.Top(t, append([]string{"-sample_index=" + sample}, arguments...)...) {
		if sum.Flat != 0 {
			flat[name] = sum.Flat
		}
	}
	return flat
}

func TestSums(t *testing.T) {
	t.Run("of pprof", func(t *testing.T) {
		a, b := mixed(t, interval)
		before, after := exporttest.ProfileFile(t, a), exporttest.ProfileFile(t, b)
		for _, sample := range []string{"resident_space", "inuse_space", "alloc_space"} {
			want := flatOf(t, sample, "-diff_base="+before, after)
			got := make(map[string]int64)
			for _, s := range compared(t, Options{Sample: sample}, a, b).Stacks {
				if got[s.Function] += s.Change.Bytes; got[s.Function] == 0 {
					delete(got, s.Function)
				}
			}
			if len(got) < 8 || !maps.Equal(got, want) {
				t.Errorf("%s: %v, by go tool pprof -diff_base %v", sample, got, want)
			}

			if sample == residentSpace {
				got = flatOf(t, sample, exporttest.ProfileFile(t, tracertest.Must(Minus(b, a, 1))(t)))
				if !maps.Equal(got, want) {
					t.Errorf("Minus: %v, by go tool pprof -diff_base %v", got, want)
				}
			}
		}
	})

	t.Run("Go profile", func(t *testing.T) {
		goHeap := func(objects int64) *pprof.Profile {
			f := &pprof.Function{ID: 1, Name: "main.cache", Filename: "/src/main.go"}
			l := &pprof.Location{ID: 1, Line: []pprof.Line{{Function: f, Line: 7}}}
			return &pprof.Profile{
				SampleType: []*pprof.ValueType{
					{Type: "inuse_objects", Unit: "count"}, {Type: "inuse_space", Unit: "bytes"},
				},
				DefaultSampleType: "inuse_space",
				PeriodType:        &pprof.ValueType{Type: "space", Unit: "bytes"}, Period: interval,
				Function: []*pprof.Function{f}, Location: []*pprof.Location{l},
				Sample: []*pprof.Sample{
					{Location: []*pprof.Location{l}, Value: []int64{objects, objects << 10}},
				},
			}
		}
		r := profiles(t, goHeap(100<<10), goHeap(102<<10))
		s := rowOf(t, r, "main.cache")
		// 100 MiB in objects of 1 KiB are 200 samples on average, each side's error 1.96 * 100 MiB
		// / sqrt(200), and both in squares.
		if want := 1.96 * float64(100<<20) / 10; s.Change.half() < 0.95*want ||
			s.Change.half() > 1.1*want {
			t.Errorf("%+v, want about ± %.0f", s.Change, want)
		}
		if s.State != StateSame || s.Component != "unknown" || r.SampleType != "inuse_space" ||
			r.Unit != UnitBytes || s.Where() != "main.cache (main.go:7)" {
			t.Errorf("%s of %s, %s, %s, %q", s.State, s.Component, r.SampleType, r.Unit, s.Where())
		}
	})
}

// blocks holds n blocks of a size on GPU 0.
func blocks(s *growth.Stack, n, size int64) growth.Holding {
	return growth.Holding{
		Stack: s, Kind: growth.KindCudaBlock, GPU: "0", InuseObjects: float64(n),
		InuseBytes: n * size, GPUBytes: n * size,
	}
}

func attributed(bytes int64) growth.Holding {
	return growth.Holding{
		Stack: growth.NamedStack(1, "[GPU: not attributed]"), Kind: growth.KindNotAttributed,
		GPUBytes: bytes,
	}
}

func TestGPUMemory(t *testing.T) {
	t.Run("profiles", func(t *testing.T) {
		before := profileOf(t, 1, heap(stack(1, "load:3"), 10, 4096),
			blocks(stack(1, "step:9"), 2, mib), attributed(5*mib))
		after := profileOf(t, 1, heap(stack(1, "load:3"), 90, 4096),
			blocks(stack(1, "step:9"), 5, mib), attributed(5*mib))
		r := bySample(t, "device_space", before, after)
		if r.Total.Before != exactly(7*mib) || r.Total.Change != exactly(3*mib) ||
			r.Outcome != OutcomeMore {
			t.Errorf("%+v: %s", r.Total, r.Sentence)
		}
		if row := rowOf(t, r, "step"); row.Change != exactly(3*mib) || row.Kind != "cuda-block" {
			t.Errorf("%+v", row)
		}
		for _, row := range r.Stacks {
			if row.Function == "load" {
				t.Errorf("memory of the host is compared: %+v", row)
			}
		}
		r = profiles(t, before, after)
		if r.SampleType != residentSpace || r.Total.Change != exactly(80*4096) {
			t.Errorf("by default: %+v", r)
		}
	})

	t.Run("only in one profile", func(t *testing.T) {
		r := bySample(t, "device_space", profileOf(t, 1, heap(stack(1, "load:3"), 10, 4096)),
			profileOf(t, 1, blocks(stack(1, "step:9"), 2, 512)))
		if rowOf(t, r, "step").State != StateAppeared || r.Total.Before != exactly(0) {
			t.Errorf("%+v", r)
		}
		_, err := Profiles(Profile{"a", profileOf(t, 1)}, Profile{"b", profileOf(t, 1)},
			Options{Sample: "device_space"})
		exporttest.WantError(t, err, "device_space")
	})

	// Blocks are sampled as the heap is: the error of 100 that represent themselves with p = 1 -
	// 1/e is 1.96 sqrt(100 (1-p)/p) blocks.
	t.Run("sampled blocks", func(t *testing.T) {
		r := bySample(t, "device_space", profileOf(t, interval),
			profileOf(t, interval, blocks(stack(1, "step:9"), 100, interval)))
		change := rowOf(t, r, "step").Change
		const want = 1.96 * 7.629 * interval // sqrt(100/(e-1)) = 7.629
		if half := change.half(); half < want || half > 1.5*want || !change.ordered() {
			t.Errorf("%+v: %g, want a little more than %g", change, half, want)
		}
	})

	t.Run("folders", func(t *testing.T) {
		of := func(v summary.Verdict) *Trace {
			grown := profileAt(t, began, 10*time.Minute, 1, heap(stack(1, "load:3"), 10, 4096),
				blocks(stack(1, "step:9"), 1000, 10))
			return &Trace{
				Name: "t", Growth: grown, Warmup: profileOf(t, 1), Plateau: profileOf(t, 1),
				Summary: &summary.Summary{
					Process:   summary.Process{PID: 7},
					Verdict:   summary.Verdict{Class: verdict.ClassPlateau, WhyCode: verdict.ReasonNoGrowth},
					GPUMemory: []summary.GPUMemory{{Process: 7, Verdict: v}},
				},
			}
		}
		leaking := of(verdictOf(verdict.ClassLeak, 1000, 999, 1001))
		flat := of(verdictOf(verdict.ClassPlateau, 0, -1, 1))
		r := traces(t, leaking, flat, Options{Sample: "device_space"})
		if r.Outcome != OutcomeGone || r.Name != "THE LEAK IS GONE" ||
			r.Before.Verdict != "leak" || r.Total.Before != exactly(1000) {
			t.Errorf("%+v", r)
		}
		flat.Summary.GPUMemory = nil
		r = traces(t, leaking, flat, Options{Sample: "device_space"})
		if r.Outcome != OutcomeUnknown || !strings.Contains(r.Sentence, "GPU memory") {
			t.Errorf("%+v", r)
		}
	})
}
