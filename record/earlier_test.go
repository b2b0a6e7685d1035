package record

import (
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/keeper"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

func forged(s summary.Summary) *Earlier {
	if s.Target == nil {
		s.Target = &summary.Target{PID: 7, StartTicks: 1000, MonotonicS: 50}
	}
	return &Earlier{summary: &s}
}

func TestEarlierProcesses(t *testing.T) {
	t.Run("known by their start", func(t *testing.T) {
		e := forged(summary.Summary{Processes: []summary.TreeProcess{
			{PID: 7, StartTicks: 1000, Role: growth.RoleTrainer, Command: "a\x1bb", Traced: true, FirstS: 3},
			{PID: 8, Role: growth.RoleLoaderWorker},
			{PID: 9, Role: "forged"},
		}})
		got, err := e.processes()
		if err != nil || len(got) != 1 {
			t.Fatalf("%+v, %v; want the trainer alone", got, err)
		}
		p := got[0]
		if p.PID != 7 || p.Start != 1000 || p.Born != -40*time.Second || p.Command != "a?b" ||
			!p.Traced || p.From != 3*time.Second {
			t.Errorf("%+v", p.Member)
		}
	})

	t.Run("out of range", func(t *testing.T) {
		e := forged(summary.Summary{
			Target: &summary.Target{PID: 7, MonotonicS: math.MaxFloat64},
			Processes: []summary.TreeProcess{{
				PID: 7, StartTicks: math.MaxInt64, Traced: true, FirstS: math.MaxFloat64,
				Command: strings.Repeat("x", 1<<20), Role: "trainer",
			}},
		})
		got, err := e.processes()
		if err != nil || len(got) != 1 || len(got[0].Command) > maxCommandBytes+8 ||
			got[0].From < 0 {
			t.Errorf("%d, %v", len(got), err)
		}
	})

	t.Run("another program", func(t *testing.T) {
		e := forged(summary.Summary{Processes: []summary.TreeProcess{
			{PID: 7, StartTicks: 1000, Traced: true}, {PID: 7, StartTicks: 1000, Traced: true},
		}})
		if _, err := e.processes(); err == nil {
			t.Error("two programs are one")
		}
	})

	t.Run("too many", func(t *testing.T) {
		e := forged(summary.Summary{Processes: make([]summary.TreeProcess, maxEarlierProcesses+1)})
		if _, err := e.processes(); err == nil {
			t.Error("no error")
		}
	})
}

func TestEarlierMarks(t *testing.T) {
	e := forged(summary.Summary{
		Marks: []summary.Mark{
			{AtS: 10, Text: "epoch 1\n"},
			{AtS: 99, Text: "of the future"},
			{AtS: math.MaxFloat64, Text: "never"},
			{AtS: 5},
		},
		Gaps: []summary.Gap{{FromS: 3, ToS: 5}, {FromS: 5, ToS: 3}, {FromS: -1, ToS: 2}, {FromS: 8, ToS: 99}},
	})
	e.last = 20 * time.Second
	e.readMarks(30 * time.Second)
	marks := e.history.Marks
	if len(marks) != 1 || marks[0] != (growth.Mark{At: 10 * time.Second, Text: "epoch 1"}) {
		t.Errorf("marks %+v", marks)
	}
	if len(e.gaps) != 1 || e.gaps[0] != (summary.Gap{FromS: 3, ToS: 5}) {
		t.Errorf("gaps %+v", e.gaps)
	}

	r := &Recorder{earlier: e, began: 25 * time.Second}
	if g := r.earlier.gapsUntil(r.began); len(g) != 2 || g[1] != (summary.Gap{FromS: 20, ToS: 25}) {
		t.Errorf("gaps %+v, want the new one too", g)
	}
	if c := r.earlier.Continued(r.began); c.GapS != 5 || c.BeganS != 25 {
		t.Errorf("continued from %+v", c)
	}
}

// TestEarlierSearches has the answers about the traced processes, if they are still the same ones.
func TestEarlierSearches(t *testing.T) {
	self := tracertest.Must(process.OpenAny(os.Getpid()))(t)
	defer self.Close()
	start := tracertest.Must(self.Stat())(t).StartTicks

	searches := func(of summary.TreeProcess) []keeper.Search {
		return forged(summary.Summary{
			DurationS: 80, Processes: []summary.TreeProcess{of},
			Keepers: []summary.Keeper{{PID: of.PID, AtS: 78}},
		}).searches()
	}
	got := searches(summary.TreeProcess{PID: self.PID, StartTicks: start, Traced: true})
	if len(got) != 1 || got[0].PID != self.PID || got[0].Elapsed != 78*time.Second {
		t.Errorf("%+v", got)
	}
	for name, of := range map[string]summary.TreeProcess{
		"not traced":      {PID: self.PID, StartTicks: start},
		"another process": {PID: self.PID, StartTicks: start + 1, Traced: true},
		"of no start":     {PID: self.PID, Traced: true},
		"ended":           {PID: 1 << 22, StartTicks: start, Traced: true}, // above any PID
	} {
		if got := searches(of); got != nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if got := (*Earlier)(nil).searches(); got != nil {
		t.Errorf("%+v", got)
	}
}

func TestEarlierSteps(t *testing.T) {
	e := forged(summary.Summary{})
	e.steps = map[processKey]int64{{7, 1000}: 40}
	tree := growth.TreeSample{}
	for _, start := range []int64{1000, 2000, 1000} {
		tree.Members = append(tree.Members, growth.Member{Process: growth.Process{PID: 7, Start: start}})
		tree.Processes = append(tree.Processes, growth.ProcessSample{Sample: growth.Sample{Steps: 2}})
	}
	tree.Processes[2].Steps = growth.Unknown
	e.addSteps(tree)
	(*Earlier)(nil).addSteps(tree)
	for i, want := range []int64{42, 2, growth.Unknown} {
		if got := tree.Processes[i].Steps; got != want {
			t.Errorf("process %d: %d steps, want %d", i, got, want)
		}
	}
}
