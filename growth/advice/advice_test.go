package advice

import (
	"fmt"
	"slices"
	"testing"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/breakdown"
	"github.com/allocscope/allocscope/growth/diagnosis"
)

const advisedMiB = 1 << 20

// An adviceScene is evidence that can be changed in one point.
type adviceScene struct{ Evidence }

// sceneOf is a process, PID 1, whose RSS went from 1,000 to 1,400 MiB; its breakdown is empty.
func sceneOf() *adviceScene {
	p := growth.Resident{PID: 1, RSS: 1000 * advisedMiB, Threads: 17, Arenas: 12}
	s := &adviceScene{Evidence{CacheStart: growth.Unknown, CacheEnd: growth.Unknown}}
	s.Start = []growth.Resident{p}
	p.RSS = 1400 * advisedMiB
	s.End = []growth.Resident{p}
	return s
}

// row adds the memory of a stack, in MiB.
func (s *adviceScene) row(
	pid int, kind growth.Kind, stack *growth.Stack, start, end int64,
) *adviceScene {
	s.Breakdown = append(s.Breakdown, breakdown.Row{
		PID: pid, Kind: kind, Stack: stack, Start: start * advisedMiB, End: end * advisedMiB,
	})
	return s
}

func (s *adviceScene) but(change func(s *adviceScene)) *adviceScene {
	change(s)
	return s
}

func mainHeap() *growth.Stack { return growth.NamedStack(1, "[heap: free but resident]", "main heap") }

func fragmented(start, end int64) *adviceScene {
	return sceneOf().row(1, growth.KindRetained, mainHeap(), start, end)
}

// walked is free memory as in fragmented(100, 200), found by walks.
func walked(s *adviceScene) {
	s.Walked = map[int]diagnosis.Diagnosis{1: {Bytes: 100 * advisedMiB, Free: 200 * advisedMiB}}
}

// forking is two workers whose copies grow while the tree does by so many MiB.
func forking(copies, tree int64) *adviceScene {
	s := sceneOf()
	for _, pid := range []int{2, 3} {
		s.Start = append(s.Start, growth.Resident{PID: pid, Parent: 1, Forked: true})
		s.End = append(s.End, growth.Resident{PID: pid, Parent: 1, Forked: true})
		s.row(pid, growth.KindCOW, growth.NamedStack(pid, "[copy-on-write]"), 10, 10+copies/2)
	}
	return s.row(0, growth.KindCOW, growth.NamedStack(2, "[copy-on-write]"), 20, 20+tree)
}

// compiling is dynamo that holds more while compiled modules become more.
func compiling(gained int64, before, after int) *adviceScene {
	s := sceneOf().row(1, growth.KindHeap, stackIn("torch/_dynamo/guards.py"), 10, 10+gained)
	for i := range max(before, after) {
		held := func(of int) int64 { return min(1, max(0, int64(of-i))) }
		module := fmt.Sprintf("[file: /tmp/torchinductor_me/ab/c%d.so]", i)
		s.row(1, growth.KindFile, growth.NamedStack(1, module), held(before), held(after))
		touched := growth.NamedStack(1, module, "touched") // the same file
		s.row(1, growth.KindFile, touched, held(before), held(after))
	}
	return s
}

func stackIn(file string) *growth.Stack {
	frame := growth.Frame{
		Function: "f", Python: true, File: "/x/lib/python3.12/site-packages/" + file, Line: 9,
	}
	return &growth.Stack{ID: 7, PID: 1, Frames: []growth.Frame{frame}}
}

func pinning(start, end int64) *adviceScene {
	return sceneOf().row(1, growth.KindMmap, stackIn("pinned/pool.py"), start, end)
}

// caching is a container's page cache that grows while the tree does by so many MiB besides its
// files.
func caching(cache, tree int64) *adviceScene {
	s := sceneOf().row(0, growth.KindHeap, mainHeap(), 0, tree).
		row(0, growth.KindFile, growth.NamedStack(1, "[file: /data]"), 0, cache)
	s.CacheStart, s.CacheEnd = 5*advisedMiB, (5+cache)*advisedMiB
	return s
}

func arenas(n int) func(*adviceScene) { return func(s *adviceScene) { s.End[0].Arenas = n } }

