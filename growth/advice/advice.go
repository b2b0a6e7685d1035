// Package advice finds causes of growth for which there is a known remedy, with the numbers that
// show them. export/words has the sentences.
package advice

import (
	"math"
	"regexp"
	"strings"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/breakdown"
	"github.com/allocscope/allocscope/growth/component"
	"github.com/allocscope/allocscope/growth/diagnosis"
)

// A Cause of growth.
type Cause string

// The causes of growth that are known.
const (
	AboutRetained   Cause = "fragmentation" // the allocator keeps freed memory
	AboutCopies     Cause = "copy-on-write" // forked workers write to inherited pages
	AboutRecompiles Cause = "recompilation" // graphs are compiled repeatedly
	AboutPinned     Cause = "pinned-memory" // the pool of page-locked memory grows
	AboutCache      Cause = "page-cache"    // the container is charged for more page cache
)

// An Advice is a cause of growth with its numbers. Numbers that do not belong to the cause are 0,
// and absent in JSON. Sizes are in bytes, and growth is over the window.
type Advice struct {
	About Cause `json:"about"`
	// PID of the process; absent: the tree.
	PID int `json:"pid,omitempty"`
	// Bytes at the end: free in the allocator, or pinned.
	Bytes int64 `json:"bytes,omitempty"`
	// Growth of free memory (absent where it does not matter), copies, compiled code, pinned memory
	// or page cache.
	Growth int64 `json:"growth_bytes,omitempty"`
	// Of is the growth of which Growth is a part, or beside which it is: the growth of the
	// process's RSS (free, pinned) or of the tree's RSS (copies; page cache: without files).
	Of int64 `json:"of_bytes,omitempty"`
	// RSSShare of the free memory, 0 to 1.
	RSSShare float64 `json:"rss_share,omitempty"`
	// Arenas of glibc's malloc, and Threads of the process; absent where unknown.
	Arenas  int `json:"arenas,omitempty"`
	Threads int `json:"threads,omitempty"`
	// IsArenaLimit: a limit to the number of arenas helps.
	IsArenaLimit bool `json:"arena_limit,omitempty"`
	// Workers that hold the copies.
	Workers int `json:"workers,omitempty"`
	// ModulesBefore and ModulesAfter are the numbers of compiled modules at the ends.
	ModulesBefore int `json:"modules_before,omitempty"`
	ModulesAfter  int `json:"modules_after,omitempty"`
}

// Evidence is the numbers of a window that advice is based on.
type Evidence struct {
	// Breakdown of the RSS over the window.
	Breakdown []breakdown.Row
	// Start and End are Snapshot.Residents at its ends.
	Start, End []growth.Resident
	Components *component.Rules
	// Walked is the fragmentation that walks of malloc's heaps have found, by PID.
	Walked map[int]diagnosis.Diagnosis
	// CacheStart and CacheEnd are the page cache of files charged to the container at the ends, in
	// bytes; Unknown where no cgroup has a limit.
	CacheStart, CacheEnd int64
}

const (
	// minGrowthBytes below which changing a program does not pay: the size of one thread's arena.
	minGrowthBytes = 64 << 20
	// minShareOfGrowth of the RSS that pays.
	minShareOfGrowth = 0.1
	// minFreeShare of the RSS in the allocator is more than a program needs in reserve: malloc
	// trims the top of an arena by itself. Below minFreeBytes it does no harm.
	minFreeShare = 0.25
	minFreeBytes = 16 << 20
	// minArenas for which a limit to their number changes something.
	minArenas = 4
	// minCopiesShare of the tree's growth.
	minCopiesShare = 0.5
	// minCompiledBytes of growth: a compiled graph with its guards takes some MiB.
	minCompiledBytes = 16 << 20
	// minRecompiledModules is dynamo's own limit of recompilations for one function.
	minRecompiledModules = 8
	// minCacheBytes of growth looks like a leak from outside, if the tree grows by at most one part
	// in cachePerGrowth of it.
	minCacheBytes  = 256 << 20
	cachePerGrowth = 10
)

// Advise returns the causes that the evidence shows, in the order of the constants About…, then in
// the order of Evidence.End.
func Advise(e Evidence) []Advice {
	var all []Advice
	eachProcess := func(about Cause, find func(p *growth.Resident) (Advice, bool)) {
		for i := range e.End {
			if a, ok := find(&e.End[i]); ok {
				a.About, a.PID = about, e.End[i].PID
				all = append(all, a)
			}
		}
	}
	tree := func(about Cause, find func() (Advice, bool)) {
		if a, ok := find(); ok {
			a.About = about
			all = append(all, a)
		}
	}

	eachProcess(AboutRetained, e.retained)
	tree(AboutCopies, e.copies)
	eachProcess(AboutRecompiles, e.recompiled)
	eachProcess(AboutPinned, e.pinned)
	tree(AboutCache, e.cache)

	return all
}

// retained: the allocator keeps memory that the program has freed. The arenas of glibc's malloc
// alone are known.
func (e *Evidence) retained(p *growth.Resident) (Advice, bool) {
	if p.Arenas == 0 || p.RSS <= 0 {
		return Advice{}, false
	}

	free := e.sum(func(r *breakdown.Row) bool {
		return r.PID == p.PID && r.Kind == growth.KindRetained
	})
	if d, ok := e.Walked[p.PID]; ok {
		free.start += d.Free - d.Bytes
		free.end += d.Free
	}
	rss := e.rssGrowth(p)
	isGrowing := free.grewBy(minGrowthBytes) && rss > 0 &&
		float64(free.delta()) >= minShareOfGrowth*float64(rss)
	isIdle := p.Arenas >= minArenas && free.end >= minFreeBytes &&
		float64(free.end) >= minFreeShare*float64(p.RSS)
	if !isGrowing && !isIdle {
		return Advice{}, false
	}

	a := Advice{
		Bytes: free.end, RSSShare: float64(free.end) / float64(p.RSS),
		Arenas: p.Arenas, Threads: int(max(0, p.Threads)), IsArenaLimit: p.Arenas >= minArenas,
	}
	if isGrowing {
		a.Growth, a.Of = free.delta(), rss
	}
	return a, true
}

