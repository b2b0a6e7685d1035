// Package words turns the findings of a trace into sentences for people: the result in fifteen
// lines, breakdowns, overhead, and stacks in one line. The summary, the report, the terminal and
// the comparison all take their words from here; numbers are written by package units.
package words

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/growth/verdict"
)

const (
	// AtLimit is the event that ends a running process at its memory limit.
	AtLimit = "out of memory"

	bytesPerMiB = 1 << 20
)

// Name is the verdict itself: "LEAK", "STABLE WITH SPIKES".
func Name(v summary.Verdict) string {
	switch v.WhyCode {
	case verdict.ReasonFragmentation:
		return "FRAGMENTATION"
	case verdict.ReasonGarbage:
		return "GARBAGE (waits for gc)"
	case verdict.ReasonBounded:
		return "FILLS UP"
	case verdict.ReasonLost:
		return "LEAK (proven)"
	case verdict.ReasonReplaced:
		return "WORKERS GROW (until they are replaced)"
	}

	switch v.Class {
	case verdict.ClassLeak:
		return "LEAK"
	case verdict.ClassSuspected:
		return "LEAK SUSPECTED"
	case verdict.ClassGrowing:
		return "GROWING (warm-up or leak?)"
	case verdict.ClassSaturating:
		return "LEVELLING OFF"
	case verdict.ClassPlateau:
		return "STABLE"
	case verdict.ClassSpikyPlateau:
		return "STABLE WITH SPIKES"
	case verdict.ClassWrongProcess:
		return "WRONG PROCESS?"
	}
	return "NOT ENOUGH DATA"
}

// Headline is the verdict in one sentence: "LEAK: +572 MiB/min (95% CI 568-577) since 82 min".
func Headline(v summary.Verdict) string { return Name(v) + ": " + Pace(v) }

