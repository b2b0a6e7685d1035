package words

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
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

// allocatorNote names the questions about a malloc that bursts leave open, and the remedy, in one
// line.
func allocatorNote(a summary.Allocator) string {
	name, left := cmp.Or(a.Name, a.File), "call sites"
	if a.Limit == growth.HeapFreeUnmeasured {
		left = "free memory and fragmentation"
	}

	return "malloc is " + name + ": bursts leave " + left +
		" open. Fix: --overhead off (a slower job)"
}

// recordRemedy names call sites that bursts cannot.
const recordRemedy = ": --overhead off records every call and names them, and slows the job more."

var heapLimits = map[growth.HeapLimit]string{
	growth.HeapUnchecked: "call sites of the heap stay undecided" + recordRemedy,
	growth.HeapUnknownVersion: "call sites of the heap stay undecided, as its version is not known (" +
		"jemalloc 5.3 and 5.4, and mimalloc 2.0 are)" + recordRemedy,
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

// NothingAlive is said instead of the stacks that are alive.
const NothingAlive = "nothing that was allocated since tracing started is alive yet"

// limitNames are the limits of setrlimit(2).
var limitNames = map[string]string{
	growth.LimitAddressSpace: "RLIMIT_AS", growth.LimitData: "RLIMIT_DATA", growth.LimitGiven: "--limit",
}

// Headroom is how much memory is left until a limit: "22.3 GiB of headroom in the machine".
func Headroom(l summary.Limit) string {
	left := units.Bytes(float64(l.HeadroomBytes)) + " of headroom "
	switch l.Of {
	case growth.LimitHigh:
		return left + "below the cgroup's memory.high"
	case growth.LimitAddressSpace, growth.LimitData:
		return left + "below the process's " + limitNames[l.Of]
	case growth.LimitGiven:
		return left + "below the limit given by --limit"
	}
	return left + "in the " + l.Of
}

// NoVerdictYet is when a trace is judged first.
func NoVerdictYet(first time.Duration) string {
	return "No verdict yet: the first check is at " + units.Duration(first)
}

// JudgedAt is when a trace was judged last.
func JudgedAt(at time.Duration) string { return "judged at " + units.Duration(at) }

// Since is the baseline of a trace, which may be the end of a warm-up that was seen.
func Since(baseline time.Duration, isWarm bool) string {
	switch {
	case isWarm:
		return "since the end of the warm-up at " + units.Duration(baseline)
	case baseline > 0:
		return "since " + units.Duration(baseline)
	}
	return "since tracing started"
}

// ScreenHelp is the help of the live screen, with the key for GPU memory where there is any.
func ScreenHelp(hasGPU bool) []string {
	var gpu []string
	if hasGPU {
		gpu = []string{"  g           show the stacks of GPU memory, or those of the host"}
	}
	return slices.Concat(keyHelp, gpu, scrollHelp)
}

var keyHelp = []string{
	"",
	"  q, Ctrl-C   end the trace, write the files and print the result;",
	"              Ctrl-C again ends the search for keepers, and a third time",
	"              leaves without the files",
	"  m           mark this moment: type a text, Enter adds the mark, Esc cancels",
	"  e           make a trace with a duration longer, several times if need be",
	"  s           sort the stacks by rate, by bytes or by objects",
}

var scrollHelp = []string{
	"  ↑ ↓ k j     scroll the stacks by one; PgUp, PgDn by five; Home, End",
	"  ?           this help",
	"",
	"  The verdict is provisional until the trace ends.",
	"  The chart is RSS so far; below it are the judged phases, ▲ is a mark.",
	"  Stacks: their growth a minute, and what is alive.",
	"  Bars: the growth of each kind of memory; at the right is its size.",
	"  `allocscope trace --no-tui` prints plain lines instead.",
}
