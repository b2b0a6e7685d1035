package words

import (
	"fmt"
	"math"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/growth/advice"
	"github.com/allocscope/allocscope/growth/diagnosis"
)

// A causeText has the texts about a cause of growth.
type causeText struct {
	// what: the growing memory, for a result. %s is the component.
	what string
	// long completes "97% of the growth is".
	long string
	// step is the remedy. docs/causes.md has the steps as a table.
	step string
}

// causes have the texts of all causes but Undecided, whose sentences Diagnosis has. TestCauses fails
// where one is missing.
var causes = [diagnosis.NumCauses]causeText{
	diagnosis.HeapLeak: {
		what: "CPU heap memory that %s allocates and has not freed",
		long: "allocated by stacks that keep what they allocate",
		step: "find the list, dict or cache that keeps what that line allocates",
	},
	diagnosis.PythonObjects: {
		what: "small Python objects that are kept",
		long: "small Python objects, in pymalloc's arenas",
		step: "find the list, dict or cache that keeps these objects",
	},
	diagnosis.Tensors: {
		what: "CPU tensors that are kept",
		long: "the storages of CPU tensors, as censuses of Python's objects count them",
		step: "find the list, dict or hook that keeps these tensors",
	},
	diagnosis.Fragmentation: {
		what: "malloc keeps memory that the program has freed",
		long: "freed memory that malloc keeps",
		step: "restart it with MALLOC_ARENA_MAX=2 in its environment",
	},
	diagnosis.MmapGrowth: {
		what: "memory that is mapped besides malloc, by %s",
		long: "private memory that was mapped besides malloc",
		step: "find what maps this memory and does not unmap it: files, buffers, threads",
	},
	diagnosis.OlderMemory: {
		what: "memory from before the trace, touched for the first time",
		long: "older memory, touched now for the first time",
		step: "make what fills it smaller, or raise the memory limit",
	},
	diagnosis.SharedMemory: {
		what: "shared memory, such as /dev/shm and memfd",
		long: "shared memory, such as /dev/shm and memfd",
		step: "copy tensors that come from workers before you keep them; clear /dev/shm",
	},
	diagnosis.CopyOnWrite: {
		what: "forked workers copy pages that they share with their parent",
		long: "copies of inherited pages that forked workers wrote to",
		step: "keep data sets in numpy or Arrow arrays, or start workers by spawn",
	},
	diagnosis.PageCache: {
		what: "pages of mapped files",
		long: "pages of mapped files, which the kernel can take back",
		step: "nothing to fix: the kernel takes these pages back when it needs them",
	},
	diagnosis.Pinned: {
		what: "host memory that is pinned for copies to a GPU",
		long: "pinned for copies to a GPU",
		step: "pin batches of few sizes, lower prefetch_factor, or leave pin_memory off",
	},
}

// Diagnosis is a part of the growth in a sentence: "fragmentation: 97% of the growth is freed
// memory that malloc keeps (high confidence)".
func Diagnosis(d summary.Diagnosis) string {
	share := units.WholePercent(math.Abs(d.Share)) + " of the growth"
	if d.Cause == diagnosis.Undecided {
		if d.Bytes < 0 {
			return "undecided: other memory shrank, by " + share
		}
		return "undecided: the cause of " + share + " is not known"
	}

	how := ""
	if d.Walked {
		how = ", by walking malloc's heaps near the baseline and near the end"
	}
	return fmt.Sprintf("%s: %s is %s%s (%s confidence)", d.Cause, share, causes[d.Cause].long, how,
		d.Confidence)
}

// minUndecided is the share of the growth without a cause that is worth a line.
const minUndecided = 0.02

// Diagnoses are the parts of the growth of a trace, a line each. It names the tree.
func Diagnoses(s *summary.Summary) []string {
	var lines []string
	for _, d := range s.Diagnoses {
		if d.Cause == diagnosis.Undecided && math.Abs(d.Share) < minUndecided {
			continue
		}
		text := Diagnosis(d)
		if d.Process == 0 {
			text = "whole tree: " + text
		}
		lines = append(lines, text)
	}

	return lines
}

// Advice is the advice of a trace, a line each. It names the process unless that is the main one.
func Advice(s *summary.Summary) []string {
	var lines []string
	for _, a := range s.Advice {
		text := adviceText(a)
		if a.PID != 0 && a.PID != s.Process.PID {
			text = fmt.Sprintf("PID %d: %s", a.PID, text)
		}
		lines = append(lines, text)
	}

	return lines
}

// adviceText is an advice in one line: the numbers that show the cause, then what to try.
func adviceText(a advice.Advice) string {
	switch a.About {
	case advice.AboutRetained:
		return retainedText(a)
	case advice.AboutCopies:
		return fmt.Sprintf(
			"%s grew by %s of copy-on-write copies, of %s of the tree: "+
				"a worker that reads a Python object counts a reference, which copies its page "+
				"(pytorch#13246). Keep data sets in numpy or Arrow arrays rather than in lists of "+
				"objects, or start workers by spawn or forkserver",
			units.Plural(a.Workers, "forked worker", "forked workers"),
			units.WholeMiB(a.Growth),
			units.WholeMiB(a.Of),
		)
	case advice.AboutRecompiles:
		return fmt.Sprintf("compiled code and its guards grew by %s while %s became %d: "+
			"something is recompiled repeatedly. Mark shapes that change as dynamic "+
			"(torch._dynamo.mark_dynamic), see TORCH_LOGS=recompiles, and set a limit by "+
			"torch._dynamo.config.cache_size_limit (recompile_limit)",
			units.WholeMiB(a.Growth),
			units.Plural(a.ModulesBefore, "compiled module", "compiled modules"),
			a.ModulesAfter)
	case advice.AboutPinned:
		return fmt.Sprintf("pinned host memory grew by %s of %s of RSS growth, to %s: "+
			"its pool keeps every size that was ever requested. Pin batches of few sizes, lower "+
			"prefetch_factor, or leave pin_memory off",
			units.WholeMiB(a.Growth), units.WholeMiB(a.Of), units.WholeMiB(a.Bytes))
	case advice.AboutCache:
		return fmt.Sprintf("the container's page cache grew by %s, the tree without files by "+
			"%s: the kernel reclaims page cache before it kills. Look at the working set "+
			"(usage less inactive_file), not at usage",
			units.WholeMiB(a.Growth), units.WholeMiB(a.Of))
	}
	return ""
}

func retainedText(a advice.Advice) string {
	text := fmt.Sprintf("%s of heap are free but resident in %s",
		units.WholeMiB(a.Bytes), units.Plural(a.Arenas, "arena", "arenas"))
	if a.Threads > 0 {
		text += " of " + units.Plural(a.Threads, "thread", "threads")
	}
	text += ", " + units.WholePercent(a.RSSShare) + " of RSS"
	if a.Growth > 0 {
		text += fmt.Sprintf("; they grew by %s of %s of RSS growth",
			units.WholeMiB(a.Growth), units.WholeMiB(a.Of))
	}

	remedy := "malloc_trim(0) now and then, or jemalloc by LD_PRELOAD"
	if a.IsArenaLimit {
		remedy = "MALLOC_ARENA_MAX=2 to 4, " + remedy
	}
	return text + ": try " + remedy
}
