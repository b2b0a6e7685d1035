package compare

import (
	"strings"
	"testing"

	"github.com/allocscope/allocscope/export/exporttest"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/verdict"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

const mib = 1 << 20

// verdictOf is a verdict with a rate in MiB/min.
func verdictOf(class verdict.Class, rate, low, high float64) summary.Verdict {
	rate, low, high = rate*mib, low*mib, high*mib
	return summary.Verdict{
		Class: class, WhyCode: "for a test", Rate: &rate, RateLow: &low, RateHigh: &high,
	}
}

func traceWith(t testing.TB, v summary.Verdict, stepsPerMin float64) *Trace {
	trace := traceOfHoldings(t, heap(stack(1, "leak", "main"), 900, 1<<16),
		heap(stack(1, "leak", "main"), 1000, 1<<16))
	trace.Summary.Verdict = v
	if stepsPerMin > 0 {
		trace.Summary.Steps = &summary.Steps{PerMin: stepsPerMin}
	}
	return trace
}

func TestJudge(t *testing.T) {
	leak := verdictOf(verdict.ClassLeak, 461.5, 460, 463)
	unknown := summary.Verdict{Class: verdict.ClassTooShort, WhyCode: verdict.ReasonTooShort}
	flat := verdictOf(verdict.ClassPlateau, 0, -1, 1)
	for name, test := range map[string]struct {
		before, after summary.Verdict
		outcome       Outcome
		says          string
	}{
		"fixed": {
			leak, verdictOf(verdict.ClassPlateau, -0.3, -2, 1), OutcomeGone,
			"461.5 MiB/min (95% CI 460.0-463.0) before, -0.3 MiB/min (95% CI -2.0 to 1.0) after",
		},
		"fixed, with a rest": {
			leak, verdictOf(verdict.ClassPlateau, 3, 1, 5), OutcomeGone,
			"3.0 MiB/min (95% CI 1.0-5.0) after",
		},
		"a small leak is left": {
			leak, verdictOf(verdict.ClassLeak, 3, 1, 5), OutcomeSlower, " after",
		},
		"less": {
			leak, verdictOf(verdict.ClassLeak, 230, 228, 232), OutcomeSlower,
			"230.0 MiB/min (95% CI 228.0-232.0) after",
		},
		"much may be left": {
			leak, verdictOf(verdict.ClassPlateau, 20, -1, 101), OutcomeSlower,
			"up to 101 MiB/min may be left",
		},
		"too short after": {
			leak, verdictOf(verdict.ClassTooShort, -0.3, -2, 1), OutcomeSlower,
			"too short to exclude a rest",
		},
		"the same": {
			leak, verdictOf(verdict.ClassLeak, 462, 460, 464), OutcomeAsBefore,
			"a change of 0.5 MiB/min (95% CI -2.0 to 3.0)",
		},
		"two runs of one program": {
			leak, verdictOf(verdict.ClassLeak, 455, 454.5, 455.5), OutcomeAsBefore,
			"a change of -6.5 MiB/min",
		},
		"more":       {leak, verdictOf(verdict.ClassLeak, 700, 690, 710), OutcomeFaster, " after"},
		"a new leak": {flat, leak, OutcomeNew, " after"},
		"none": {
			flat, verdictOf(verdict.ClassSpikyPlateau, 0.2, -1, 1.4), OutcomeNoGrowth, " after",
		},
		"none, one of them short": {
			flat, verdictOf(verdict.ClassTooShort, 0, -1, 1), OutcomeUnknown,
			"after is not conclusive (for a test)",
		},
		"nothing known": {
			unknown, unknown, OutcomeUnknown,
			"before (too short) and after (too short) are not conclusive",
		},
		"nothing known before": {
			unknown, leak, OutcomeUnknown, "before is not conclusive (too short)",
		},
		"too wide": {
			verdictOf(verdict.ClassLeak, 10, 1, 19), verdictOf(verdict.ClassPlateau, 0, -15, 15),
			OutcomeUnknown, "too wide, watch longer",
		},
		"a rate outside its bounds": {
			leak, verdictOf(verdict.ClassPlateau, 9, -1, 1), OutcomeUnknown,
			"after is not conclusive",
		},
		"it shrank, and still does": {
			verdictOf(verdict.ClassPlateau, -9, -10, -8),
			verdictOf(verdict.ClassPlateau, -1, -2, -0.5), OutcomeNoGrowth, " after",
		},
		"it grew, and cannot be sure": {
			verdictOf(verdict.ClassGrowing, 20, 5, 35), verdictOf(verdict.ClassGrowing, 25, 2, 48),
			OutcomeAsBefore, " after",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := traces(t, traceWith(t, test.before, 0), traceWith(t, test.after, 0), Options{})
			if r.Outcome != test.outcome || r.Name == "" ||
				!strings.Contains(r.Sentence, test.says) {
				t.Errorf("%s, %s: %s; want %s, %q", r.Outcome, r.Name, r.Sentence, test.outcome,
					test.says)
			}
			if known := test.before.RateLow != nil && test.after.RateLow != nil &&
				test.outcome != OutcomeUnknown; known && r.RSS == nil {
				t.Error("the difference of RSS is missing")
			}
		})
	}

	t.Run("growth that was no leak", func(t *testing.T) {
		for class, want := range map[verdict.Class]string{
			verdict.ClassLeak: "THE LEAK IS GONE", verdict.ClassSuspected: "THE LEAK IS GONE",
			verdict.ClassGrowing: "THE GROWTH IS GONE",
		} {
			growing := traceWith(t, verdictOf(class, 461.5, 460, 463), 0)
			if r := traces(t, growing, traceWith(t, flat, 0), Options{}); r.Name != want {
				t.Errorf("%s: %q, want %q", class, r.Name, want)
			}
		}
	})

	t.Run("by step", func(t *testing.T) {
		slow := traceWith(t, verdictOf(verdict.ClassLeak, 100, 98, 102), 10)
		fast := traceWith(t, verdictOf(verdict.ClassLeak, 200, 196, 204), 20)
		r := traces(t, slow, fast, Options{PerStep: true})
		if r.Outcome != OutcomeAsBefore || r.Unit != UnitPerStep || r.RSS.Before.Bytes != 10*mib ||
			r.RSS.After.Bytes != 10*mib || !strings.Contains(r.Sentence, "10.00 MiB/step") {
			t.Errorf("%s, %s, %+v", r.Outcome, r.Sentence, r.RSS)
		}
		// 100 objects of 64 KiB in 10 and in 20 steps.
		leak := rowOf(t, r, "leak")
		if leak.Before.Bytes != 655360 || leak.After.Bytes != 327680 {
			t.Errorf("%+v", leak.Difference)
		}
		byTime := traces(t, slow, fast, Options{})
		if byTime.Outcome != OutcomeFaster || len(byTime.Notes) == 0 ||
			!strings.Contains(byTime.Notes[0], "--per step") {
			t.Errorf("by time %s, notes %q", byTime.Outcome, byTime.Notes)
		}
		_, err := Traces(slow, traceWith(t, slow.Summary.Verdict, 0), Options{PerStep: true})
		exporttest.WantError(t, err, "no training steps")
	})

	t.Run("no time", func(t *testing.T) {
		trace := traceWith(t, summary.Verdict{}, 0)
		trace.Growth.DurationNanos = 0
		if _, err := Traces(trace, trace, Options{}); err == nil ||
			!strings.Contains(err.Error(), "no growth to compare") {
			t.Errorf("%v", err)
		}
	})
}

