package compare

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	pprof "github.com/google/pprof/profile"

	"github.com/allocscope/allocscope/export/profile"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

const interval = 512 << 10

var began = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// stack of Python functions in train.py, leaf first, written "function:line".
func stack(pid int, functions ...string) *growth.Stack {
	start := 4096 * uint64(pid+1)
	s := &growth.Stack{
		PID: pid,
		Frames: []growth.Frame{{
			Function: "malloc", Address: start + 8,
			Module: &growth.Module{Path: "/lib/libc.so.6", Start: start, Limit: 2 * start},
		}},
	}
	for i, text := range functions {
		name, number, _ := strings.Cut(text, ":")
		f := growth.Frame{Function: name, File: fmt.Sprintf("/job/%d/train.py", pid), Python: true}
		fmt.Sscan(number, &f.Line)
		f.StartLine = i
		s.Frames = append(s.Frames, f)
	}
	return s
}

// heap holds n objects of a size, all of which are resident.
func heap(s *growth.Stack, n, size int64) growth.Holding {
	return growth.Holding{
		Stack: s, Kind: growth.KindHeap, InuseObjects: float64(n), InuseBytes: n * size,
		ResidentBytes: n * size, AllocObjects: float64(n), AllocBytes: float64(n * size),
	}
}

// rest is memory without an allocation site.
func rest(kind growth.Kind, root string, bytes int64) growth.Holding {
	return growth.Holding{Stack: growth.NamedStack(1, root), Kind: kind, ResidentBytes: bytes}
}

// profileOf is holdings as ParseProfile would read them.
func profileOf(t testing.TB, every uint64, held ...growth.Holding) *pprof.Profile {
	t.Helper()
	return profileAt(t, began, time.Minute, every, held...)
}

func profileAt(t testing.TB, at time.Time, lasting time.Duration, every uint64,
	held ...growth.Holding,
) *pprof.Profile {
	t.Helper()
	p, err := profile.Build(held, profile.Info{Time: at, Duration: lasting, Interval: every})
	if err == nil {
		err = p.RemoveUninteresting()
	}
	tracertest.NoError(t, err)
	return p
}

// profiles compares two that began at different times, so that they are independent.
func profiles(t testing.TB, before, after *pprof.Profile) *Result {
	t.Helper()
	return bySample(t, "", before, after)
}

func bySample(t testing.TB, sample string, before, after *pprof.Profile) *Result {
	t.Helper()
	after.TimeNanos++
	defer func() { after.TimeNanos-- }()
	return compared(t, Options{Sample: sample}, before, after)
}

// compared compares profiles as they are: profiles of equal times are of one trace.
func compared(t testing.TB, o Options, before, after *pprof.Profile) *Result {
	t.Helper()
	r := tracertest.Must(Profiles(Profile{"a", before}, Profile{"b", after}, o))(t)
	return r
}

func traces(t testing.TB, before, after *Trace, o Options) *Result {
	t.Helper()
	r := tracertest.Must(Traces(before, after, o))(t)
	return r
}

// rowOf is the row whose stack begins with the function.
func rowOf(t testing.TB, r *Result, function string) StackRow {
	t.Helper()
	i := slices.IndexFunc(r.Stacks, func(s StackRow) bool { return s.Function == function })
	if i < 0 {
		t.Fatalf("no row of %s in %+v", function, r.Stacks)
	}
	return r.Stacks[i]
}

func exactly(bytes int64) Estimate { return Estimate{bytes, bytes, bytes} }

// ordered checks that an estimate lies in its interval.
func (e Estimate) ordered() bool { return e.Low <= e.Bytes && e.Bytes <= e.High }

func (e Estimate) holds(truth float64) bool {
	return float64(e.Low)-0.5 <= truth && truth <= float64(e.High)+0.5
}

func (e Estimate) half() float64 { return float64(e.High-e.Low) / 2 }

// spread is the mean and the standard deviation of values.
func spread(values []float64) (mean, deviation float64) {
	for _, v := range values {
		mean += v / float64(len(values))
	}
	for _, v := range values {
		deviation += (v - mean) * (v - mean) / float64(len(values)-1)
	}
	return mean, math.Sqrt(deviation)
}
