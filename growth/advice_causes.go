package growth

import (
	"fmt"
	"regexp"
	"strings"
)

// retained: the allocator keeps memory that the program has freed. Only glibc's malloc has arenas that are known.
func (e *Evidence) retained(p *Resident) string {
	if p.Arenas == 0 || p.RSS <= 0 {
		return ""
	}
	free := e.sum(func(r *LedgerRow) bool { return r.PID == p.PID && r.Kind == KindRetained })
	growth := e.growth(p)
	grew := free.grewBy(matters) && growth > 0 && float64(free.delta()) >= partOfGrowth*float64(growth)
	idle := p.Arenas >= manyArenas && free.end >= idleMatters && float64(free.end) >= partOfRSS*float64(p.RSS)
	if !grew && !idle {
		return ""
	}
	text := fmt.Sprintf("%d MiB of heap are free but resident in %s", wholeMiB(free.end), counted(p.Arenas, "arena"))
	if p.Threads > 0 {
		text += " of " + counted(int(p.Threads), "thread")
	}
	text += fmt.Sprintf(", %.0f %% of RSS", 100*float64(free.end)/float64(p.RSS))
	if grew {
		text += fmt.Sprintf("; they grew by %d MiB of the %d MiB that RSS did", wholeMiB(free.delta()), wholeMiB(growth))
	}
	cure := "malloc_trim(0) now and then, or jemalloc by LD_PRELOAD"
	if p.Arenas >= manyArenas {
		cure = "MALLOC_ARENA_MAX=2 to 4, " + cure
	}
	return text + ": try " + cure
}

// copies: forked workers write to what they have inherited, were it only by counting references, and most of what the tree
// gains is their copies.
func (e *Evidence) copies() string {
	forked := make(map[int]bool)
	for _, residents := range [][]Resident{e.Start, e.End} {
		for _, p := range residents {
			forked[p.PID] = forked[p.PID] || p.Forked
		}
	}
	workers := make(map[int]bool)
	copied := e.sum(func(r *LedgerRow) bool {
		if r.PID == 0 || r.Kind != KindCOW || !forked[r.PID] {
			return false
		}
		if r.End > 0 {
			workers[r.PID] = true
		}
		return true
	})
	all := e.sum(func(r *LedgerRow) bool { return r.PID == 0 && r.Kind != KindSwapped })
	if !copied.grewBy(matters) || all.delta() <= 0 || float64(copied.delta()) <= most*float64(all.delta()) {
		return ""
	}
	return fmt.Sprintf("%s grew by %d MiB of copies of inherited memory, of the %d MiB that the tree did: a worker that touches a "+
		"Python object copies its page (pytorch#13246). Keep data sets in numpy or Arrow arrays rather than in lists of objects, "+
		"or start workers by spawn or forkserver", counted(len(workers), "forked worker"), wholeMiB(copied.delta()), wholeMiB(all.delta()))
}

// Files into which compilers write the code of graphs and kernels.
var compiledFile = regexp.MustCompile(`/(torchinductor_[^/]+|\.triton/cache)/`)

// compilerOwner is whose memory compiled graphs are, with their guards.
var compilerOwner = regexp.MustCompile(`^(torch\._)?(inductor|dynamo)(-|$)`)

// recompiled: what the compiler holds grows, and with it the number of modules that it has made.
func (e *Evidence) recompiled(p *Resident) string {
	held := e.sum(func(r *LedgerRow) bool { return r.PID == p.PID && compilerOwner.MatchString(e.Owners.Of(r.Stack)) })
	before, after := make(map[string]bool), make(map[string]bool)
	for i := range e.Ledger {
		r := &e.Ledger[i]
		path, ok := filePath(r)
		if r.PID != p.PID || !ok || !compiledFile.MatchString(path) {
			continue
		}
		if r.Start > 0 {
			before[path] = true
		}
		if r.End > 0 {
			after[path] = true
		}
	}
	if !held.grewBy(compiledMatters) || len(after)-len(before) < recompiles {
		return ""
	}
	return fmt.Sprintf("compiled code and its guards grew by %d MiB while %s became %d: something is compiled again and again. "+
		"Mark what changes in shape dynamic (torch._dynamo.mark_dynamic), see TORCH_LOGS=recompiles, and limit it by "+
		"torch._dynamo.config.cache_size_limit (recompile_limit)", wholeMiB(held.delta()), counted(len(before), "compiled module"), len(after))
}

// filePath of a row of kind file.
func filePath(r *LedgerRow) (path string, ok bool) {
	path, ok = strings.CutPrefix(r.Stack.Root, "[file: ")
	return strings.TrimSuffix(path, "]"), ok && r.Kind == KindFile
}

// pinnedOwner is whose memory page-locked buffers for copies to a GPU are.
var pinnedOwner = regexp.MustCompile(`^pinned(-|$)`)

// pinned: the pool of page-locked memory grows.
func (e *Evidence) pinned(p *Resident) string {
	held := e.sum(func(r *LedgerRow) bool {
		return r.PID == p.PID && (r.Kind == KindPinned || pinnedOwner.MatchString(e.Owners.Of(r.Stack)))
	})
	growth := e.growth(p)
	if !held.grewBy(matters) || growth <= 0 || float64(held.delta()) < partOfGrowth*float64(growth) {
		return ""
	}
	return fmt.Sprintf("pinned host memory grew by %d MiB of the %d MiB that RSS did, to %d MiB: its pool keeps every size that was "+
		"ever asked for. Pin batches of few sizes, lower prefetch_factor, or leave pin_memory off", wholeMiB(held.delta()), wholeMiB(growth), wholeMiB(held.end))
}

// cache: the container is charged for more page cache, while the RSS of the tree stays.
func (e *Evidence) cache() string {
	if e.CacheStart == Unknown || e.CacheEnd == Unknown || len(e.Start) == 0 || len(e.End) == 0 {
		return ""
	}
	cached := e.CacheEnd - e.CacheStart
	all := e.sum(func(r *LedgerRow) bool { return r.PID == 0 && r.Kind != KindFile && r.Kind != KindSwapped })
	if cached < cacheMatters || all.delta() > cached/cacheBeside {
		return ""
	}
	return fmt.Sprintf("the page cache that the container is charged for grew by %d MiB, what the tree holds besides files by %d MiB: the "+
		"kernel takes cache back before it kills. Look at the working set (usage less inactive_file), not at usage", wholeMiB(cached), wholeMiB(all.delta()))
}
