package words

import (
	"cmp"
	"fmt"

	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/growth"
)

var lossTexts = map[growth.LossKind]string{
	growth.LossLiveFull: "allocations not tracked: the live map was full " +
		"(raise --max-live, --interval)",
	growth.LossFaultsFull: "page faults not tracked: too many pages (raise --interval)",
	growth.LossTallyFull: "allocations missing from alloc_objects, alloc_space: " +
		"the tally map was full",
	growth.LossEvents: "events lost: ring buffer full " +
		"(mappings come from /proc, without stacks)",
	growth.LossThreadState:     "calls not seen: no kernel memory for the state of a thread",
	growth.LossNoMemory:        "entries missing from alloc_objects, alloc_space: no kernel memory",
	growth.LossOutPointer:      "allocations not tracked: result not readable",
	growth.LossMissedReturn:    "allocations not tracked: return not seen",
	growth.LossMissedFree:      "frees not seen: the address was allocated again",
	growth.LossGPUFull:         "GPU allocations not tracked: too many (raise --interval)",
	growth.LossTruncatedStacks: "truncated stacks",
	growth.LossPythonFrames:    "stacks without some Python frames",
	growth.LossUnknownStacks:   "unknown stacks (ring buffer or stack table full)",
	growth.LossUnwindTables: "files that stacks cannot be walked through: " +
		"too many unwind tables",
	growth.LossUnwindMappings: "mappings that stacks cannot be walked through: too many",
	growth.LossProcesses:      "processes of the tree not followed: too many, or not readable",
}

// Loss is what was lost, why, and how to avoid it, to follow the count: "frees not seen: ...".
func Loss(l growth.Loss) string {
	text := cmp.Or(lossTexts[l.Kind], string(l.Kind))
	if l.Cause != "" {
		text += ": " + l.Cause
	}
	return text
}

// OverheadChange is why the overhead controller changed something, and what it has changed.
func OverheadChange(c growth.OverheadChange) string {
	switch c.Reason {
	case growth.OverheadStarted:
		if c.Steps > 0 {
			return units.Plural(c.Steps, "step", "steps") + " timed: every call is probed"
		}
		return "every call is probed"
	case growth.OverheadCalm:
		return openCost(c) + ": every call is probed again"
	case growth.OverheadExpensive:
		return fmt.Sprintf("%s: sampled in bursts of %s every %s", openCost(c),
			units.ShortSeconds(c.Length.Seconds()), units.ShortSeconds(c.Spacing.Seconds()))
	case growth.OverheadNoBurst:
		return fmt.Sprintf("%s: closed, and checked again for %s each minute or later", openCost(c),
			units.ShortSeconds(c.Length.Seconds()))
	case growth.OverheadWalks:
		return "walking stacks takes " + tracedShare(c) + sampledIn(c)
	case growth.OverheadFewWalks:
		return "walking stacks takes little" + sampledIn(c)
	case growth.OverheadFewTensors:
		return "tensor probes take less than half of the budget: open all the time"
	case growth.OverheadManyTensors:
		return "tensor probes take " + callCost(c) + ": open in the bursts of heap alone"
	case growth.OverheadBlockWalks:
		return "blocks on GPUs take " + tracedShare(c) + sampledIn(c)
	case growth.OverheadManyBlocks:
		return "blocks on GPUs take " + callCost(c) + ": their totals alone are read from now on"
	case growth.OverheadSlowSteps:
		return fmt.Sprintf("steps are %s slower by the probes, more than %s: "+
			"half the budget for these",
			boundedPercent(c.Slowdown), units.Percent(c.Limit))
	case growth.OverheadFastSteps:
		return "steps have not been too slow for ten minutes: twice the budget for probes"
	case growth.OverheadFailed:
		return fmt.Sprintf("heap probes disabled: %v", c.Err)
	}
	return string(c.Reason)
}

// openCost is what the probes of a source would take if they were always open.
func openCost(c growth.OverheadChange) string {
	return c.Source + " probes would take " + callCost(c)
}

func callCost(c growth.OverheadChange) string {
	return tracedShare(c) + " (" + units.PerSecond(c.Calls, "calls") + ")"
}

func tracedShare(c growth.OverheadChange) string {
	return boundedPercent(c.CPUShare) + " of the traced CPU time"
}

func sampledIn(c growth.OverheadChange) string {
	return ": one sample in " + units.Bytes(float64(c.Interval))
}

// boundedPercent is a share of 1. Shares above 10 are all the same to a reader.
func boundedPercent(share float64) string {
	if share > 10 {
		return "more than 1000%"
	}
	return units.Percent(share)
}