// TestWorkers compares the memory of the tree where workers grow: growth.pb.gz has none of theirs.
func TestWorkers(t *testing.T) {
	growing := verdictOf(verdict.ClassGrowing, 82, 70, 97)
	growing.WhyCode = verdict.ReasonWorkers
	before := traceWith(t, growing, 0)
	before.Summary.Process.PID = 7
	before.Summary.Breakdown = []summary.BreakdownRow{
		{Kind: growth.KindCOW, Name: "copy-on-write: heap", DeltaBytes: 100 * mib, ErrorBytes: mib},
		{Process: 7, Kind: growth.KindHeap, Name: "leak", DeltaBytes: 1000},
	}
	after := traceWith(t, verdictOf(verdict.ClassPlateau, 0, -1, 1), 0)
	after.Summary.Process.PID = 8
	after.Summary.Breakdown = []summary.BreakdownRow{
		{Process: 8, Kind: growth.KindCOW, Name: "copy-on-write: heap", DeltaBytes: 3 * mib},
	}

	r, err := Traces(before, after, Options{})
	tracertest.NoError(t, err)
	perMinute := 1 / before.minutes()
	if len(r.Stacks) != 1 || r.Stacks[0].Kind != string(growth.KindCOW) ||
		r.Stacks[0].Function != "copy-on-write: heap" || r.Stacks[0].State != StateShrank {
		t.Fatalf("%+v", r.Stacks)
	}
	for _, d := range []Difference{r.Stacks[0].Difference, r.Components[0].Difference, r.Total} {
		if want := int64(-97 * mib * perMinute); d.Change.Bytes/mib != want/mib ||
			d.Change.Low == d.Change.High {
			t.Errorf("%+v, want %d", d, want)
		}
	}
	if len(r.Notes) == 0 || r.Notes[0] != words.OfWorkers(true) || r.Outcome != OutcomeGone {
		t.Errorf("%s, %q", r.Outcome, r.Notes)
	}

	r, err = Traces(before, after, Options{Sample: inuseSpace})
	if err != nil || len(r.Stacks) != 1 || r.Stacks[0].Function != "leak" ||
		r.Notes[0] != words.OfWorkers(false) {
		t.Errorf("%+v: %v", r, err)
	}
}

