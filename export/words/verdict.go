// Package words turns what a trace has found into sentences for people: verdicts, breakdowns,
// overhead, and stacks in one line. The summary, the report, the terminal and the comparison all
// take their words from here; numbers are written by package units.
package words

import (
	"fmt"
	"math"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/growth/verdict"
)

const (
	// AtLimit is what happens to a running process at its memory limit.
	AtLimit = "out of memory"

	bytesPerMiB = 1 << 20
)

// VerdictLines describes a verdict: the Headline, then up to four lines of what follows from it.
// limit is what happens at the limit, such as AtLimit.
func VerdictLines(v summary.Verdict, limit string) []string {
	lines := []string{Headline(v)}
	for _, line := range []string{
		boundLine(v), LimitLine(v, limit), levelsOffLine(v), spikesLine(v), sinceLine(v),
		longerLine(v),
	} {
		if line != "" {
			lines = append(lines, line)
		}
	}

	return lines
}

// Headline is the verdict in one sentence.
func Headline(v summary.Verdict) string {
	name, sentence := HeadlineParts(v)
	if v.Class == verdict.ClassWrongProcess || v.WhyCode == verdict.ReasonTooShort {
		return name + " " + sentence
	}
	return name + ": " + sentence
}

// HeadlineParts are the name of the verdict and the rest of its Headline: "LEAK" and
// "grows by ...".
func HeadlineParts(v summary.Verdict) (name, sentence string) {
	switch v.WhyCode {
	case verdict.ReasonFragmentation:
		return "FRAGMENTATION", "grows by " + Rate(v) + ", most of it " + v.Why
	case verdict.ReasonPageCache:
		return "NO LEAK (page cache)", v.Why
	}

	switch v.Class {
	case verdict.ClassLeak:
		return "LEAK", "grows by " + Rate(v) + ", " + v.Why
	case verdict.ClassSuspected:
		return "LEAK SUSPECTED", "grows by " + Rate(v) + ", " + v.Why
	case verdict.ClassGrowing:
		return "GROWING, too early to tell", "by " + Rate(v)
	case verdict.ClassSaturating:
		return "SATURATING", "grows by " + Rate(v) + ", and slows down"
	case verdict.ClassPlateau:
		return "NO LEAK (plateau)", plateauText(v)
	case verdict.ClassSpikyPlateau:
		return "NO LEAK (spiky plateau)", plateauText(v)
	case verdict.ClassWrongProcess:
		return "WRONG PROCESS?", v.Why
	}

	if v.WhyCode == verdict.ReasonTooShort {
		return "TOO SHORT", "to tell"
	}

	return "TOO SHORT", v.Why
}

func plateauText(v summary.Verdict) string {
	if low, _ := v.RateInterval(); low != nil && *low > 0 {
		return "a residual growth of " + Rate(v) + " is seen, but not proven to last"
	}
	return "no growth is seen, the rate is " + Rate(v)
}

func isPlateau(v summary.Verdict) bool {
	return v.Class == verdict.ClassPlateau || v.Class == verdict.ClassSpikyPlateau
}

// boundLine is the largest leak that a plateau may still hide.
func boundLine(v summary.Verdict) string {
	bound := firstKnown(v.BoundBytesPerMin, v.BoundBytesPerStep)
	switch {
	case !isPlateau(v) || bound == nil:
		return ""
	case *bound == 0:
		return "a leak of any size is excluded (95% confidence)"
	}

	return fmt.Sprintf("if there is a leak, it is below %s%s (95%% confidence)",
		units.RoundedUp(*bound/bytesPerMiB), rateUnit(v))
}

// LimitLine is when the memory limit will be met: "out of memory in 46 min at this rate". It is
// empty where no limit is known, or nothing grows.
func LimitLine(v summary.Verdict, limit string) string {
	when, condition := TimeToLimit(v)
	switch {
	case when == "":
		return ""
	case condition == "":
		return limit + " " + when
	}
	return limit + " " + when + " " + condition
}

