package trace

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/allocscope/allocscope/cmd/allocscope/console"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/conclude"
	"github.com/allocscope/allocscope/growth/gpu"
	"github.com/allocscope/allocscope/growth/keeper"
	"github.com/allocscope/allocscope/growth/trend"
	"github.com/allocscope/allocscope/growth/verdict"
	"github.com/allocscope/allocscope/record"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// inStorm is the overhead of a trace whose heap is sampled in bursts.
func inStorm() *summary.Overhead {
	slowdown, inProbes := 0.019, 2.5
	return &summary.Overhead{
		Limit: 0.03, Slowdown: &slowdown, InProbesS: &inProbes, OwnS: 0.4, OwnLimitS: 2, TracedS: 50,
		Mode: growth.HeapBursts, Bursts: 11, OpenS: 5.5, LagS: 60, IntervalBytes: 64 << 10,
	}
}

func TestOverheadResult(t *testing.T) {
	var out bytes.Buffer
	s := &summary.Summary{
		DurationS: 300, Overhead: inStorm(),
		Accumulating: []summary.Accumulation{{Function: "leak", Kind: growth.KindHeap}},
	}

	tracertest.NoError(t, PrintDetails(&out, s, "folder"))

	mustSay(t, "the result", out.String(), append(words.OverheadLines(s),
		"Stacks that grew since the baseline (heap from "+words.FromBursts(s.Overhead)+"):")...)
	out.Reset()
	s.Overhead = &summary.Overhead{Mode: growth.HeapFull}
	if err := PrintDetails(&out, s, "folder"); err != nil || strings.Contains(out.String(),
		"overhead") || !strings.Contains(out.String(), "since the baseline:\n") {
		t.Errorf("without a limit prints %v\n%s", err, out.String())
	}
}

// TestFlatDetails has no suspects of growth where there is none.
func TestFlatDetails(t *testing.T) {
	for class, grows := range map[verdict.Class]bool{
		verdict.ClassPlateau: false, verdict.ClassSpikyPlateau: false, verdict.ClassGrowing: true,
	} {
		var out bytes.Buffer
		s := &summary.Summary{
			Verdict:      summary.Verdict{Class: class},
			Suspects:     []summary.Suspect{{Component: "train.py", Function: "load (/src/train.py:6)"}},
			Accumulating: []summary.Accumulation{{Function: "leak", Kind: growth.KindHeap}},
		}
		if err := PrintDetails(&out, s, "folder"); err != nil {
			t.Fatal(err)
		}
		mustSay(t, "the result", out.String(), words.StacksTitle(s)+":")
		hasSuspects := strings.Contains(out.String(), "suspects")
		saysGrew := strings.Contains(out.String(), "that grew")
		if hasSuspects != grows || saysGrew != grows {
			t.Errorf("%s:\n%s", class, out.String())
		}
	}
}

// The log has one line for each event that the user waits for, at its level.
func TestReporter(t *testing.T) {
	process := conclude.Process{GPU: &gpu.Judgement{}}
	process.History = &growth.ProcessHistory{Member: growth.Member{Process: growth.Process{PID: 7}}}
	process.Verdict = leakOf(1 << 20)
	process.GPU.Verdict = leakOf(2 << 20)
	suspects := []trend.Suspect{{Component: "train.py"}}
	process.Suspects = suspects

	for want, event := range map[string]record.Event{
		"warn: LEAK: +60 MiB/min; most by train.py: ":    record.LeakFound{Process: process},
		"GPU memory of PID 7: LEAK: +120":                record.LeakFound{Process: process, OnGPU: true},
		"warn: LEAK: +60 MiB/min; out of memory in 60 s": record.LimitNear{Process: process},
		"warn: LEAK (proven): nothing in the process refers to 15 of 16 objects of type int": record.LossProven{
			Search: keeper.Search{Type: "int", Proof: keeper.Proof{Lost: 15, Of: 16}},
		},
		"settled: LEAK":                         record.Settled{Process: process},
		"not settled yet: LEAK":                 record.Unsettled{Process: process, Next: time.Minute},
		"searching who keeps what grows":        record.SlowSearch{},
		"error: disk full":                      record.FileFailed{Err: errors.New("disk full")},
		"warn: The memory limit of the process": record.Warning{Note: summary.Note{Code: summary.NoteLimitHidden}},
	} {
		log := logged(t)
		(&reporter{}).report(event)
		if !strings.Contains(log.String(), want) || strings.Count(log.String(), "\n") != 1 {
			t.Errorf("%T logs %q, want %q", event, log, want)
		}
	}
}

// leakOf is the verdict on a leak of so many bytes per second.
func leakOf(rate float64) verdict.Verdict {
	v := verdict.Judge(verdict.Series{}, verdict.Setting{}, verdict.InSeconds())
	v.Class, v.Rate, v.ToLimit = verdict.ClassLeak, rate, 60
	return v
}

// logged collects the log entries while the test runs. No other may run beside it.
func logged(t *testing.T) *bytes.Buffer {
	t.Helper()
	before := slog.Default()
	t.Cleanup(func() { slog.SetDefault(before) })
	var text bytes.Buffer
	slog.SetDefault(console.New(&text).Logger(slog.LevelInfo, console.ColorAuto))
	return &text
}
