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

// lostOf returns the part of the growth of a process that is proven to be lost: the largest, by its
// type where that is known; nil: none is.
func (t *Trace) lostOf(p *Process) (lost *verdict.Lost) {
	var suspect *trend.Suspect
	isOfStack, ofTypes := false, 0.0
	for _, s := range t.KeepersOf(p.History) {
		if !s.Proof.IsProven() {
			continue
		}
		share, own := t.shareOf(p, &s)
		if s.Stack == 0 { // objects of several types are lost together
			ofTypes = min(1, ofTypes+share)
		}
		if own != nil && (suspect == nil || s.Stack != 0) {
			suspect, isOfStack = own, s.Stack != 0
		}
		isTyped := lost != nil && lost.Type != ""
		if lost != nil && (isTyped || s.Type == "" || share < verdict.MinLostShare) &&
			lost.Share >= share {
			continue
		}
		lost = &verdict.Lost{
			Samples: s.Proof.Lost, Of: s.Proof.Of, Type: s.Type, Share: share,
			Seconds: (s.Proof.Second - s.Proof.First).Seconds(),
		}
	}

	if lost != nil {
		lost.Share = max(lost.Share, ofTypes)
	}
	isAllocated := len(p.Suspects) > 0 && ofTypes >= verdict.MinLostShare &&
		p.Suspects[0].Share >= ofTypes/2
	if suspect == nil && isAllocated {
		suspect = &p.Suspects[0] // whose stacks fill the arenas that grow
	}
	if lost != nil && suspect != nil {
		lost.Taker = takerOf(p.Trends, suspect)
		if !isOfStack { // an arena grows in any call that comes when it is full
			lost.Function, lost.Caller = "", ""
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

	before, after := census.Around(t.CensusesOf(p.History), p.Window.From)
	if before == nil || after == nil || !(p.Judged.Rate > 0) {
		return 0, nil
	}
	for _, g := range census.Grown(before, after) {
		if g.Type == s.Type {
			rate := g.Bytes / (after.Elapsed - before.Elapsed).Seconds()
			share = min(1, rate/p.Judged.Rate)
		}
	}
	return share, nil
}

// minTakerShare is the part of the growth of a suspect whose stacks have to agree.
const minTakerShare = 0.8

// takerOf returns the code of C that made or took the last reference to the memory of a suspect:
// the parts of it in which most of its growth agrees.
func takerOf(trends []trend.StackTrend, c *trend.Suspect) (taker verdict.Taker) {
	sum, libraries := 0.0, make(map[verdict.Taker]float64)
	functions, callers := make(map[string]float64), make(map[string]float64)
	for _, t := range trends {
		if t.Growth <= 0 || !slices.Contains(c.StackIDs, t.Stack.ID) {
			continue
		}
		one := takerOn(growth.WithoutAllocator(t.Stack.Frames))
		sum += t.Growth
		functions[one.Function] += t.Growth
		callers[one.Caller] += t.Growth
		one.Function, one.Caller = "", ""
		libraries[one] += t.Growth
	}

	for one, part := range libraries {
		if part >= minTakerShare*sum {
			taker = one
		}
	}
	if taker.Library == "" {
		return verdict.Taker{}
	}
	for name, part := range functions {
		if part >= minTakerShare*sum {
			taker.Function = name
		}
	}
	for name, part := range callers {
		if part >= minTakerShare*sum {
			taker.Caller = name
		}
	}
	return taker
}

// takerOn returns the code of C on a stack, leaf first. That is the function of C that Python
// calls, not one that this has called: a new reference is the caller's. Where Python itself makes
// the object, it is the function of C that calls Python. Without Python, it is the function that
// allocates, and not a wrapper of malloc.
func takerOn(frames []growth.Frame) verdict.Taker {
	python := slices.IndexFunc(frames, func(f growth.Frame) bool { return f.Python })
	switch {
	case python > 0:
		called := slices.Clone(frames[:python])
		slices.Reverse(called)
		f := besidePython(called)
		return verdict.Taker{
			Library: libraryOf(f), Function: nameOf(f), Caller: frames[python].Function,
		}
	case python == 0 && len(frames) > 1 && !frames[1].Python && !frames[1].IsRoot():
		f := besidePython(frames[1:])
		return verdict.Taker{Library: libraryOf(f), Function: nameOf(f), CallsPython: true}
	case python < 0 && len(frames) > 0:
		f := &frames[0]
		does := func(f growth.Frame) bool { return !growth.IsAllocationWrapper(f.Function) }
		if i := slices.IndexFunc(frames, does); i > 0 {
			f = &frames[i]
		}
		return verdict.Taker{Library: libraryOf(f), Function: nameOf(f)}
	}
	return verdict.Taker{}
}

// wrappers are modules and files through which Python and functions of C that a user has chosen
// call each other.
var wrappers = []string{"_ctypes", "_cffi_backend", "libffi.so"}

// besidePython is the first frame of C that is no wrapper, of frames that begin beside Python's. It
// is the first one where no function is behind the wrappers.
func besidePython(frames []growth.Frame) *growth.Frame {
	for i := range frames {
		f := &frames[i]
		isOf := func(name string) bool { return strings.HasPrefix(libraryOf(f), name) }
		if f.Python || f.IsRoot() {
			break
		}
		if !slices.ContainsFunc(wrappers, isOf) {
			return f
		}
	}
	return &frames[0]
}

// nameOf is the name of a function; empty: its file has no symbol for it.
func nameOf(f *growth.Frame) string {
	if strings.Contains(f.Function, "+0x") {
		return ""
	}
	return f.Function
}

// libraryOf is the module of Python that a frame's file is, "PIL._imaging", or else the file's
// name; empty: it is in none.
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