// TimeToLimit is the time until the memory limit is met: "now", "in 28-31 min". It is empty where
// no limit is known, or nothing grows. The condition is "at this rate" where the verdict does not
// prove the growth, else empty.
func TimeToLimit(v summary.Verdict) (when, condition string) {
	to := firstKnown(v.SecondsToLimit, v.StepsToLimit)
	low := firstKnown(v.SecondsToLimitLow, v.StepsToLimitLow)
	high := firstKnown(v.SecondsToLimitHigh, v.StepsToLimitHigh)

	switch {
	case to == nil:
		return "", ""
	case *to == 0:
		return "now", ""
	case v.Class != verdict.ClassLeak:
		condition = "at this rate"
	case low != nil && high != nil:
		return "in " + units.SpanRange(*low, *high, v.InSteps()), ""
	case low != nil:
		return "in " + units.Span(*low, v.InSteps(), math.Floor) + " at the earliest", ""
	}

	return "in " + units.Span(*to, v.InSteps(), math.Round), condition
}

func levelsOffLine(v summary.Verdict) string {
	if v.LevelsOffAtBytes == nil || v.Class != verdict.ClassSaturating {
		return ""
	}
	return "expected to level off near " + units.Bytes(*v.LevelsOffAtBytes)
}

func spikesLine(v summary.Verdict) string {
	if v.Spikes == nil {
		return ""
	}
	return fmt.Sprintf("spikes of %s on top, in %s of the samples",
		units.Bytes(v.Spikes.HeightBytes), units.Percent(v.Spikes.Share))
}

// sinceLine is the part of the series that the verdict is about.
func sinceLine(v summary.Verdict) string {
	if v.Class == verdict.ClassWrongProcess || v.Class == verdict.ClassTooShort {
		v.PlateauFromS, v.PlateauFromStep = nil, nil
	}

	what := "growing at this rate since "
	if isPlateau(v) {
		what = "the plateau began at "
	}

	from := firstKnown(v.PlateauFromS, v.PlateauFromStep)
	restart := firstKnown(v.RestartedAtS, v.RestartedAtStep)
	switch {
	case from != nil && restart != nil:
		return what + units.Point(*from, v.InSteps()) +
			", after a restart at " + units.Point(*restart, v.InSteps())
	case from != nil:
		return what + units.Point(*from, v.InSteps())
	case restart != nil:
		return "only what follows the restart at " + units.Point(*restart, v.InSteps()) +
			" is judged"
	}

	return ""
}

func longerLine(v summary.Verdict) string {
	longer := firstKnown(v.WatchLongerS, v.WatchLongerSteps)
	if longer == nil || *longer == 0 {
		return ""
	}

	line := "watch at least " + units.Span(*longer, v.InSteps(), math.Ceil) + " more"
	switch {
	case isPlateau(v):
		return line + " to exclude a smaller one"
	case v.Class == verdict.ClassSuspected:
		return line + " to confirm it"
	}

	return line
}

// Rate is the rate with its interval: "572.2 MiB/min (95% CI 567.8-576.6)".
func Rate(v summary.Verdict) string {
	rate, interval := RateParts(v)
	switch {
	case rate == "":
		return "an unknown rate"
	case interval == "":
		return rate
	}
	return rate + " (" + interval + ")"
}

// RateParts are the rate and its interval, with as many decimals as the width of the interval
// warrants: "572.2 MiB/min" and "95% CI 567.8-576.6". They are empty where they are unknown.
func RateParts(v summary.Verdict) (rate, interval string) {
	value := firstKnown(v.RateBytesPerMin, v.RateBytesPerStep)
	if value == nil {
		return "", ""
	}

	least, most := v.RateInterval()
	if least == nil || most == nil {
		return fmt.Sprintf("%.3g", *value/bytesPerMiB) + rateUnit(v), ""
	}

	low, high := *least/bytesPerMiB, *most/bytesPerMiB
	decimals := 4
	if width := high - low; width > 0 {
		decimals = min(max(1-int(math.Floor(math.Log10(width))), 0), 4)
	}

	interval = units.Interval(units.Fixed(low, decimals), units.Fixed(high, decimals))
	return units.Fixed(*value/bytesPerMiB, decimals) + rateUnit(v), "95% CI " + interval
}

func rateUnit(v summary.Verdict) string {
	if v.InSteps() {
		return " MiB/step"
	}
	return " MiB/min"
}

// firstKnown is the first of two values that is not nil.
func firstKnown(a, b *float64) *float64 {
	if a != nil {
		return a
	}
	return b
}