func TestAdvise(t *testing.T) {
	const mib = advisedMiB
	uncertain := func(s *adviceScene) { s.Breakdown[0].Error = 101 * mib }
	rss := func(mebibytes int64) func(*adviceScene) {
		return func(s *adviceScene) { s.End[0].RSS = mebibytes * mib }
	}
	none := Advice{}
	retained := Advice{
		About: AboutRetained, PID: 1, Bytes: 350 * mib, RSSShare: 0.25,
		Arenas: 12, Threads: 17, IsArenaLimit: true,
	}
	grown := retained
	grown.Bytes, grown.RSSShare, grown.Growth, grown.Of = 200*mib, 200./1400, 100*mib, 400*mib
	copied := Advice{About: AboutCopies, Growth: 64 * mib, Of: 100 * mib, Workers: 2}
	compiled := Advice{
		About: AboutRecompiles, PID: 1, Growth: 16 * mib, ModulesBefore: 10, ModulesAfter: 18,
	}
	pinned := Advice{About: AboutPinned, PID: 1, Bytes: 74 * mib, Growth: 64 * mib, Of: 400 * mib}
	cached := Advice{About: AboutCache, Growth: 256 * mib, Of: 25 * mib}

	for name, c := range map[string]struct {
		scene *adviceScene
		want  Advice
	}{
		"nothing":                {&adviceScene{}, none},
		"an empty breakdown":     {sceneOf(), none},
		"retained":               {fragmented(100, 200), grown},
		"retained, too little":   {fragmented(100, 163), none},
		"retained, small part":   {fragmented(100, 200).but(rss(2001)), none},
		"idle, few bytes":        {fragmented(15, 15).but(rss(40)), none},
		"copies, small part":     {forking(64, 128), none},
		"compiled, little":       {compiling(15, 10, 18), none},
		"pinned, small part":     {pinning(10, 74).but(rss(1641)), none},
		"retained, not proven":   {fragmented(100, 200).but(uncertain), none},
		"retained, no start":     {fragmented(100, 200).but(func(s *adviceScene) { s.Start = nil }), none},
		"retained, no glibc":     {fragmented(100, 200).but(arenas(0)), none},
		"unclassified":           {fragmented(100, 300).but(unclassified), none},
		"unclassified, walked":   {fragmented(100, 300).but(unclassified).but(walked), grown},
		"idle":                   {fragmented(350, 350), retained},
		"idle, too little":       {fragmented(349, 349), none},
		"idle, few arenas":       {fragmented(400, 400).but(arenas(3)), none},
		"copies":                 {forking(64, 100), copied},
		"copies, too few":        {forking(62, 100), none},
		"copies, smaller tree":   {forking(64, -1), none},
		"copies, not forked":     {forking(64, 100).but(unforked), none},
		"compiled":               {compiling(16, 10, 18), compiled},
		"compiled, few modules":  {compiling(16, 10, 17), none},
		"compiled, by another":   {compiling(100, 0, 20).but(func(s *adviceScene) { s.Breakdown[0].Stack = mainHeap() }), none},
		"compiled, libraries":    {compiling(100, 0, 20).but(elsewhere), none},
		"pinned by component":    {pinning(10, 74), pinned},
		"pinned by kind":         {pinning(10, 74).but(pinnedByKind), pinned},
		"pinned, too little":     {pinning(10, 73), none},
		"pinned, RSS fell":       {pinning(10, 74).but(rss(0)), none},
		"page cache":             {caching(256, 25), cached},
		"page cache, little":     {caching(255, 0), none},
		"page cache, and a leak": {caching(256, 26), none},
		"page cache, no start":   {caching(500, 0).but(func(s *adviceScene) { s.Start = nil }), none},
	} {
		got := Advise(c.scene.Evidence)
		if c.want == none && len(got) != 0 ||
			c.want != none && (len(got) != 1 || got[0] != c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func pinnedByKind(s *adviceScene) {
	s.Breakdown[0].Kind, s.Breakdown[0].Stack = growth.KindPinned, mainHeap()
}

func unforked(s *adviceScene) {
	for _, residents := range [][]growth.Resident{s.Start, s.End} {
		for i := range residents {
			residents[i].Forked = false
		}
	}
}

func unclassified(s *adviceScene) { s.Breakdown[0].Kind = growth.KindUnclassified }

// elsewhere moves the compiled modules to where a package keeps its libraries.
func elsewhere(s *adviceScene) {
	for i := range s.Breakdown {
		if s.Breakdown[i].Kind == growth.KindFile {
			s.Breakdown[i].Stack = growth.NamedStack(1, fmt.Sprintf("[file: /usr/lib/c%d.so]", i))
		}
	}
}

// Copies of workers that have ended are gone, and copies of workers that began since count.
func TestAdviseCopies(t *testing.T) {
	s := forking(200, 100)
	s.Start, s.End = s.Start[:2], []growth.Resident{s.End[0], s.End[2]}
	s.Breakdown[0].Start, s.Breakdown[0].End = 110*advisedMiB, 0
	s.Breakdown[1].Start = 0
	if got := Advise(s.Evidence); len(got) != 0 {
		t.Errorf("as many copies as before: %+v", got)
	}
	s.Breakdown[0].Start = 46 * advisedMiB
	if got := Advise(s.Evidence); len(got) != 1 || got[0].Workers != 1 ||
		got[0].Growth != 64*advisedMiB {
		t.Errorf("64 MiB more: %+v", got)
	}
}

func TestAdviseEachProcess(t *testing.T) {
	s := fragmented(100, 200)
	s.Start = append(s.Start, growth.Resident{PID: 9, RSS: 1})
	s.End = append(s.End, growth.Resident{PID: 9, RSS: 200 * advisedMiB, Arenas: 1})
	s.row(9, growth.KindRetained, growth.NamedStack(9, "[heap: free but resident]", "main heap"), 0,
		90)
	var pids []int
	for _, a := range Advise(s.Evidence) {
		pids = append(pids, a.PID)
	}
	if !slices.Equal(pids, []int{1, 9}) {
		t.Errorf("advice to %v, want 1 and 9", pids)
	}
}