func TestNotes(t *testing.T) {
	leak := verdictOf(verdict.ClassLeak, 100, 98, 102)

	t.Run("heap modes", func(t *testing.T) {
		bursts := &summary.Overhead{Mode: growth.HeapFull, Bursts: 3} // and full again at last
		full := &summary.Overhead{Mode: growth.HeapFull}
		off := &summary.Overhead{Mode: growth.HeapOff}
		many := &summary.Overhead{Mode: growth.HeapBursts, Bursts: 900}
		for name, test := range map[string]struct {
			before, after *summary.Overhead
			note          string
		}{
			"full and bursts": {
				full, bursts, "heap probed all the time before, heap sampled in bursts after: ",
			},
			"old and bursts": {
				nil, bursts, "heap probed all the time before, heap sampled in bursts after: ",
			},
			"bursts and off": {
				bursts, off, "heap sampled in bursts before, heap not probed after: ",
			},
			"bursts twice": {bursts, many, ""},
			"old and full": {nil, full, ""},
		} {
			a, b := traceWith(t, leak, 0), traceWith(t, leak, 0)
			a.Summary.Overhead, b.Summary.Overhead = test.before, test.after
			notes := strings.Join(traces(t, a, b, Options{}).Notes, "\n")
			if strings.Contains(notes, "heap ") != (test.note != "") ||
				!strings.Contains(notes, test.note) {
				t.Errorf("%s: notes %q, want %q", name, notes, test.note)
			}
		}
	})

	t.Run("calls were lost", func(t *testing.T) {
		for loss, want := range map[growth.LossKind]bool{
			growth.LossLiveFull: true, growth.LossTruncatedStacks: false,
		} {
			a, b := traceWith(t, leak, 0), traceWith(t, leak, 0)
			b.Summary.Losses = []growth.Loss{{Kind: loss, Count: 1}}
			row := traces(t, a, b, Options{}).Stacks[0]
			if row.Kind != string(growth.KindHeap) || row.Incomplete != want {
				t.Errorf("%s: %+v", loss, row)
			}

			row.Change = exactly(1)
			if got := row.Interval(); got != map[bool]string{true: "incomplete", false: "exact"}[want] {
				t.Errorf("%s: the interval is %s", loss, got)
			}
		}
	})

	t.Run("hard to compare", func(t *testing.T) {
		a, b := traceWith(t, leak, 0), traceWith(t, leak, 0)
		b.Summary.Process = summary.Process{PID: 7, Executable: "/usr/bin/other\x1b[31m"}
		b.Summary.Residents = []summary.Resident{{Process: 7, Scanned: 0.12}}
		b.Summary.Losses = []growth.Loss{
			{Kind: growth.LossTruncatedStacks, Count: 3},
			{Kind: "a\x1b", Count: 9},
			{Kind: "b", Count: 1},
			{Kind: "c", Count: 2},
		}
		b.Summary.Sources = []summary.Source{
			{Name: "heap", State: summary.SourceOff},
			{Name: "fault", State: summary.SourceAttached},
		}
		notes := strings.Join(traces(t, a, b, Options{}).Notes, "\n")
		for _, word := range []string{
			"other?[31m after", "after, 12% of the pages",
			"lost after: 9 a?, 3 truncated stacks, 2 c, 1 more in summary.json",
			"after, source heap was not attached",
		} {
			if !strings.Contains(notes, word) {
				t.Errorf("notes do not say %q: %s", word, notes)
			}
		}
		if strings.Contains(notes, "before, source") || strings.Contains(notes, "lost before") ||
			strings.Contains(notes, "same trace") {
			t.Errorf("notes say %s", notes)
		}
		alive := traces(t, a, b, Options{Sample: "inuse_space"}).Notes
		if strings.Contains(strings.Join(alive, ""), "pages") {
			t.Errorf("notes of what is alive: %q", alive)
		}
	})
}
