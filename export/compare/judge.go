package compare

import (
	"fmt"
	"math"

	"github.com/allocscope/allocscope/export"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/growth"
)

// An Outcome says what became of the growth, or of what is held.
type Outcome string

// The outcomes. The last three are of profiles.
const (
	OutcomeGone     Outcome = "gone"      // it grew, and does no more
	OutcomeSlower   Outcome = "slower"    // it grows less than before
	OutcomeAsBefore Outcome = "as-before" // it grows as before
	OutcomeFaster   Outcome = "faster"    // it grows more than before
	OutcomeNew      Outcome = "new"       // it did not grow, and does now
	OutcomeNoGrowth Outcome = "no-growth" // it grows in neither
	OutcomeUnknown  Outcome = "unknown"   // it cannot be told
	OutcomeMore     Outcome = "more"      // it holds more
	OutcomeLess     Outcome = "less"      // it holds less
	OutcomeSame     Outcome = "same"      // no change is proven
)

// A pace is how fast the resident memory of a process, or its memory on GPUs, grows, by its verdict.
type pace struct {
	estimate
	known, steps bool
	class        growth.Class
	why          string
}

// pace of the resident memory, or of that on GPUs, in bytes by minute or step.
func (t *Trace) pace(sample string, step bool) pace {
	v := t.verdict(sample)
	p := pace{class: v.Class, why: v.Why, steps: step}
	if v.RateBytesPerMin == nil || v.RateLow == nil || v.RateHigh == nil {
		return p
	}
	if !(-largest <= *v.RateLow && *v.RateLow <= *v.RateBytesPerMin && *v.RateBytesPerMin <= *v.RateHigh && *v.RateHigh <= largest) {
		return p
	}
	p.estimate, p.known = estimate{*v.RateBytesPerMin, *v.RateLow, *v.RateHigh}, true
	if step {
		p.estimate = p.times(1 / t.stepsPerMin())
	}
	return p
}

func (p pace) grows() bool { return p.low > 0 }

// isShort tells that the trace was too short for a verdict, or watched the wrong process.
func (p pace) isShort() bool {
	return p.class == growth.ClassTooShort || p.class == growth.ClassWrongProcess || !p.known
}

func (p pace) isFlat() bool {
	return p.class == growth.ClassPlateau || p.class == growth.ClassSpikyPlateau
}

// text is the pace with its interval.
func (p pace) text() string {
	value, low, high := math.Round(p.value), math.Round(p.low), math.Round(p.high)
	v := export.Verdict{RateLow: &low, RateHigh: &high}
	if p.steps {
		v.RateBytesPerStep, v.WatchLongerSteps = &value, new(float64)
	} else {
		v.RateBytesPerMin = &value
	}
	return words.Rate(v)
}

const (
	// alike is the part of the larger pace by which two runs of the same program may differ, whatever their intervals.
	alike = 0.05
	// traceOf is the part of the growth before that may be left where it is said to be gone.
	traceOf = 0.1
)

// judge says what became of the growth.
func (r *Result) judge(before, after pace) {
	if !before.known || !after.known {
		r.say(OutcomeUnknown, unknownText(before, after))
		return
	}
	d := row{before: before.estimate, after: after.estimate, change: after.minus(before.estimate)}
	difference := d.difference()
	r.RSS = &difference
	outcome := outcomeOf(before, after, d.change)
	text := fmt.Sprintf("%s before, %s after", before.text(), after.text())
	switch {
	case outcome == OutcomeUnknown && (before.isShort() || after.isShort()):
		text = unknownText(before, after) + ": " + text
	case outcome == OutcomeUnknown:
		text = "the intervals are too wide, watch longer: " + text
	case outcome == OutcomeSlower && after.isShort():
		text += ", which was too short to tell whether anything is left"
	case outcome == OutcomeSlower && !after.grows():
		text += fmt.Sprintf(": up to %s/%s may be left", words.Bytes(after.high), r.Unit[len("bytes/"):])
	case outcome == OutcomeAsBefore:
		change := pace{estimate: d.change, steps: before.steps}
		text += ", a change of " + change.text()
	}
	r.say(outcome, text)
	if outcome == OutcomeGone && (before.class == growth.ClassLeak || before.class == growth.ClassSuspected) {
		r.Name = "THE LEAK IS GONE"
	}
}

func outcomeOf(before, after pace, change estimate) Outcome {
	same := change.low <= 0 && change.high >= 0
	less := change.high < 0
	isLittle := after.high < traceOf*before.value && !after.isShort()
	switch {
	case !before.grows() && !after.grows() && (before.isShort() || after.isShort()):
		return OutcomeUnknown
	case !before.grows() && !after.grows():
		return OutcomeNoGrowth
	case before.grows() && less && isLittle && (!after.grows() || after.isFlat()):
		return OutcomeGone
	case before.grows() && after.grows() && (same || math.Abs(change.value) < alike*max(before.value, after.value)):
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

func unknownText(before, after pace) string {
	switch {
	case before.isShort() && after.isShort():
		return fmt.Sprintf("before (%s) and after (%s) say too little", before.reason(), after.reason())
	case before.isShort():
		return "before says too little (" + before.reason() + ")"
	}
	return "after says too little (" + after.reason() + ")"
}

func (p pace) reason() string {
	if p.why == "" {
		return "it has no rate"
	}
	return export.Printable(p.why)
}

var outcomeNames = map[Outcome]string{
	OutcomeGone: "THE GROWTH IS GONE", OutcomeSlower: "GROWS SLOWER", OutcomeAsBefore: "GROWS AS BEFORE", OutcomeFaster: "GROWS FASTER",
	OutcomeNew: "GROWS NOW", OutcomeNoGrowth: "GROWS IN NEITHER", OutcomeUnknown: "CANNOT TELL",
	OutcomeMore: "HOLDS MORE", OutcomeLess: "HOLDS LESS", OutcomeSame: "HOLDS THE SAME",
}

func (r *Result) say(outcome Outcome, sentence string) {
	r.Outcome, r.Name, r.Sentence = outcome, outcomeNames[outcome], sentence
}

// judgeAmounts says whether the second holds more.
func (r *Result) judgeAmounts() {
	outcome := OutcomeSame
	if r.Total.State != StateSame {
		outcome = OutcomeMore
		if r.Total.Change.Bytes < 0 {
			outcome = OutcomeLess
		}
	}
	change := r.Total.Change
	text := fmt.Sprintf("%s before, %s after: %s", words.Bytes(float64(r.Total.Before.Bytes)), words.Bytes(float64(r.Total.After.Bytes)), words.Signed(float64(change.Bytes)))
	if change.Low < change.High {
		text += " (95 %: " + change.Interval() + ")"
	}
	r.say(outcome, text)
}

// Interval is the interval for people.
func (e Estimate) Interval() string {
	if e.Low == e.High {
		return "exact"
	}
	return words.Signed(float64(e.Low)) + " to " + words.Signed(float64(e.High))
}
