package compare

import (
	"cmp"
	"fmt"
	"math"
	"path"
	"slices"
	"strings"

	"github.com/allocscope/allocscope/export"
	"github.com/allocscope/allocscope/export/words"
)

// unlike is the ratio from which on two paces of training are not alike.
const unlike = 1.2

// traceNotes say what makes two traces hard to compare.
func traceNotes(before, after *Trace, o Options, resident bool) []string {
	var notes []string
	if isSameTrace(before, after) {
		notes = append(notes, "both are the same trace")
	}
	if a, b := program(before), program(after); a != b {
		notes = append(notes, fmt.Sprintf("the programs differ: %s before, %s after", a, b))
	}
	if a, b := heapMode(before), heapMode(after); a != b {
		notes = append(notes, fmt.Sprintf("%s before, %s after: of what stacks hold of the heap, windows know less exactly, and nothing of what was just allocated", a, b))
	}
	if a, b := before.stepsPerMin(), after.stepsPerMin(); a > 0 && b > 0 && !o.PerStep && math.Abs(math.Log(a/b)) > math.Log(unlike) {
		notes = append(notes, fmt.Sprintf("the paces of training differ, %s steps/min before and %s after: compare with --per step", words.Count(a), words.Count(b)))
	}
	return append(append(notes, before.notes("before", resident)...), after.notes("after", resident)...)
}

// heapMode is how a trace has watched the heap, in words; files that do not tell are of traces that watched it all the time.
func heapMode(t *Trace) string {
	o := t.Summary.Overhead
	switch {
	case o == nil || !words.HeapKnown(t.Summary):
		return words.HeapMode(export.HeapFull)
	case o.InWindows():
		return words.HeapMode(export.HeapWindows)
	}
	return words.HeapMode(o.Mode)
}

// notes of one side.
func (t *Trace) notes(when string, resident bool) []string {
	var notes []string
	if !words.HeapKnown(t.Summary) {
		notes = append(notes, fmt.Sprintf("%s, source heap was not attached: heap memory has no stacks that could be compared", when))
	}
	if looked := words.Looked(words.ResidentOf(t.Summary)); looked != "" && resident {
		notes = append(notes, fmt.Sprintf("%s, %s of the pages were looked at, and what is resident has a large error: --sample inuse_space compares what is alive", when, looked))
	}
	if losses := t.losses(); losses != "" {
		notes = append(notes, fmt.Sprintf("lost %s: %s", when, losses))
	}
	return notes
}

// losses names the most frequent ones.
func (t *Trace) losses() string {
	const most = 3
	losses := slices.SortedStableFunc(slices.Values(t.Summary.Losses), func(a, b export.Loss) int { return cmp.Compare(b.Count, a.Count) })
	var texts []string
	for _, l := range losses[:min(most, len(losses))] {
		texts = append(texts, fmt.Sprintf("%d %s", l.Count, export.Printable(l.Reason)))
	}
	if more := len(losses) - most; more > 0 {
		texts = append(texts, fmt.Sprintf("%d more in summary.json", more))
	}
	return strings.Join(texts, ", ")
}

func isSameTrace(before, after *Trace) bool {
	a, b := before.Summary, after.Summary
	return !a.Started.IsZero() && a.Started.Equal(b.Started) && a.Process.PID == b.Process.PID
}

// program is what ran: an interpreter with its script. Without a name it is that of its file.
func program(t *Trace) string {
	p := t.Summary.Process
	return export.Printable(cmp.Or(p.Command, path.Base(p.Executable)))
}

func profileNotes(before, after Profile) []string {
	if intervalSaid(before) && intervalSaid(after) {
		return nil
	}
	return []string{"how the values were sampled is not said: they are taken to be exact"}
}

func intervalSaid(p Profile) bool {
	return p.PeriodType != nil && p.PeriodType.Unit == "bytes" && p.Period > 0
}
