package growth

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

const advisedMiB = 1 << 20

// An adviceScene is evidence that can be changed in one point.
type adviceScene struct{ Evidence }

// sceneOf is a process, PID 1, whose RSS went from 1,000 to 1,400 MiB; its ledger is empty.
func sceneOf() *adviceScene {
	return &adviceScene{Evidence{
		Start: []Resident{{PID: 1, RSS: 1000 * advisedMiB, Threads: 17, Arenas: 12}}, CacheStart: Unknown, CacheEnd: Unknown,
		End: []Resident{{PID: 1, RSS: 1400 * advisedMiB, Threads: 17, Arenas: 12}},
	}}
}

// row adds what a stack holds, in MiB.
func (s *adviceScene) row(pid int, kind Kind, stack *Stack, start, end int64) *adviceScene {
	s.Ledger = append(s.Ledger, LedgerRow{PID: pid, Kind: kind, Stack: stack, Start: start * advisedMiB, End: end * advisedMiB})
	return s
}

func (s *adviceScene) but(change func(s *adviceScene)) *adviceScene {
	change(s)
	return s
}

func mainHeap() *Stack { return NamedStack(1, "[heap: free but resident]", "main heap") }

func fragmented(start, end int64) *adviceScene {
	return sceneOf().row(1, KindRetained, mainHeap(), start, end)
}

// forking is two workers whose copies grow while the tree does by so many MiB.
func forking(copies, tree int64) *adviceScene {
	s := sceneOf()
	for _, pid := range []int{2, 3} {
		s.Start = append(s.Start, Resident{PID: pid, Parent: 1, Forked: true})
		s.End = append(s.End, Resident{PID: pid, Parent: 1, Forked: true})
		s.row(pid, KindCOW, NamedStack(pid, "[copy-on-write]"), 10, 10+copies/2)
	}
	return s.row(0, KindCOW, NamedStack(2, "[copy-on-write]"), 20, 20+tree)
}

// compiling is dynamo that holds more while compiled modules become more.
func compiling(gained int64, before, after int) *adviceScene {
	guard := &Stack{ID: 7, PID: 1, Frames: []Frame{{Function: "guard", Python: true, File: "/x/lib/python3.12/site-packages/torch/_dynamo/guards.py", Line: 9}}}
	s := sceneOf().row(1, KindHeap, guard, 10, 10+gained)
	for i := range max(before, after) {
		held := func(of int) int64 { return min(1, max(0, int64(of-i))) }
		module := fmt.Sprintf("[file: /tmp/torchinductor_me/ab/c%d.so]", i)
		s.row(1, KindFile, NamedStack(1, module), held(before), held(after))
		s.row(1, KindFile, NamedStack(1, module, "touched"), held(before), held(after)) // the same file
	}
	return s
}

func pinning(start, end int64) *adviceScene {
	held := &Stack{ID: 8, PID: 1, Frames: []Frame{{Function: "pin", Python: true, File: "/x/lib/python3.12/site-packages/pinned/pool.py", Line: 1}}}
	return sceneOf().row(1, KindMmap, held, start, end)
}

// caching is a container's page cache that grows while the tree does by so many MiB besides its files.
func caching(cache, tree int64) *adviceScene {
	s := sceneOf().row(0, KindHeap, mainHeap(), 0, tree).row(0, KindFile, NamedStack(1, "[file: /data]"), 0, cache)
	s.CacheStart, s.CacheEnd = 5*advisedMiB, (5+cache)*advisedMiB
	return s
}

func arenas(n int) func(*adviceScene) { return func(s *adviceScene) { s.End[0].Arenas = n } }

