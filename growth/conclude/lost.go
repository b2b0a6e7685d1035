package conclude

import (
	"math"
	"path"
	"slices"
	"strings"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/census"
	"github.com/allocscope/allocscope/growth/keeper"
	"github.com/allocscope/allocscope/growth/trend"
	"github.com/allocscope/allocscope/growth/verdict"
)

// lostOf returns the part of the growth of a process that is proven to be lost, the largest suspect;
// nil: none is.
func (t *Trace) lostOf(p *Process) (lost *verdict.Lost) {
	for _, s := range t.KeepersOf(p.History) {
		if !s.Proof.IsProven() {
			continue
		}
		share, suspect := t.shareOf(p, &s)
		if lost != nil && lost.Share >= share {
			continue
		}
		lost = &verdict.Lost{
			Samples: s.Proof.Lost, Of: s.Proof.Of, Type: s.Type, Share: share,
			Seconds: (s.Proof.Second - s.Proof.First).Seconds(),
		}
		if suspect != nil {
			lost.Library, lost.Function, lost.Caller = takerOf(suspect)
		}
	}
	return lost
}

// shareOf returns the share of the growth of RSS that the objects of a search are, and the suspect
// whose stacks have allocated them; nil: it is not known.
func (t *Trace) shareOf(p *Process, s *keeper.Search) (share float64, suspect *trend.Suspect) {
	if s.Stack != 0 {
		i := slices.IndexFunc(p.Suspects, func(c trend.Suspect) bool {
			return slices.Contains(c.StackIDs, s.Stack)
		})
		if i < 0 || math.IsNaN(p.Suspects[i].Share) {
			return 0, nil
		}
		return min(1, p.Suspects[i].Share), &p.Suspects[i]
	}

	before, after := t.CensusesOf(p.History, p.Window.From)
	if before == nil || after == nil || !(p.Judged.Rate > 0) {
		return 0, nil
	}
	for _, g := range census.Grown(before, after) {
		if g.Type == s.Type {
			rate := g.Bytes / (after.Elapsed - before.Elapsed).Seconds()
			share = min(1, rate/p.Judged.Rate)
		}
	}
	if len(p.Suspects) > 0 && share >= verdict.MinLostShare && p.Suspects[0].Share >= share/2 {
		suspect = &p.Suspects[0] // whose stacks fill the arenas that grow
	}
	return share, suspect
}

// takerOf returns the code of C that made or took the last reference to what a suspect allocates, by
// the stack that allocates most. That is the function of C that Python calls, not one that this has
// called: a new reference is the caller's. Where Python itself makes the object, it is the function
// of C that calls Python.
func takerOf(c *trend.Suspect) (library, function, caller string) {
	chain := slices.Clone(c.Path)
	slices.Reverse(chain)
	chain = append(chain, c.Above...)
	isPython := func(f growth.Frame) bool { return f.Python }

	python := slices.IndexFunc(chain, isPython)
	switch {
	case python > 0:
		taker := &chain[python-1]
		return libraryOf(taker), nameOf(taker), chain[python].Function
	case python == 0 && len(chain) > 1 && !chain[1].Python && !chain[1].IsRoot():
		return libraryOf(&chain[1]), nameOf(&chain[1]), ""
	case python < 0 && len(chain) > 0 && chain[0].Module != nil:
		return libraryOf(&chain[0]), nameOf(&chain[0]), ""
	}
	return "", "", ""
}

// nameOf is the name of a function; empty: its file has no symbol for it.
func nameOf(f *growth.Frame) string {
	if strings.Contains(f.Function, "+0x") {
		return ""
	}
	return f.Function
}

// libraryOf is the module of Python that a frame's file is, "PIL._imaging", or else the file's name;
// empty: it is in none.
func libraryOf(f *growth.Frame) string {
	if f.Module == nil {
		return ""
	}
	file := f.Module.Path
	for _, folder := range []string{"/site-packages/", "/dist-packages/", "/lib-dynload/"} {
		_, name, ok := strings.Cut(file, folder)
		stem, isExtension := strings.CutSuffix(name, ".so")
		if ok && isExtension {
			stem, _, _ = strings.Cut(stem, ".")
			return strings.ReplaceAll(stem, "/", ".")
		}
	}
	return path.Base(file)
}
