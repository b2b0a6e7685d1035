package words

import (
	"fmt"
	"path"
	"regexp"
	"strings"
	"time"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/growth"
)

// TracedProcess is the process of a trace that was named by the user.
func TracedProcess(pid int, commandLine string) summary.Note {
	text := fmt.Sprintf("Tracing PID %d (%s).", pid, shortCommand(commandLine))
	return summary.Note{Code: summary.NoteProcess, Text: text}
}

// Plan is how a trace samples, and when it ends.
type Plan struct {
	// Interval is the mean number of bytes between samples; 0: allocscope's choice.
	Interval uint64
	// Limit is the largest share of the job's time that tracing may take; 0: none.
	Limit float64
	// Duration is 0 until Ctrl-C.
	Duration time.Duration
	// UntilSettled is the longest trace, where it goes on until the verdict is settled; 0: it does
	// not.
	UntilSettled time.Duration
	// NoHeap: source heap is not wanted.
	NoHeap bool
}

// Note is the plan in two sentences.
func (p Plan) Note() summary.Note {
	text := "Sampling allocations"
	switch {
	case p.NoHeap:
		text = "Tracing without source heap"
	case p.Interval == 1:
		text = "Recording every allocation"
	case p.Interval > 1:
		text = "Sampling 1 allocation per " + units.Bytes(float64(p.Interval))
	}

	if p.Limit > 0 {
		text += ", slowing the job by " + units.ExactPercent(p.Limit) + " at most. "
	} else {
		text += ", however much that slows the job. "
	}

	switch {
	case p.UntilSettled > 0:
		text += fmt.Sprintf("Result when the verdict is settled, after %s to %s; Ctrl-C stops early "+
			"and writes it.", units.Duration(p.Duration), units.Duration(p.UntilSettled))
	case p.Duration > 0:
		text += "Result in " + units.Duration(p.Duration) +
			"; Ctrl-C stops early and writes it."
	default:
		text += "Ctrl-C stops and writes the result."
	}
	return summary.Note{Code: summary.NoteSampling, Text: text}
}

// An Allocator is the malloc of a traced process.
type Allocator struct {
	PID int
	// Name is empty if it is not known. Path is its file.
	Name, Path string
	Limit      growth.HeapLimit
}

// NeedsNote reports whether the malloc limits the findings of the trace.
func (a Allocator) NeedsNote() bool { return a.Limit != growth.HeapUnlimited }

// Note is the budget's note on the malloc.
func (a Allocator) Note() summary.Note {
	file := units.Name(path.Base(a.Path))
	text := fmt.Sprintf("malloc of PID %d is %s (%s). ", a.PID, a.Name, file)
	if a.Name == "" {
		text = fmt.Sprintf("malloc of PID %d is an unknown one (%s). ", a.PID, file)
	}

	text += "Where the budget allows bursts only, " + heapLimits[a.Limit]
	return summary.Note{Code: summary.NoteAllocator, Text: text}
}

// recordRemedy names call sites that bursts cannot.
const recordRemedy = ": --overhead off records every call and names them, and slows the job more."

var heapLimits = [growth.HeapLimitCount]string{
	growth.HeapUnchecked:       "call sites of the heap stay undecided" + recordRemedy,
	growth.HeapFreedLooksAlive: "call sites of the heap may stay unnamed for long" + recordRemedy,
	growth.HeapFreeUnmeasured: "free memory inside it is not measured, and growth by " +
		"fragmentation stays undecided: --overhead off measures it, and slows the job more.",
}

// LimitHidden says that a memory limit of the container may be unknown.
func LimitHidden() summary.Note {
	return summary.Note{
		Code: summary.NoteLimitHidden,
		Text: "The memory limit of the process's container cannot be seen from here: forecasts " +
			"use the machine's memory. Name the limit with --limit SIZE, or run allocscope on the host.",
	}
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
