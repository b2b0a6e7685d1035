package words

import (
	"fmt"
	"math"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/growth"
)

// Undecided explains the largest stacks whose trend is undecided, up to limit of them: the cause,
// and how to decide it.
func Undecided(accumulating []summary.Accumulation, limit int) []string {
	var lines []string
	for _, a := range accumulating {
		if a.Trend == growth.TrendUndecided && len(lines) < limit {
			lines = append(lines, fmt.Sprintf("cache or leak, undecided: %s %s: %s; %s",
				Where(a), units.Signed(float64(a.Bytes)), undecidedReason(a), undecidedRemedy(a)))
		}
	}

	return lines
}

// UndecidedText explains why the trend of a stack is undecided, and how to decide it. It is empty
// where the trend is decided.
func UndecidedText(a summary.Accumulation) string {
	if a.UndecidedReason == "" {
		return ""
	}
	return "cache or leak, undecided: " + undecidedReason(a) + "; " + undecidedRemedy(a)
}

var undecidedReasons = map[growth.UndecidedReason]string{
	growth.UndecidedFewSamples:   "too few of its objects were seen",
	growth.UndecidedFewBursts:    "all objects that were seen come from one or two bursts",
	growth.UndecidedUnseenDeaths: "most of it may have been freed unseen",
	growth.UndecidedSizeClass:    "other growing objects of the same size may have taken their place",
	growth.UndecidedHeapGrowth:   "the heap has not grown by as much",
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

// minRemedySeconds is the shortest time that a remedy recommends to trace for.
const minRemedySeconds = 60

func undecidedRemedy(a summary.Accumulation) string {
	const full = "full tracing (--overhead off) decides it"
	if a.LongerS == nil {
		return "only " + full
	}
	longer := units.Span(math.Max(minRemedySeconds, *a.LongerS), false, math.Ceil)
	return "trace " + longer + " more, or with a larger --overhead; " + full
}