// VerdictLines describes a verdict: the Headline, then its consequences. limit is the event at the
// limit, such as AtLimit.
func VerdictLines(v summary.Verdict, limit string) []string {
	lines := []string{Headline(v)}
	for _, line := range append([]string{LimitLine(v, limit), spikesLine(v)}, Certainty(v)...) {
		if line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

// Pace is how fast memory grows, and since when.
func Pace(v summary.Verdict) string {
	switch v.Class {
	case verdict.ClassWrongProcess:
		return otherPace(v)
	case verdict.ClassTooShort:
		if v.WhyCode == verdict.ReasonGrowthEnded && len(v.Phases) > 1 {
			return endedPace(v)
		}
		if rate := paceRate(v); rate != "" {
			return "so far " + rate
		}
		return "the rate is not known yet"
	case verdict.ClassFillsUp:
		return joined(FillText(v), cmp.Or(paceRate(v), unknownRate))
	case verdict.ClassSaturating:
		text := cmp.Or(paceRate(v), unknownRate) + " and slowing"
		if v.LevelsOffAtBytes != nil {
			text += "; expected to level off near " + units.Bytes(*v.LevelsOffAtBytes)
		}
		return text
	}
	text := cmp.Or(paceRate(v), unknownRate) + since(v)
	if v.WhyCode == verdict.ReasonPageCache {
		return "without mapped files " + text
	}
	return text
}

// endedPace is the rate of growth that has ended, and for how long memory is flat.
func endedPace(v summary.Verdict) string {
	grown, flat := v.Phases[len(v.Phases)-2], v.Phases[len(v.Phases)-1]
	length := func(p summary.VerdictPhase) string {
		if p.From == nil || p.To == nil {
			return "a while"
		}
		return lengthText(*p.To-*p.From, v.InSteps())
	}
	rate := Rate(summary.Verdict{Axis: v.Axis, Rate: grown.Rate})
	return fmt.Sprintf("%s for %s, then flat for %s", rate, length(grown), length(flat))
}

// paceRate is the Rate with its sign, and by the day where it is slow; empty where it is unknown.
func paceRate(v summary.Verdict) string {
	rate, interval := RateParts(v)
	if v.Rate == nil {
		return ""
	}

	note := interval
	isProven := v.RateLow == nil || *v.RateLow > 0
	if isProven && *v.Rate > 0 && strings.ContainsAny(strings.Fields(rate)[0], "123456789") {
		rate = "+" + rate
		isSlow := *v.Rate < slowRate && !v.InSteps()
		if isSlow && v.Class != verdict.ClassFillsUp { // which may end before the day does
			note = joined(interval, perDay(*v.Rate))
		}
	}
	return rate + inParentheses(note)
}

func inParentheses(note string) string {
	if note == "" {
		return ""
	}
	return " (" + note + ")"
}

// otherPace compares the growth of another process with the growth of the traced ones.
func otherPace(v summary.Verdict) string {
	o := v.Other
	if o == nil {
		return Reason(v)
	}
	return fmt.Sprintf("PID %d (%s) grew by %s during this trace, the traced processes by %s", o.PID,
		o.Command, units.Bytes(float64(o.GrowthBytes)), units.Bytes(float64(o.TreeGrowthBytes)))
}

// since is the part of the series that the verdict is about.
func since(v summary.Verdict) string {
	text := ""
	switch {
	case v.Segment != nil && *v.Segment > 0:
		text = " for " + lengthText(*v.Segment, v.InSteps())
	case v.PlateauFrom != nil:
		text = " since " + units.Point(*v.PlateauFrom, v.InSteps())
	}
	if slices.ContainsFunc(v.Phases, isWarmup) {
		text += " after a warm-up"
	}
	if v.RestartedAt != nil {
		text += ", after a restart at " + units.Point(*v.RestartedAt, v.InSteps())
	}
	return text
}

func isWarmup(p summary.VerdictPhase) bool { return p.Kind == verdict.PhaseWarmup }

// lengthText is a length in seconds or steps, as precise as a clock: "4m44s", "1h40m".
func lengthText(length float64, steps bool) string {
	if steps || !(length < maxClock) {
		return units.Span(length, steps, math.Round)
	}
	return units.Duration(secondsOf(length))
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
	to, low, high := v.ToLimit, v.ToLimitLow, v.ToLimitHigh

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

func spikesLine(v summary.Verdict) string {
	if v.Spikes == nil {
		return ""
	}
	return fmt.Sprintf("spikes of +%s, %s of the time", units.Bytes(v.Spikes.HeightBytes),
		units.Percent(v.Spikes.Share))
}

const (
	// slowRate is the rate in bytes a minute below which growth is also named per day.
	slowRate = 50 * bytesPerMiB

	unknownRate = "an unknown rate"
)

// Rate is the rate with its interval: "572.2 MiB/min (95% CI 567.8-576.6)".
func Rate(v summary.Verdict) string {
	rate, interval := RateParts(v)
	switch {
	case rate == "":
		return unknownRate
	case interval == "":
		return rate
	}
	return rate + " (" + interval + ")"
}

// perDay is a rate in bytes a minute, by the day: "3.0 GiB/day".
func perDay(bytesPerMin float64) string { return units.Bytes(24*60*bytesPerMin) + "/day" }

// RateParts are the rate and its interval, with as many decimals as the width of the interval
// warrants: "572.2 MiB/min" and "95% CI 567.8-576.6". They are empty where they are unknown.
func RateParts(v summary.Verdict) (rate, interval string) {
	if v.Rate == nil {
		return "", ""
	}

	if v.RateLow == nil || v.RateHigh == nil {
		return fmt.Sprintf("%.3g", *v.Rate/bytesPerMiB) + rateUnit(v), ""
	}

	low, high := *v.RateLow/bytesPerMiB, *v.RateHigh/bytesPerMiB
	decimals := 4
	if width := high - low; width > 0 {
		decimals = min(max(1-int(math.Floor(math.Log10(width))), 0), 4)
	}

	interval = units.Interval(units.Fixed(low, decimals), units.Fixed(high, decimals))
	return units.Fixed(*v.Rate/bytesPerMiB, decimals) + rateUnit(v), "95% CI " + interval
}

func rateUnit(v summary.Verdict) string {
	if v.InSteps() {
		return " MiB/step"
	}
	return " MiB/min"
}

// Reason is why a verdict has its class, in a few words.
func Reason(v summary.Verdict) string {
	switch v.WhyCode {
	case verdict.ReasonTooShort:
		return "too short"
	case verdict.ReasonPlateauTooYoung:
		return "too short to tell what follows the growth"
	case verdict.ReasonGrowthEnded:
		return "too short to tell whether the growth has ended"
	case verdict.ReasonTooNoisy:
		return "too noisy to tell growth from noise"
	case verdict.ReasonNoGrowth:
		return "no growth"
	case verdict.ReasonTolerated:
		return "grows less than is tolerated"
	case verdict.ReasonNotProven:
		return "residual growth, not proven"
	case verdict.ReasonSlowsDown:
		return "grows, but slows down"
	case verdict.ReasonStillGrowing:
		return "still growing"
	case verdict.ReasonAfterWarmup:
		return "steady growth after the warm-up"
	case verdict.ReasonNoPlateau:
		return "steady growth for longer than a warm-up takes, without a plateau"
	case verdict.ReasonStacksAccumulate:
		return "steady growth, explained by stacks that accumulate"
	case verdict.ReasonAppendOnly:
		return "steady growth, kept by a container that gains entries and loses none"
	case verdict.ReasonWriteOnly:
		return "steady growth, kept by a container to which the program's own code only adds"
	case verdict.ReasonFewRechecks:
		if v.Streak == nil {
			break
		}
		return fmt.Sprintf("steady growth after warm-up in %d of %d checks in a row",
			v.Streak.Found, v.Streak.Needed)
	case verdict.ReasonFragmentation:
		return "freed memory that malloc keeps"
	case verdict.ReasonGarbage:
		return "cycles of objects that wait for the garbage collector"
	case verdict.ReasonPageCache:
		return "only pages of mapped files grow, which the kernel can take back"
	case verdict.ReasonWorkers:
		return "workers that are not traced grow"
	case verdict.ReasonReplaced:
		return "each worker grows until it is replaced"
	case verdict.ReasonOutside:
		return "memory grows outside of the traced processes"
	case verdict.ReasonHalted:
		return "it did not run for most of the time"
	case verdict.ReasonLost:
		return "nothing in the process refers to what grows"
	case verdict.ReasonBounded:
		return "fills memory of a known size"
	case verdict.ReasonOtherProcess:
		o := v.Other
		if o == nil {
			break
		}
		return fmt.Sprintf(
			"PID %d (%s) outside the traced tree grew by %s, the tree by %s "+
				"(trace that one: --pid %d)",
			o.PID, o.Command, units.WholeMiB(o.GrowthBytes), units.WholeMiB(o.TreeGrowthBytes), o.PID,
		)
	}
	return string(v.WhyCode)
}
