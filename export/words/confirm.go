package words

import (
	"time"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/units"
)

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
