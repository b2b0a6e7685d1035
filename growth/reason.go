package growth

import "fmt"

// A Reason is why a verdict has its class.
type Reason string

// The reasons.
const (
	ReasonTooShort         Reason = "too-short"         // too few samples
	ReasonPlateauTooYoung  Reason = "plateau-too-young" // shorter than growth before it asks for
	ReasonTooNoisy         Reason = "too-noisy"         // the bound allows for growth of note
	ReasonNoGrowth         Reason = "no-growth"
	ReasonTolerated        Reason = "tolerated"  // grows less than Setting.Tolerable
	ReasonNotProven        Reason = "not-proven" // residual growth
	ReasonSlowsDown        Reason = "slows-down" // grows, but slows down
	ReasonStillGrowing     Reason = "still-growing"
	ReasonAfterWarmup      Reason = "after-warm-up"     // steady growth after warm-up
	ReasonNoPlateau        Reason = "no-plateau"        // steady growth from the start
	ReasonStacksAccumulate Reason = "stacks-accumulate" // steady growth, explained by stacks
	ReasonFewRechecks      Reason = "few-rechecks"      // too few checks in a row found a leak
	ReasonOtherProcess     Reason = "other-process"     // Verdict.Other grows
)

// Explain returns the reason of a verdict in a few words.
func Explain(v Verdict) string {
	switch v.Reason {
	case ReasonTooShort:
		return "too short"
	case ReasonPlateauTooYoung:
		return "plateau too young"
	case ReasonTooNoisy:
		return "too noisy to tell yet"
	case ReasonNoGrowth:
		return "no growth"
	case ReasonTolerated:
		return "grows less than is tolerated"
	case ReasonNotProven:
		return "residual growth, not proven"
	case ReasonSlowsDown:
		return "grows, but slows down"
	case ReasonStillGrowing:
		return "still growing"
	case ReasonAfterWarmup:
		return "steady growth after warm-up"
	case ReasonNoPlateau:
		return "steady growth, no plateau ever seen"
	case ReasonStacksAccumulate:
		return "steady growth, explained by stacks that accumulate"
	case ReasonOtherProcess:
		o := v.Other
		return fmt.Sprintf("PID %d (%s) outside the traced tree grew by %d MiB, the tree by %d MiB "+
			"(trace that one: --pid %d)", o.PID, o.Command, o.Growth>>20, o.TreeGrowth>>20, o.PID)
	}
	return string(v.Reason)
}
