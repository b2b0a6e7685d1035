package compare

import (
	"cmp"
	"math"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/growth/verdict"
)

// An Outcome is the change of the growth, or of the memory held.
type Outcome string

// The outcomes. The last three are of profiles.
const (
	OutcomeGone     Outcome = "gone"      // it grew and no longer does
	OutcomeSlower   Outcome = "slower"    // it grows less than before
	OutcomeAsBefore Outcome = "as-before" // it grows as before
	OutcomeFaster   Outcome = "faster"    // it grows more than before
	OutcomeNew      Outcome = "new"       // it did not grow, and does now
	OutcomeNoGrowth Outcome = "no-growth" // it grows in neither
	OutcomeUnknown  Outcome = "unknown"   // not decidable
	OutcomeMore     Outcome = "more"      // it holds more
	OutcomeLess     Outcome = "less"      // it holds less
	OutcomeSame     Outcome = "same"      // no change is proven
)

// A rate is how fast the RSS of a process, or its memory on GPUs, grows, by its verdict.
type rate struct {
	estimate
	known, steps bool
	class        verdict.Class
	reason       string
}

// rate is the growth of RSS, or of GPU memory, in bytes by minute or step.
func (t *Trace) rate(sample string, step bool) rate {
	v, _ := t.verdict(sample)
	p := rate{class: v.Class, reason: t.why(sample), steps: step}
	if v.Rate == nil || v.RateLow == nil || v.RateHigh == nil {
		return p
	}

	if !(-maxExact <= *v.RateLow && *v.RateLow <= *v.Rate &&
		*v.Rate <= *v.RateHigh && *v.RateHigh <= maxExact) {
		return p
	}

	p.estimate, p.known = estimate{*v.Rate, *v.RateLow, *v.RateHigh}, true

	if step {
		p.estimate = p.times(1 / t.Summary.StepsPerMin())
	}

	return p
}

func (p rate) grows() bool { return p.low > 0 }

// isShort reports whether the trace was too short for a verdict, or was of the wrong process.
func (p rate) isShort() bool {
	return p.class == verdict.ClassTooShort || p.class == verdict.ClassWrongProcess || !p.known
}

func (p rate) isFlat() bool {
	return p.class == verdict.ClassPlateau || p.class == verdict.ClassSpikyPlateau
}

// text is the rate with its interval.
func (p rate) text() string {
	value, low, high := math.Round(p.value), math.Round(p.low), math.Round(p.high)
	v := summary.Verdict{Axis: summary.AxisSeconds, Rate: &value, RateLow: &low, RateHigh: &high}
	if p.steps {
		v.Axis = summary.AxisSteps
	}

	return words.Rate(v)
}

const (
	// minChangeShare is the share of the larger rate by which two runs of the same program may
	// differ, whatever their intervals.
	minChangeShare = 0.05
	// maxRestShare is the share of the earlier growth that may be left where it counts as gone.
	maxRestShare = 0.1
)

// judge compares the growth rates.
func (r *Result) judge(before, after rate) {
	unknown := words.Inconclusive(before.inconclusive(), after.inconclusive())
	if !before.known || !after.known {
		r.setOutcome(OutcomeUnknown, unknown)
		return
	}

	d := row{before: before.estimate, after: after.estimate, change: after.minus(before.estimate)}
	r.RSS = new(d.difference())

	outcome := outcomeOf(before, after, d.change)
	text := words.BeforeAfter(before.text(), after.text())
	switch {
	case outcome == OutcomeUnknown && (before.isShort() || after.isShort()):
		text = unknown + ": " + text
	case outcome == OutcomeUnknown:
		text = words.TooWide + ": " + text
	case outcome == OutcomeSlower && after.isShort():
		text += ", " + words.RestUnknown
	case outcome == OutcomeSlower && !after.grows():
		text += ": " + words.Rest(after.high, r.Per())
	case outcome == OutcomeAsBefore:
		change := rate{estimate: d.change, steps: before.steps}
		text += ", a change of " + change.text()
	}

	r.setOutcome(outcome, text)

	if outcome == OutcomeGone &&
		(before.class == verdict.ClassLeak || before.class == verdict.ClassSuspected) {
		r.Name = "THE LEAK IS GONE"
	}
}

func outcomeOf(before, after rate, change estimate) Outcome {
	same := change.low <= 0 && change.high >= 0
	less := change.high < 0
	isLittle := after.high < maxRestShare*before.value && !after.isShort()
	switch {
	case !before.grows() && !after.grows() && (before.isShort() || after.isShort()):
		return OutcomeUnknown
	case !before.grows() && !after.grows():
		return OutcomeNoGrowth
	case before.grows() && less && isLittle && (!after.grows() || after.isFlat()):
		return OutcomeGone
	case before.grows() && after.grows() &&
		(same || math.Abs(change.value) < minChangeShare*max(before.value, after.value)):
		return OutcomeAsBefore
	case same:
		return OutcomeUnknown
	case before.grows() && less:
		return OutcomeSlower
	case before.grows():
		return OutcomeFaster
	}

	return OutcomeNew
}

// inconclusive is why the rate is not conclusive; empty: it is.
func (p rate) inconclusive() string {
	if !p.isShort() {
		return ""
	}
	return cmp.Or(units.Name(p.reason), "no rate")
}

var outcomeNames = map[Outcome]string{
	OutcomeGone: "THE GROWTH IS GONE", OutcomeSlower: "GROWS SLOWER",
	OutcomeAsBefore: "GROWS AS BEFORE", OutcomeFaster: "GROWS FASTER",
	OutcomeNew: "GROWS NOW", OutcomeNoGrowth: "GROWS IN NEITHER", OutcomeUnknown: "CANNOT TELL",
	OutcomeMore: "HOLDS MORE", OutcomeLess: "HOLDS LESS", OutcomeSame: "HOLDS THE SAME",
}

func (r *Result) setOutcome(outcome Outcome, sentence string) {
	r.Outcome, r.Name, r.Sentence = outcome, outcomeNames[outcome], sentence
}

// judgeAmounts compares the amounts of two profiles.
func (r *Result) judgeAmounts() {
	outcome := OutcomeSame
	if r.Total.State != StateSame {
		outcome = OutcomeMore
		if r.Total.Change.Bytes < 0 {
			outcome = OutcomeLess
		}
	}

	change := r.Total.Change
	text := words.BeforeAfter(units.Bytes(float64(r.Total.Before.Bytes)),
		units.Bytes(float64(r.Total.After.Bytes))) + ": " + units.Signed(float64(change.Bytes))
	if change.Low < change.High {
		text += " (95% CI " + change.Interval() + ")"
	}

	r.setOutcome(outcome, text)
}

// Interval is the interval for people.
func (e Estimate) Interval() string {
	if e.Low == e.High {
		return "exact"
	}
	return units.Interval(units.Signed(float64(e.Low)), units.Signed(float64(e.High)))
}
