package words

import (
	"cmp"
	"fmt"
	"math"
	"path/filepath"
	"strings"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/growth"
)

var lossTexts = map[growth.LossKind]string{
	growth.LossLiveFull: "allocations not tracked: the live map was full " +
		"(raise --max-live, --interval)",
	growth.LossFaultsFull: "page faults not tracked: too many pages (raise --interval)",
	growth.LossTallyFull: "allocations missing from alloc_objects, alloc_space: " +
		"the tally map was full",
	growth.LossEvents: "events lost: too many at a time " +
		"(mappings come from /proc, without stacks)",
	growth.LossThreadState:   "calls not seen: no kernel memory for the state of a thread",
	growth.LossNoMemory:      "entries missing from alloc_objects, alloc_space: no kernel memory",
	growth.LossOutPointer:    "allocations not tracked: result not readable",
	growth.LossMissedReturn:  "allocations not tracked: return not seen",
	growth.LossMissedFree:    "frees not seen: the address was allocated again",
	growth.LossGPUFull:       "GPU allocations not tracked: too many (raise --interval)",
	growth.LossMappingStacks: "mappings without a stack: walking all stacks would have taken too much",
	growth.LossSiteStacks: "mapping calls took the stack of an earlier call from the same place: " +
		"walking all stacks would have taken too much",
	growth.LossTruncatedStacks: "truncated stacks",
	growth.LossPythonFrames:    "stacks without some Python frames",
	growth.LossUnknownStacks:   "unknown stacks (ring buffer or stack table full)",
	growth.LossForgottenStacks: "stacks that held nothing any more were forgotten: too many " +
		"(what they allocated has no stack)",
	growth.LossIdleHoldings: "entries of stacks that held nothing were left out of older snapshots: " +
		"too many (alloc_objects, alloc_space of the growth count from the start there)",
	growth.LossUnwindTables: "files that stacks cannot be walked through: " +
		"too many unwind tables",
	growth.LossUnwindMappings: "mappings that stacks cannot be walked through: too many",
	growth.LossProcesses:      "processes of the tree not followed: too many, or not readable",
}

// lossRemedies are what to do about losses that take claims away.
var lossRemedies = map[growth.LossKind]string{
	growth.LossLiveFull: "raise --max-live",
}

// countedLoss is a loss with its count and what to do about it, such as "27,292 allocations not
// tracked, ≥1.00 GiB (raise --max-live)".
func countedLoss(l growth.Loss) string {
	what, _, _ := strings.Cut(cmp.Or(lossTexts[l.Kind], string(l.Kind)), ":")
	text := units.Thousands(int64(min(l.Count, math.MaxInt64))) + " " + what
	if l.Bytes > 0 {
		text += ", ≥" + units.Bytes(float64(l.Bytes))
	}

	return text + inParentheses(lossRemedies[l.Kind])
}

// Loss names the lost data, the cause, and how to avoid it, to follow the count: "frees not seen:
// ...".
func Loss(l growth.Loss) string {
	text := cmp.Or(lossTexts[l.Kind], string(l.Kind))
	if l.Cause != "" {
		text += ": " + l.Cause.String()
	}
	if l.PID != 0 {
		text += fmt.Sprintf(", of PID %d", l.PID)
	}
	return text
}

// lossLine is a loss after its count.
func lossLine(l growth.Loss) string {
	return fmt.Sprintf("%d %s", l.Count, units.Name(Loss(l)))
}

// SourceReason is why a source is not attached, or misses something; empty: neither.
func SourceReason(s summary.Source) string {
	switch {
	case s.Gap == growth.GapAllocator && s.Detail == growth.AllocatorGo:
		return goAllocator
	case s.Gap == growth.GapAllocator:
		return fmt.Sprintf("%s has %s within, and no symbols of it: its objects are not seen (keep the "+
			"symbols: no strip)", filepath.Base(s.File), s.Detail)
	case s.Gap != "":
		return SourceGap(s.Gap)
	}

	switch s.Reason {
	case growth.SourceNotMapped:
		return notMapped(s.Name, s.File)
	case growth.SourceNoAllocator:
		return "no malloc symbol in any of its files (a static, stripped program?)"
	case growth.SourceGo:
		return goAllocator
	case growth.Source32Bit:
		return "read " + s.File + ": a 32-bit program"
	case growth.SourceNoShim:
		return "the shim does not see its allocations, or was not loaded"
	case growth.SourceProducer:
		return "malloc is probed instead: " + s.Detail
	case growth.SourceOther:
		return s.Detail
	}
	return string(s.Reason)
}

