package words

import (
	"fmt"
	"math"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/growth"
)

// Undecided says of the largest of what may be a cache or a leak, at most so many, why that cannot be told yet and what would tell.
func Undecided(accumulating []summary.Accumulation, most int) []string {
	var lines []string
	for _, a := range accumulating {
		if a.Trend == growth.TrendUndecided && len(lines) < most {
			lines = append(lines, fmt.Sprintf("cache or leak, cannot tell yet: %s %s: %s; %s",
				Where(a), units.Signed(float64(a.Bytes)), undecidedReason(a), undecidedRemedy(a)))
		}
	}
	return lines
}

// Doubt says of what may be a cache or a leak why that cannot be told yet, and what would tell; empty: there is no doubt.
func UndecidedText(a summary.Accumulation) string {
	if a.UndecidedReason == "" {
		return ""
	}
	return "cache or leak, cannot tell yet: " + undecidedReason(a) + "; " + undecidedRemedy(a)
}

var undecidedReasons = map[growth.Doubt]string{
	growth.DoubtSamples:  "too few of its objects were seen",
	growth.DoubtWindows:  "all that were seen come from one or two windows",
	growth.DoubtExposure: "most of it may have been freed unseen",
	growth.DoubtClass:    "something else that grows, in objects of the same size, may have taken their place",
	growth.DoubtHeap:     "the heap has not grown by as much",
}

func undecidedReason(a summary.Accumulation) string {
	if a.Untrackable != "" {
		return a.Untrackable
	}
	if reason, ok := undecidedReasons[a.UndecidedReason]; ok {
		return reason
	}
	return "whether its objects are alive cannot be seen from outside"
}

// doubtRemedy is what would tell.
func undecidedRemedy(a summary.Accumulation) string {
	const full = "full tracing (--overhead off) tells"
	if a.LongerS == nil {
		return "only " + full
	}
	return "trace " + units.Span(math.Max(60, *a.LongerS), false, math.Ceil) + " more, or with a larger --overhead; " + full
}
