package flagvalue

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/allocscope/allocscope/cmd/allocscope/cli"
	"github.com/allocscope/allocscope/cmd/allocscope/exit"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth/verdict"
)

// Axis is the axis of the series that is judged.
type Axis struct {
	Unit summary.Axis

	// StepSeconds is the length of a step of the file, whose axis was turned into seconds; 0: the
	// file has times, or the length of a step is unknown.
	StepSeconds float64
}

// Criteria returns the criteria of a judgement on the axis.
func (a Axis) Criteria() verdict.Criteria {
	if a.Unit == summary.AxisSteps {
		return verdict.InSteps()
	}
	return verdict.InSeconds()
}

// Position returns the value of a flag on the axis.
func (a Axis) Position(flag string, p Point) (float64, error) {
	switch {
	case p.timed && a.Unit == summary.AxisSteps:
		return 0, fmt.Errorf(
			"%s %s is a time, and the series is in steps (give steps, or --step-time)", flag,
			p.Text)
	case !p.timed && a.StepSeconds > 0:
		return p.number * a.StepSeconds, nil
	}
	return p.number, nil
}

// Rate returns the value of a flag in bytes per unit of the axis; 0: the flag was not given.
func (a Axis) Rate(flag string, r Rate) (float64, error) {
	switch {
	case r.text == "":
		return 0, nil
	case r.per == 0 && a.Unit == summary.AxisSteps:
		return r.bytes, nil
	case r.per == 0 && a.StepSeconds > 0:
		return r.bytes / a.StepSeconds, nil
	case r.per == 0:
		return 0, fmt.Errorf(
			"%s %s is by step, and the series has no steps (give it by s, min or h)", flag, r.text)
	case a.Unit == summary.AxisSteps:
		return 0, fmt.Errorf(
			"%s %s is by time, and the series is in steps (give it by step, or --step-time)", flag,
			r.text)
	}
	return r.bytes / r.per.Seconds(), nil
}

// FailOn is the verdict that is to be a failure: leak, suspected, or empty.
type FailOn string

// Type implements pflag.Value.
func (f *FailOn) Type() string { return "verdict" }

// String implements pflag.Value.
func (f *FailOn) String() string { return string(*f) }

// Set implements pflag.Value.
func (f *FailOn) Set(text string) error {
	if text != "leak" && text != "suspected" {
		return fmt.Errorf("%q is neither leak nor suspected", text)
	}
	*f = FailOn(text)
	return nil
}

// CompleteFailOn completes --fail-on of a command, whose value is a FailOn.
func CompleteFailOn(command *cobra.Command) {
	cli.CompleteValues(command, "fail-on", "leak", "suspected")
}

// Outcome is a verdict and its subject.
type Outcome struct {
	What  string // "the verdict"
	Class verdict.Class
}

// Check returns an error with its exit status if one of the verdicts is a failure: Found, or
// Inconclusive where none is found and one of them excludes nothing. It names the worst one, the
// first of those that are as bad.
func (f *FailOn) Check(outcomes ...Outcome) error {
	if *f == "" {
		return nil
	}

	var worst, undecided Outcome
	for _, o := range outcomes {
		if o.Class.Severity() > worst.Class.Severity() {
			worst = o
		}
		isWorse := undecided.What == "" || o.Class.Severity() > undecided.Class.Severity()
		if isInconclusive(o.Class) && isWorse {
			undecided = o
		}
	}

	isFailure := worst.Class == verdict.ClassLeak ||
		worst.Class == verdict.ClassSuspected && *f == "suspected"
	switch {
	case isFailure:
		return &exit.Error{Status: exit.Found, Err: fmt.Errorf("%s is %s (--fail-on %s)",
			worst.What, worst.Class, *f)}
	case undecided.What != "":
		return &exit.Error{Status: exit.Inconclusive, Err: fmt.Errorf(
			"%s is %s: inconclusive (--fail-on %s)", undecided.What, undecided.Class, *f)}
	}
	return nil
}

// isInconclusive reports whether a verdict neither proves a leak nor speaks against one: also where
// another process grows than the one that was traced.
func isInconclusive(class verdict.Class) bool {
	switch class {
	case verdict.ClassTooShort, verdict.ClassGrowing, verdict.ClassSuspected,
		verdict.ClassSaturating, verdict.ClassWrongProcess:
		return true
	}
	return false
}