// goAllocator says why objects of Go code are not seen, and which profile shows them.
const goAllocator = "Go code does not use malloc: Go's own heap profile (net/http/pprof) shows its objects"

// notMapped says that a process has not mapped the library of a source.
func notMapped(source, library string) string {
	switch source {
	case "cuda":
		return "CUDA's driver (libcuda.so.1) is not mapped"
	case "tensor": // any library may have PyTorch's allocator
		return "no library that exports c10::alloc_cpu is mapped"
	}

	return "no library " + library + " is mapped"
}

// SourceGap is the data that a source misses. It is empty where it misses none.
func SourceGap(gap growth.SourceGap) string {
	switch gap {
	case growth.Gap32BitCalls:
		return "system calls of a 32-bit program are not traced: " +
			"its mappings come from /proc, without stacks"
	case growth.GapBlocks:
		return "blocks of torch's allocator are not followed: that takes too much; " +
			"their totals are read now and then"
	case growth.GapBlockBursts:
		return "blocks of torch's allocator are traced in bursts, as all would take too much: " +
			"the bytes of each stack are an estimate"
	}
	return string(gap)
}

// ByProducers is how source heap sees a heap that these files of the process sample themselves.
func ByProducers(files []string) string {
	return "by the otel_memory probes of " + strings.Join(files, ", ")
}

// OverheadChange is a change by the overhead controller, with its cause.
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
			units.ShortSeconds(c.Length), units.ShortSeconds(c.Spacing))
	case growth.OverheadNoBurst:
		return fmt.Sprintf("%s: closed, and checked again for %s each minute or later", openCost(c),
			units.ShortSeconds(c.Length))
	case growth.OverheadWalks:
		return "walking stacks takes " + threadShare(c) + sampledIn(c)
	case growth.OverheadNewStacks:
		return "naming new stacks takes allocscope too much CPU time" + sampledIn(c)
	case growth.OverheadFewWalks:
		return "walking stacks takes little" + sampledIn(c)
	case growth.OverheadFewTensors:
		return "tensor probes take less than half of the budget: open all the time"
	case growth.OverheadManyTensors:
		return "tensor probes take " + callCost(c) + ": open in the bursts of heap alone"
	case growth.OverheadBlockWalks:
		return "blocks on GPUs take " + threadShare(c) + sampledIn(c)
	case growth.OverheadManyBlocks:
		return "blocks on GPUs take " + callCost(c) + ": their totals alone are read from now on"
	case growth.OverheadBlockBursts:
		return fmt.Sprintf("blocks on GPUs take %s: traced for %s of each %s", callCost(c),
			units.ShortSeconds(c.Length), units.ShortSeconds(c.Spacing))
	case growth.OverheadFewBlocks:
		return "blocks on GPUs take little: all are traced again"
	case growth.OverheadSlowSteps:
		return fmt.Sprintf("steps are %s slower by the probes, more than %s: "+
			"half the budget for these",
			boundedPercent(c.Slowdown), units.Percent(c.Limit))
	case growth.OverheadFastSteps:
		return "steps have not been too slow for ten minutes: twice the budget for probes"
	case growth.OverheadFailed:
		return "heap probes disabled: " + c.Error
	}
	return string(c.Reason)
}

// openCost is the cost of a source whose probes would always be open.
func openCost(c growth.OverheadChange) string {
	return c.Source + " probes would take " + callCost(c)
}

func callCost(c growth.OverheadChange) string {
	return threadShare(c) + " (" + units.PerSecond(c.Calls, "calls") + ")"
}

