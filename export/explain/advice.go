package explain

import (
	"fmt"

	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/growth/advice"
)

// Advice returns an advice as one line: the numbers that show the cause, then what to try.
func Advice(a advice.Advice) string {
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
