package compare

import (
	"fmt"
	"math"
	"path"

	"github.com/allocscope/allocscope/export"
	"github.com/allocscope/allocscope/export/words"
)

// unlike is the ratio from which on two paces of training are not alike.
const unlike = 1.2

// traceNotes say what makes two traces hard to compare.
func traceNotes(before, after *Trace, o Options, resident bool) []string {
	var notes []string
	if a, b := program(before), program(after); a != b {
		notes = append(notes, fmt.Sprintf("the programs differ: %s before, %s after", a, b))
	}
	if a, b := before.stepsPerMin(), after.stepsPerMin(); a > 0 && b > 0 && !o.PerStep && math.Abs(math.Log(a/b)) > math.Log(unlike) {
		notes = append(notes, fmt.Sprintf("the paces of training differ, %s steps/min before and %s after: compare with --per step", words.Count(a), words.Count(b)))
	}
	for _, t := range []struct {
		trace *Trace
		when  string
	}{{before, "before"}, {after, "after"}} {
		if looked := t.trace.looked(); looked < allLooked && resident {
			notes = append(notes, fmt.Sprintf("%s, %.0f %% of the pages were looked at, and what is resident has a large error: --sample inuse_space compares what is alive", t.when, 100*looked))
		}
		if lost := len(t.trace.Summary.Losses); lost > 0 {
			notes = append(notes, fmt.Sprintf("something was lost %s: see losses in its summary.json", t.when))
		}
	}
	return notes
}

// allLooked is the share of pages from which on all were looked at, for people.
const allLooked = 0.995

// looked is the share of the pages of the process that was looked at, up to 1.
func (t *Trace) looked() float64 {
	if r := words.ResidentOf(t.Summary); r.Process != 0 {
		return min(max(r.Looked, 0), 1)
	}
	return 1
}

func program(t *Trace) string { return export.Printable(path.Base(t.Summary.Process.Executable)) }

func profileNotes(before, after Profile) []string {
	if intervalSaid(before) && intervalSaid(after) {
		return nil
	}
	return []string{"how the values were sampled is not said: they are taken to be exact"}
}

func intervalSaid(p Profile) bool {
	return p.PeriodType != nil && p.PeriodType.Unit == "bytes" && p.Period > 0
}
