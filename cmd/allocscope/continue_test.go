package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/cmd/allocscope/flagvalue"
	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth/verdict"
)

func TestContinue(t *testing.T) {
	t.Parallel()
	t.Run("two traces are one", testContinued)
	t.Run("what cannot be continued", testNotContinued)
}

// halfTrace is too short for a leak of a young process, and two of them are long enough.
const halfTrace = 18 * minute

// testContinued has two traces of a leaking process with a gap between them.
func testContinued(t *testing.T) {
	job := startJob(t, leak, steps)
	first := judgeUntilEnd(t, fastTrace(t, job.PID(), halfTrace))
	if first.Class == verdict.ClassLeak {
		t.Fatalf("%s after the first trace: this test proves nothing", first.Class)
	}

	options := fastTrace(t, job.PID(), halfTrace)
	options.Continue = first.folder
	second := judgeUntilEnd(t, options)
	second.mustBe(t, verdict.ClassLeak)
	mustSuspect(t, second.Suspects, "job.py")
	mustJoin(t, first, second)
	mustVerdictFile(t, second)
}

// The trace of a process that does not grow is over when a longer one would not change the verdict.
func TestUntilSettled(t *testing.T) {
	t.Parallel()
	options := fastTrace(t, startSteps(t).PID(), 3*minute)
	options.UntilSettled = flagvalue.Duration(120 * minute)
	v := judgeUntilEnd(t, options)
	v.mustBe(t, verdict.ClassPlateau)
	if v.Ended != summary.EndedSettled || *v.WatchLonger != 0 {
		t.Errorf("ended by %q, with %v s to watch", v.Ended, *v.WatchLonger)
	}
	mustSay(t, "the result", v.stdout, ", settled")
	if v.DurationS < 3 || v.DurationS > 110 {
		t.Errorf("%v s, want more than the duration, and less than the longest trace", v.DurationS)
	}
}

// mustJoin checks that a trace covers an earlier one, and itself.
func mustJoin(t *testing.T, before, after verdictOn) {
	t.Helper()
	c := after.ContinuedFrom
	if c == nil || c.Folder != before.folder || c.BeganS <= before.DurationS ||
		after.DurationS <= c.BeganS || c.GapS <= 0 {
		t.Fatalf("continued from %+v, of %v s after %v s", c, after.DurationS, before.DurationS)
	}
	if *after.RSS.StartBytes != *before.RSS.StartBytes {
		t.Errorf("RSS at the start %d, not %d", *after.RSS.StartBytes, *before.RSS.StartBytes)
	}
	if after.BaselineS == nil || *after.BaselineS < c.BeganS {
		t.Errorf("stacks count from %v s, and the trace began at %v s", after.BaselineS, c.BeganS)
	}
	if !after.Started.Round(1e9).Equal(before.Started.Round(1e9)) &&
		after.Started.Sub(before.Started).Abs() > 1e9 {
		t.Errorf("started %s, not %s", after.Started, before.Started)
	}

	rowsBefore, rowsAfter := readTimeline(t, before.folder), readTimeline(t, after.folder)
	for i, row := range rowsBefore {
		if got := rowsAfter[i]; got.Elapsed != row.Elapsed || got.RSS != row.RSS || got.Tree != row.Tree {
			t.Fatalf("row %d is %+v, not %+v", i, got, row)
		}
	}
	gap := rowsAfter[len(rowsBefore)].Elapsed - rowsBefore[len(rowsBefore)-1].Elapsed
	if gap.Seconds() < c.GapS {
		t.Errorf("a gap of %s in the timeline, not of %v s", gap, c.GapS)
	}

	for i := range rowsAfter[1:] {
		steps := [2]int64{rowsAfter[i].Steps, rowsAfter[i+1].Steps}
		if steps[0] > steps[1] {
			t.Errorf("steps fall from %d to %d", steps[0], steps[1])
		}
	}
	report := readFile(t, after.folder, folder.ReportFile)
	mustSay(t, "the report", report, "Continues", before.folder)
}

// mustVerdictFile checks that the timeline alone has the same rate over the same time.
func mustVerdictFile(t *testing.T, v verdictOn) {
	t.Helper()
	file := jsonOf(t, readFile(t, v.folder, folder.TimelineFile))
	const rounding, milliseconds = 1e-3, 2e-3 // times in the file are in milliseconds
	if math.Abs(*file.Rate / *v.Rate - 1) > rounding ||
		math.Abs(*file.Segment-*v.Segment) > milliseconds {
		t.Errorf("the file has %v over %v s, the trace %v over %v s", *file.Rate,
			*file.Segment, *v.Rate, *v.Segment)
	}
}

// testNotContinued has folders that are refused, without a new one.
func testNotContinued(t *testing.T) {
	target, other := startSteps(t), startSteps(t)
	good := newFolder(t)
	call(t, traceArguments(target.PID(), good, "--duration", "2")...).mustEnd(0)
	text := readFile(t, good, folder.SummaryFile)
	timeline := readFile(t, good, folder.TimelineFile)
	var s summary.Summary
	must(t, json.Unmarshal([]byte(text), &s))

	start := fmt.Sprintf(`"start_ticks": %d`, s.Target.StartTicks)
	for name, c := range map[string]struct {
		pid               int
		summary, timeline string
		words             []string
	}{
		"another PID": {other.PID(), text, timeline, []string{"not of PID " + itoa(other.PID())}},
		"another process with the PID": {
			target.PID(), strings.ReplaceAll(text, start, `"start_ticks": 1`), timeline,
			[]string{"is another process now"},
		},
		"another boot": {
			target.PID(), strings.Replace(text, s.Target.BootID, "0", 1), timeline,
			[]string{"has booted since"},
		},
		"no target": {
			target.PID(), strings.Replace(text, `"target": {`, `"was": {`, 1), timeline,
			[]string{"does not say when its process started"},
		},
		"another program": {
			target.PID(), strings.ReplaceAll(text, s.Process.Executable, "/bin/other"), timeline,
			[]string{"executes " + s.Process.Executable + " now"},
		},
		"no summary":         {target.PID(), "", timeline, []string{"has no summary.json"}},
		"damaged summary":    {target.PID(), text[:len(text)/2], timeline, []string{"truncated"}},
		"no timeline":        {target.PID(), text, "", []string{"timeline.csv"}},
		"truncated timeline": {target.PID(), text, timeline[:len(timeline)-4], []string{"timeline.csv", "line"}},
		"timeline of the future": {
			target.PID(), text, timeline + "99999999.000" + strings.Repeat(",", 30) + "\n",
			[]string{"rows of the future"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			from, to := filepath.Join(newFolder(t)), newFolder(t)
			must(t, os.Mkdir(from, 0o700))
			for file, text := range map[string]string{
				folder.SummaryFile: c.summary, folder.TimelineFile: c.timeline,
				folder.ProcessesFile: readFile(t, good, folder.ProcessesFile),
			} {
				if text != "" {
					writeFile(t, filepath.Join(from, file), text, 0o600)
				}
			}
			mustRefuse(t, allocscope(t, traceArguments(c.pid, to, "--duration", "2",
				"--continue", from)...), to, append(c.words, "continue "+from)...)
		})
	}

	t.Run("its own folder", func(t *testing.T) {
		c := begin(t, allocscope(t, traceArguments(target.PID(), good, "--force", "--continue", good)...))
		c.mustEndSaying(2, "--output names the same folder")
		if readFile(t, good, folder.SummaryFile) != text {
			t.Error("the summary has changed")
		}
	})
}
