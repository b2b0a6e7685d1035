package words

import (
	"fmt"
	"slices"
	"strings"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/units"
)

// NothingAccumulated reports that no allocation site accumulates.
func NothingAccumulated(s *summary.Summary) string {
	text := "Nothing that was traced accumulated since the baseline."
	if from := FromBursts(s.Overhead); from != "" {
		text += " Heap memory is known from " + from +
			": a longer trace may find its allocation sites."
	}
	return text
}

// RowsNote explains the rows of accumulating stacks, or why there are none.
func RowsNote(s *summary.Summary) string {
	switch {
	case len(s.Accumulating) == 0 && !HeapKnown(s):
		return NothingAccumulated(s) + " " + HeapNotAttached(s.Process.PID)
	case len(s.Accumulating) == 0:
		return NothingAccumulated(s)
	}

	note := ""
	if from := FromBursts(s.Overhead); from != "" {
		note = "Heap memory is known from " + from + ". "
	}

	note += "Each row is what a stack holds at the end, less what it held at the baseline. " +
		"Shares are of all stacks that grew."
	isProven := func(a summary.Accumulation) bool { return a.RateLow == nil || *a.RateLow > 0 }
	if !slices.ContainsFunc(s.Accumulating, isProven) {
		note += " None of it is proven: all intervals contain 0."
	}

	return note
}

// GPURowsNote explains the rows of stacks that accumulate on GPUs, or why there are none.
func GPURowsNote(g summary.GPUMemory) string {
	if len(g.Accumulating) == 0 {
		return "Nothing that was traced on GPUs accumulated since the baseline."
	}
	return "Each row is what a stack holds on GPUs at the end, less what it held at the baseline."
}

// Tree names the process tree of a breakdown.
func Tree(others int) string {
	return "Its tree, with " + units.Plural(others, "other process", "other processes") +
		", shared pages once"
}

// BarsBegin explains bars that begin at a size. It is empty for zero.
func BarsBegin(bytes float64) string {
	if bytes <= 0 {
		return ""
	}
	return "The bars begin at " + units.Bytes(bytes) + ", not at zero."
}

// NotDrawn is the note on the parts that a flame graph leaves out: small functions, which it calls
// by one name, and the stacks that hold so many bytes less than at the baseline.
func NotDrawn(functions int, name string, shrunk int, less float64) string {
	var notes []string
	if functions > 0 {
		notes = append(notes, fmt.Sprintf("%s too small to be drawn: see %s.",
			units.Plural(functions, "function is", "functions are"), name))
	}

	if shrunk > 0 {
		stacks := units.Plural(shrunk, "stack that has shrunk is", "stacks that have shrunk are")
		notes = append(notes, fmt.Sprintf("%s left out: %s less than at the baseline.", stacks,
			units.Bytes(less)))
	}

	return strings.Join(notes, " ")
}
