// Package explain has the sentences for the codes and numbers of growth's judgements: reasons of
// verdicts, and advice. It knows no file format, so both files and screens can use it.
package explain

import (
	"fmt"

	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/growth/verdict"
)

// Reason returns why a verdict has its class, in a few words.
func Reason(v verdict.Verdict) string {
	switch v.Reason {
	case verdict.ReasonTooShort:
		return "too short"
	case verdict.ReasonPlateauTooYoung:
		return "too short to tell what follows the growth"
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
	case verdict.ReasonFewRechecks:
		return fmt.Sprintf("steady growth after warm-up in %d of %d checks in a row",
			v.Streak.Found, v.Streak.Needed)
	case verdict.ReasonFragmentation:
		return "freed memory that malloc keeps"
	case verdict.ReasonPageCache:
		return "only pages of mapped files grow, which the kernel can take back"
	case verdict.ReasonOtherProcess:
		o := v.Other
		return fmt.Sprintf(
			"PID %d (%s) outside the traced tree grew by %s, the tree by %s "+
				"(trace that one: --pid %d)",
			o.PID, o.Command, units.WholeMiB(o.Growth), units.WholeMiB(o.TreeGrowth), o.PID,
		)
	}
	return string(v.Reason)
}
