package words

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/growth"
)

// Note is one or two sentences about a note.
func Note(n summary.Note) string {
	switch n.Code {
	case summary.NoteProcess:
		return Selection(n.Selection)
	case summary.NoteSampling:
		return planText(n.Plan)
	case summary.NoteAllocator:
		return allocatorText(n.Allocator)
	case summary.NoteLimitHidden:
		return "The memory limit of the process's container cannot be seen from here: forecasts " +
			"use the machine's memory. Name the limit with --limit SIZE, or run allocscope on the host."
	}
	return n.Code
}

// planText is how a trace samples, and when it ends.
func planText(p summary.Plan) string {
	text := "Sampling allocations"
	switch {
	case p.NoHeap:
		text = "Tracing without source heap"
	case p.IntervalBytes == 1:
		text = "Recording every allocation"
	case p.IntervalBytes > 1:
		text = "Sampling 1 allocation per " + units.Bytes(float64(p.IntervalBytes))
	}

	if p.Limit > 0 {
		text += ", slowing the job by " + units.ExactPercent(p.Limit) + " at most. "
	} else {
		text += ", however much that slows the job. "
	}

	duration := units.Duration(secondsOf(p.DurationS))
	switch {
	case p.UntilSettledS > 0:
		text += fmt.Sprintf("Result when the verdict is settled, after %s to %s; Ctrl-C stops early "+
			"and writes it.", duration, units.Duration(secondsOf(p.UntilSettledS)))
	case p.DurationS > 0:
		text += "Result in " + duration + "; Ctrl-C stops early and writes it."
	default:
		text += "Ctrl-C stops and writes the result."
	}
	return text
}

func allocatorText(a summary.Allocator) string {
	return fmt.Sprintf("malloc of PID %d is %s (%s). Where the budget allows bursts only, %s", a.PID,
		cmp.Or(a.Name, "an unknown one"), a.File, heapLimits[a.Limit])
}

// recordRemedy names call sites that bursts cannot.
const recordRemedy = ": --overhead off records every call and names them, and slows the job more."

var heapLimits = map[growth.HeapLimit]string{
	growth.HeapUnchecked:       "call sites of the heap stay undecided" + recordRemedy,
	growth.HeapFreedLooksAlive: "call sites of the heap may stay unnamed for long" + recordRemedy,
	growth.HeapFreeUnmeasured: "free memory inside it is not measured, and growth by " +
		"fragmentation stays undecided: --overhead off measures it, and slows the job more.",
}

// OfTrace is the end of a trace behind the time that has passed: " of 5 min", or " of 60 min at
// most, until settled".
func OfTrace(end time.Duration, untilSettled bool) string {
	text := " of " + units.Duration(end)
	if untilSettled {
		text += " at most, until settled"
	}
	return text
}

// GoesOn is why a trace goes on, when it is judged again, and when it ends at the latest.
func GoesOn(headline string, next, end time.Duration) string {
	text := "not settled yet: " + headline + "; the trace goes on until it is, to " +
		units.Duration(end) + " at most"
	if next < end {
		text += "; next check at " + units.Duration(next)
	}
	return text
}

// Settled is why a trace ends that goes on until its verdict is settled.
func Settled(headline string) string { return "settled: " + headline }

// Extended answers a key: the trace goes on until a new end.
func Extended(end time.Duration) string { return "the trace goes on to " + units.Duration(end) }

// Continues is which trace a trace continues, and the gap between them.
func Continues(c *summary.Continued) string {
	return "continues " + c.Folder + " after a gap of " + units.Seconds(c.GapS) +
		"; the verdict is on both, stacks count from " + units.Seconds(c.BeganS)
}

// unquotedWord matches words that no shell expands. "a=b" is an assignment unless it follows a
// dash.
var unquotedWord = regexp.MustCompile(`^[0-9A-Za-z/._+:,@-]+$|^-[0-9A-Za-z/._+:,@=-]+$`)

// ShellQuote quotes a word where a shell would expand it.
func ShellQuote(word string) string {
	if unquotedWord.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// CommandLine joins arguments to a command that can be pasted into a shell.
func CommandLine(arguments []string) string {
	quoted := make([]string, len(arguments))
	for i, argument := range arguments {
		quoted[i] = ShellQuote(argument)
	}
	return strings.Join(quoted, " ")
}