func TestAdviceNeedsEvidence(t *testing.T) {
	uncertain := func(s *adviceScene) { s.Ledger[0].Error = 101 * advisedMiB }
	for name, c := range map[string]struct {
		scene *adviceScene
		want  string // about; empty: no advice
		says  []string
	}{
		"nothing":                     {&adviceScene{}, "", nil},
		"an empty ledger":             {sceneOf(), "", nil},
		"retained grew":               {fragmented(100, 200), AboutRetained, []string{"200 MiB", "12 arenas", "17 threads", "100 MiB of 400", "14%", "MALLOC_ARENA_MAX", "jemalloc"}},
		"retained grew too little":    {fragmented(100, 163), "", nil},
		"a small part of the growth":  {fragmented(100, 200).but(func(s *adviceScene) { s.End[0].RSS = 2001 * advisedMiB }), "", nil},
		"not proven":                  {fragmented(100, 200).but(uncertain), "", nil},
		"RSS fell":                    {fragmented(100, 300).but(func(s *adviceScene) { s.End[0].RSS = 999 * advisedMiB; s.End[0].Arenas = 3 }), "", nil},
		"not there at the start":      {fragmented(100, 200).but(func(s *adviceScene) { s.Start = nil }), "", nil},
		"another allocator":           {fragmented(100, 200).but(arenas(0)), "", nil},
		"of another process":          {fragmented(100, 200).but(func(s *adviceScene) { s.Ledger[0].PID = 5 }), "", nil},
		"a third of RSS":              {fragmented(350, 350), AboutRetained, []string{"350 MiB", "25%"}},
		"a quarter less a little":     {fragmented(349, 349), "", nil},
		"a third, in few arenas":      {fragmented(400, 400).but(arenas(3)), "", nil},
		"a third of very little":      {fragmented(15, 15).but(func(s *adviceScene) { s.End[0].RSS = 40 * advisedMiB }), "", nil},
		"free, or not told":           {fragmented(100, 300).but(kinds(KindRetained, KindUntold)), "", nil},
		"copies":                      {forking(64, 100), AboutCopies, []string{"2 forked workers", "64 MiB", "100 MiB", "numpy", "spawn", "pytorch#13246"}},
		"few copies":                  {forking(62, 100), "", nil},
		"the tree grew elsewhere":     {forking(64, 128), "", nil},
		"the tree did not grow":       {forking(64, -1), "", nil},
		"workers that were executed":  {forking(64, 100).but(unforked), "", nil},
		"the workers' own heap":       {forking(64, 100).but(kinds(KindCOW, KindHeap)), "", nil},
		"compiled again and again":    {compiling(16, 10, 18), AboutRecompiles, []string{"16 MiB", "10 compiled modules became 18", "mark_dynamic", "cache_size_limit"}},
		"compiled seven more":         {compiling(16, 10, 17), "", nil},
		"compiled, and little held":   {compiling(15, 10, 18), "", nil},
		"compiled, held by another":   {compiling(100, 0, 20).but(func(s *adviceScene) { s.Ledger[0].Stack = mainHeap() }), "", nil},
		"libraries that are no code":  {compiling(100, 0, 20).but(elsewhere), "", nil},
		"modules that came and went":  {compiling(100, 20, 20), "", nil},
		"pinned":                      {pinning(10, 74), AboutPinned, []string{"64 MiB of 400", "74 MiB"}},
		"pinned too little":           {pinning(10, 73), "", nil},
		"pinned, and RSS fell":        {pinning(10, 74).but(func(s *adviceScene) { s.End[0].RSS = 0 }), "", nil},
		"pinned, of a large growth":   {pinning(10, 74).but(func(s *adviceScene) { s.End[0].RSS = 1641 * advisedMiB }), "", nil},
		"page cache":                  {caching(256, 25), AboutCache, []string{"256 MiB", "25 MiB", "working set"}},
		"little page cache":           {caching(255, 0), "", nil},
		"page cache, and a leak":      {caching(256, 26), "", nil},
		"no container":                {caching(500, 0).but(func(s *adviceScene) { s.CacheEnd = Unknown }), "", nil},
		"no container at the start":   {caching(500, 0).but(func(s *adviceScene) { s.CacheStart = Unknown }), "", nil},
		"page cache and no residents": {caching(500, 0).but(func(s *adviceScene) { s.Start = nil }), "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			got := Advise(c.scene.Evidence)
			if c.want == "" {
				if len(got) != 0 {
					t.Errorf("advice without evidence: %+v", got)
				}
				return
			}
			if len(got) != 1 || got[0].About != c.want {
				t.Fatalf("%+v, want one about %s", got, c.want)
			}
			for _, word := range c.says {
				if !strings.Contains(got[0].Text, word) || strings.Contains(got[0].Text, "\n") {
					t.Errorf("%q does not say %q in one line", got[0].Text, word)
				}
			}
		})
	}
}

func unforked(s *adviceScene) {
	for _, residents := range [][]Resident{s.Start, s.End} {
		for i := range residents {
			residents[i].Forked = false
		}
	}
}

func kinds(from, to Kind) func(*adviceScene) {
	return func(s *adviceScene) {
		for i := range s.Ledger {
			if s.Ledger[i].Kind == from {
				s.Ledger[i].Kind = to
			}
		}
	}
}

// elsewhere moves the compiled modules to where a package keeps its libraries.
func elsewhere(s *adviceScene) {
	for i := range s.Ledger {
		if s.Ledger[i].Kind == KindFile {
			s.Ledger[i].Stack = NamedStack(1, fmt.Sprintf("[file: /usr/lib/python3/dist-packages/torch/lib/c%d.so]", i))
		}
	}
}

// With one arena there is nothing for MALLOC_ARENA_MAX to limit.
func TestALimitOfArenasIsAdvisedOnlyWhereThereAreMany(t *testing.T) {
	for n, want := range map[int]bool{1: false, 3: false, 4: true, 40: true} {
		got := Advise(fragmented(100, 200).but(arenas(n)).Evidence)
		if len(got) != 1 || strings.Contains(got[0].Text, "MALLOC_ARENA_MAX") != want || !strings.Contains(got[0].Text, "malloc_trim") {
			t.Errorf("%d arenas: %+v", n, got)
		}
	}
}

// Copies of workers that have ended are gone, and what those hold that began since counts.
func TestCopiesCountWhoeverMadeThem(t *testing.T) {
	s := forking(200, 100)
	s.Start, s.End = s.Start[:2], []Resident{s.End[0], s.End[2]}
	s.Ledger[0].Start, s.Ledger[0].End = 110*advisedMiB, 0
	s.Ledger[1].Start = 0
	if got := Advise(s.Evidence); len(got) != 0 {
		t.Errorf("as many copies as before: %+v", got)
	}
	s.Ledger[0].Start = 46 * advisedMiB
	if got := Advise(s.Evidence); len(got) != 1 || !strings.Contains(got[0].Text, "1 forked worker grew by 64 MiB") {
		t.Errorf("64 MiB more: %+v", got)
	}
}

func TestEachProcessHasAdviceOfItsOwn(t *testing.T) {
	s := fragmented(100, 200)
	s.Start = append(s.Start, Resident{PID: 9, RSS: 1})
	s.End = append(s.End, Resident{PID: 9, RSS: 200 * advisedMiB, Arenas: 1})
	s.row(9, KindRetained, NamedStack(9, "[heap: free but resident]", "main heap"), 0, 90)
	var pids []int
	for _, a := range Advise(s.Evidence) {
		pids = append(pids, a.PID)
	}
	if !slices.Equal(pids, []int{1, 9}) {
		t.Errorf("advice to %v, want 1 and 9", pids)
	}
}
