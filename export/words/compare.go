package words

import (
	"cmp"
	"fmt"
	"math"
	"path"
	"slices"
	"strings"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/growth"
)

const (
	// GPUMemoryUnknown is why nothing is known of the GPU memory of a trace.
	GPUMemoryUnknown = "its GPU memory is unknown"
	// NoIntervals limits profiles that do not name their sampling interval.
	NoIntervals = "the profiles do not name their sampling interval: their values count as exact"

	// TooWide is why a change is not decidable, though both rates are known.
	TooWide = "the intervals are too wide, watch longer"
	// RestUnknown is why growth that is slower is not called gone.
	RestUnknown = "too short to exclude a rest"
)

// BeforeAfter has the values before and after.
func BeforeAfter(before, after string) string { return before + " before, " + after + " after" }

// Inconclusive names the sides that have no usable verdict, each with its reason. The reason of the
// other side is empty.
func Inconclusive(before, after string) string {
	switch {
	case before == "":
		return "after is not conclusive (" + after + ")"
	case after == "":
		return "before is not conclusive (" + before + ")"
	}
	return "before (" + before + ") and after (" + after + ") are not conclusive"
}

// Rest is the largest growth that may be left, in bytes per unit: "/min" or "/step".
func Rest(bytes float64, unit string) string {
	return "up to " + units.Bytes(bytes) + unit + " may be left"
}

// maxPaceRatio is the ratio of two rates of training steps above which they are not comparable.
const maxPaceRatio = 1.2

// A TracePair is two traces that are compared: the growth by training step or by minute, and
// resident memory or another one.
type TracePair struct {
	Before, After         *summary.Summary
	IsPerStep, IsResident bool
}

// Notes name what makes the traces hard to compare, a sentence each.
func (p TracePair) Notes() []string {
	var notes []string
	if p.isSameTrace() {
		notes = append(notes, "both are the same trace")
	}

	if a, b := program(p.Before), program(p.After); a != b {
		notes = append(notes, "the programs differ: "+BeforeAfter(a, b))
	}

	if a, b := heapModeOf(p.Before), heapModeOf(p.After); a != b {
		notes = append(notes, BeforeAfter(a, b)+": in bursts, stacks of the heap have larger "+
			"errors, and lack young objects")
	}

	if a, b := p.Before.StepsPerMin(), p.After.StepsPerMin(); a > 0 && b > 0 && !p.IsPerStep &&
		math.Abs(math.Log(a/b)) > math.Log(maxPaceRatio) {
		notes = append(notes, "the rates of training steps differ, "+
			BeforeAfter(units.Count(a)+" steps/min", units.Count(b))+": compare with --per step")
	}

	return slices.Concat(notes, p.sideNotes("before", p.Before), p.sideNotes("after", p.After))
}

func (p TracePair) isSameTrace() bool {
	a, b := p.Before, p.After
	return !a.Started.IsZero() && a.Started.Equal(b.Started) && a.Process.PID == b.Process.PID
}

// sideNotes are those on one trace.
func (p TracePair) sideNotes(when string, s *summary.Summary) []string {
	var notes []string
	if !HeapKnown(s) {
		notes = append(notes,
			when+", source heap was not attached: heap memory has no stacks to compare")
	}

	if scanned := Scanned(s.MainResident()); scanned != "" && p.IsResident {
		notes = append(notes,
			fmt.Sprintf("%s, %s of the pages were scanned, so resident memory has a large error "+
				"(compare live bytes with --sample inuse_space)", when, scanned))
	}

	if losses := losses(s); losses != "" {
		notes = append(notes, "lost "+when+": "+losses)
	}

	return notes
}

// program is the program that ran: its command, or the name of its file.
func program(s *summary.Summary) string {
	return units.Name(cmp.Or(s.Process.Command, path.Base(s.Process.Executable)))
}

// heapModeOf is how the heap of a trace was probed. A summary that does not say is of a trace that
// probed it all the time.
func heapModeOf(s *summary.Summary) string {
	switch o := s.Overhead; {
	case o == nil || !HeapKnown(s):
		return HeapMode(growth.HeapFull)
	case o.InBursts():
		return HeapMode(growth.HeapBursts)
	default:
		return HeapMode(o.Mode)
	}
}

// losses lists the most frequent ones.
func losses(s *summary.Summary) string {
	const most = 3
	losses := slices.SortedStableFunc(slices.Values(s.Losses),
		func(a, b growth.Loss) int { return cmp.Compare(b.Count, a.Count) })

	var texts []string
	for _, l := range losses[:min(most, len(losses))] {
		texts = append(texts, lossLine(l))
	}

	if more := len(losses) - most; more > 0 {
		texts = append(texts, fmt.Sprintf("%d more in summary.json", more))
	}

	return strings.Join(texts, ", ")
}
