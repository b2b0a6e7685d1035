package words

import (
	"cmp"

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
	growth.LossUnwindTables:    "files that stacks cannot be walked through: too many unwind tables",
	growth.LossUnwindMappings:  "mappings that stacks cannot be walked through: too many",
	growth.LossProcesses:       "processes of the tree not followed: too many, or not readable",
}

// Loss is what was lost, why, and how to avoid it, to follow the count: "frees not seen: ...".
func Loss(l growth.Loss) string {
	text := cmp.Or(lossTexts[l.Kind], string(l.Kind))
	if l.Cause != "" {
		text += ": " + l.Cause
	}
	return text
}