// copies: forked workers write to inherited pages, if only to count references, and most of the
// tree's growth is their copies.
func (e *Evidence) copies() (Advice, bool) {
	forked := make(map[int]bool)
	for _, residents := range [][]growth.Resident{e.Start, e.End} {
		for _, p := range residents {
			forked[p.PID] = forked[p.PID] || p.Forked
		}
	}

	workers := make(map[int]bool)
	copied := e.sum(func(r *breakdown.Row) bool {
		if r.PID == 0 || r.Kind != growth.KindCOW || !forked[r.PID] {
			return false
		}
		if r.End > 0 {
			workers[r.PID] = true
		}
		return true
	})
	tree := e.sum(func(r *breakdown.Row) bool { return r.PID == 0 && r.Kind != growth.KindSwapped })
	if !copied.grewBy(minGrowthBytes) || tree.delta() <= 0 ||
		float64(copied.delta()) <= minCopiesShare*float64(tree.delta()) {
		return Advice{}, false
	}

	return Advice{Growth: copied.delta(), Of: tree.delta(), Workers: len(workers)}, true
}

var (
	// compiledFile matches files into which compilers write the code of graphs and kernels.
	compiledFile = regexp.MustCompile(`/(torchinductor_[^/]+|\.triton/cache)/`)
	// compilerComponent has compiled graphs and their guards.
	compilerComponent = regexp.MustCompile(`^(torch\._)?(inductor|dynamo)(-|$)`)
	// pinnedComponent has page-locked buffers for copies to a GPU.
	pinnedComponent = regexp.MustCompile(`^pinned(-|$)`)
)

// recompiled: the compiler's memory grows with the number of modules that it has made.
func (e *Evidence) recompiled(p *growth.Resident) (Advice, bool) {
	compiler := e.sum(func(r *breakdown.Row) bool {
		return r.PID == p.PID && compilerComponent.MatchString(e.Components.Of(r.Stack))
	})

	before, after := make(map[string]bool), make(map[string]bool)
	for i := range e.Breakdown {
		r := &e.Breakdown[i]
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

	if !compiler.grewBy(minCompiledBytes) || len(after)-len(before) < minRecompiledModules {
		return Advice{}, false
	}

	return Advice{
		Growth: compiler.delta(), ModulesBefore: len(before), ModulesAfter: len(after),
	}, true
}

// filePath of a row of KindFile.
func filePath(r *breakdown.Row) (path string, ok bool) {
	path, ok = strings.CutPrefix(r.Stack.Root, "[file: ")
	return strings.TrimSuffix(path, "]"), ok && r.Kind == growth.KindFile
}

// pinned: the pool of page-locked memory grows.
func (e *Evidence) pinned(p *growth.Resident) (Advice, bool) {
	pinned := e.sum(func(r *breakdown.Row) bool {
		isPinned := r.Kind == growth.KindPinned ||
			pinnedComponent.MatchString(e.Components.Of(r.Stack))
		return r.PID == p.PID && isPinned
	})
	rss := e.rssGrowth(p)
	if !pinned.grewBy(minGrowthBytes) || rss <= 0 ||
		float64(pinned.delta()) < minShareOfGrowth*float64(rss) {
		return Advice{}, false
	}
	return Advice{Bytes: pinned.end, Growth: pinned.delta(), Of: rss}, true
}

// cache: the container is charged for more page cache, and the tree hardly grows.
func (e *Evidence) cache() (Advice, bool) {
	isKnown := e.CacheStart != growth.Unknown && e.CacheEnd != growth.Unknown
	if !isKnown || len(e.Start) == 0 || len(e.End) == 0 {
		return Advice{}, false
	}

	cached := e.CacheEnd - e.CacheStart
	tree := e.sum(func(r *breakdown.Row) bool {
		return r.PID == 0 && r.Kind != growth.KindFile && r.Kind != growth.KindSwapped
	})
	if cached < minCacheBytes || tree.delta() > cached/cachePerGrowth {
		return Advice{}, false
	}

	return Advice{Growth: cached, Of: tree.delta()}, true
}

// A rowSum is some rows of a breakdown together, in bytes.
type rowSum struct {
	start, end int64
	err        float64
}

func (e *Evidence) sum(isIncluded func(r *breakdown.Row) bool) rowSum {
	var sum rowSum
	for i := range e.Breakdown {
		if r := &e.Breakdown[i]; isIncluded(r) {
			sum.start += r.Start
			sum.end += r.End
			sum.err = math.Hypot(sum.err, r.Error)
		}
	}
	return sum
}

func (s *rowSum) delta() int64 { return s.end - s.start }

// grewBy is true of proven growth of at least so many bytes.
func (s *rowSum) grewBy(bytes int64) bool {
	return s.delta() >= bytes && float64(s.delta()) > s.err
}

// rssGrowth of a process over the window, in bytes; 0 where it is unknown at an end.
func (e *Evidence) rssGrowth(p *growth.Resident) int64 {
	for i := range e.Start {
		if s := &e.Start[i]; s.PID == p.PID && s.RSS != growth.Unknown && p.RSS != growth.Unknown {
			return p.RSS - s.RSS
		}
	}
	return 0
}
