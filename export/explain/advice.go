package explain

import (
	"fmt"
	"math"

	"github.com/allocscope/allocscope/growth/advice"
)

// Advice returns an advice as one line: the numbers that show the cause, then what to try.
func Advice(a advice.Advice) string {
	switch a.About {
	case advice.AboutRetained:
		return retainedText(a)
	case advice.AboutCopies:
		return fmt.Sprintf(
			"%s grew by %d MiB of copy-on-write copies, of %d MiB of the tree: "+
				"a worker that reads a Python object counts a reference, which copies its page "+
				"(pytorch#13246). Keep data sets in numpy or Arrow arrays rather than in lists of "+
				"objects, or start workers by spawn or forkserver",
			counted(a.Workers, "forked worker"),
			wholeMiB(a.Growth),
			wholeMiB(a.Of),
		)
	case advice.AboutRecompiles:
		return fmt.Sprintf("compiled code and its guards grew by %d MiB while %s became %d: "+
			"something is recompiled repeatedly. Mark shapes that change as dynamic "+
			"(torch._dynamo.mark_dynamic), see TORCH_LOGS=recompiles, and set a limit by "+
			"torch._dynamo.config.cache_size_limit (recompile_limit)",
			wholeMiB(a.Growth), counted(a.ModulesBefore, "compiled module"), a.ModulesAfter)
	case advice.AboutPinned:
		return fmt.Sprintf("pinned host memory grew by %d MiB of %d MiB of RSS growth, to %d MiB: "+
			"its pool keeps every size that was ever requested. Pin batches of few sizes, lower "+
			"prefetch_factor, or leave pin_memory off",
			wholeMiB(a.Growth), wholeMiB(a.Of), wholeMiB(a.Bytes))
	case advice.AboutCache:
		return fmt.Sprintf("the container's page cache grew by %d MiB, the tree without files by "+
			"%d MiB: the kernel reclaims page cache before it kills. Look at the working set "+
			"(usage less inactive_file), not at usage", wholeMiB(a.Growth), wholeMiB(a.Of))
	}
	return ""
}

func retainedText(a advice.Advice) string {
	text := fmt.Sprintf("%d MiB of heap are free but resident in %s",
		wholeMiB(a.Bytes), counted(a.Arenas, "arena"))
	if a.Threads > 0 {
		text += " of " + counted(a.Threads, "thread")
	}
	text += fmt.Sprintf(", %.0f%% of RSS", 100*a.RSSShare)
	if a.Growth > 0 {
		text += fmt.Sprintf("; they grew by %d MiB of %d MiB of RSS growth",
			wholeMiB(a.Growth), wholeMiB(a.Of))
	}

	remedy := "malloc_trim(0) now and then, or jemalloc by LD_PRELOAD"
	if a.IsArenaLimit {
		remedy = "MALLOC_ARENA_MAX=2 to 4, " + remedy
	}
	return text + ": try " + remedy
}

func wholeMiB(bytes int64) int64 { return int64(math.Round(float64(bytes) / (1 << 20))) }

// counted is "1 arena", "12 arenas".
func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