func threadShare(c growth.OverheadChange) string {
	return boundedPercent(c.Share) + " of a thread's time"
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

// TreeChange is an event of the process tree. A reason may follow: "PID 7 is not traced".
func TreeChange(c growth.TreeChange) string {
	switch c.Event {
	case growth.TreeSelected:
		return Selection(c.Selection)
	case growth.TreeTraced:
		return fmt.Sprintf("Tracing PID %d (%s).", c.PID, c.Command)
	case growth.TreeNotTraced:
		return fmt.Sprintf("PID %d is not traced", c.PID)
	case growth.TreeNotFollowed:
		return "children are not followed"
	case growth.TreeExecuted:
		return fmt.Sprintf("PID %d started a new program (%s); earlier data is dropped",
			c.PID, c.Command)
	case growth.TreeExited:
		return fmt.Sprintf("PID %d (%s) exited", c.PID, c.Command)
	}
	return string(c.Event)
}

// Selection is why processes are traced, or are not yet: "PID 7 is a launcher (bash -c ...).
// Tracing its child 8 (python3 train.py, 52.0 MiB)." It is empty where that needs no reason.
func Selection(s growth.Selection) string {
	switch s.Reason {
	case growth.SelectionAsked:
		return fmt.Sprintf("Tracing PID %d (%s).", s.PID, units.Command(s.Traced))
	case growth.SelectionTraced:
		return rootText(s, ". ") + "Tracing " + selectedText(s) + "."
	case growth.SelectionAdded:
		return "Also tracing " + selectedText(s) + "."
	case growth.SelectionTrainers:
		return rootText(s, ". ") +
			"Several processes under it could be the trainer: checking which of them grows."
	case growth.SelectionLarger:
		return rootText(s, ". ") + "A process under it holds more: checking which of them grows."
	case growth.SelectionWaiting:
		return rootText(s, ": ") + "waiting for the program that it starts."
	case growth.SelectionNone:
		return "The process has exited, and nothing under it could be traced."
	}
	return string(s.Reason)
}

// rootText begins a sentence with the process that the user has named, and its role. It is empty
// where that process has exited.
func rootText(s growth.Selection, end string) string {
	switch {
	case s.Root == 0:
		return ""
	case s.RootRole == growth.RoleLauncher:
		return fmt.Sprintf("PID %d is a launcher (%s)%s", s.Root, units.Command(s.Command), end)
	case s.Reason == growth.SelectionTraced:
		return fmt.Sprintf("PID %d (%s) holds less than a process under it that grows%s", s.Root,
			units.Command(s.Command), end)
	}
	return fmt.Sprintf("PID %d is %s%s", s.Root, units.Command(s.Command), end)
}

// selectedText names the processes and their memory.
func selectedText(s growth.Selection) string {
	size := units.Bytes(float64(s.Private))
	text := fmt.Sprintf("%s, which hold %s together", rolesText(s.Role, s.Processes), size)
	if s.Processes == 1 {
		text = fmt.Sprintf("%s %d (%s%s, %s)", relationText(s), s.PID, roleText(s),
			units.Command(s.Traced), size)
	}

	if s.LeftOut > 0 {
		text += fmt.Sprintf(" (%d more are left out)", s.LeftOut)
	}
	return text
}

func relationText(s growth.Selection) string {
	switch s.Root {
	case 0:
		return "PID"
	case s.Parent:
		return "its child"
	}
	return "its descendant"
}

// roleText is the role of the process, unless it is a trainer.
func roleText(s growth.Selection) string {
	switch s.Role {
	case growth.RoleRank:
		return fmt.Sprintf("rank %d: ", s.Rank)
	case growth.RoleTrainer:
		return ""
	}
	return RoleName(s.Role) + ": "
}

// rolesText is a number of processes of a role: "2 worker processes".
func rolesText(role growth.Role, n int) string {
	switch {
	case role == growth.RoleOther && n == 1:
		return "1 other process"
	case role == growth.RoleOther:
		return fmt.Sprintf("%d other processes", n)
	case n == 1:
		return "1 " + RoleName(role)
	case role == growth.RoleWorker:
		return fmt.Sprintf("%d %ses", n, RoleName(role))
	}
	return fmt.Sprintf("%d %ss", n, RoleName(role))
}

// RoleName names a role for people: "DataLoader worker".
func RoleName(role growth.Role) string {
	switch role {
	case growth.RoleCompileWorker:
		return "compile worker"
	case growth.RoleLoaderWorker:
		return "DataLoader worker"
	case growth.RoleWorker:
		return "worker process"
	}
	return string(role)
}
