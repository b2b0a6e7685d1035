// Package component finds the component whose memory a stack holds, by an ordered table of rules.
package component

import (
	_ "embed"
	"math"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/allocscope/allocscope/growth"
)

//go:embed components.rules
var builtinRules []byte

// maxCached bounds the cached places, functions and stacks. Beyond, the cache is emptied: a traced
// process may make up names without end.
const maxCached = 1 << 16

// Rules map stacks to components; docs/reference/components.md has their format. Several goroutines
// may use them at once.
type Rules struct {
	rules []rule

	mu     sync.Mutex
	places map[place]*placeRules
	stacks map[*growth.Stack]string // the component; stacks do not change
	cached int                      // places, functions and stacks
	// last place that was looked up: frames of one library follow each other.
	last      place
	lastRules *placeRules
}

// DefaultRules are the built-in rules.
var DefaultRules = sync.OnceValue(func() *Rules {
	rs, err := ParseRules("", nil)
	if err != nil {
		panic(err) // a test parses them
	}
	return rs
})

// A place is the file, module or root of a frame; whereFunction for a frame without one.
type place struct {
	where where
	name  string
}

// placeOf returns the place of a frame that rules match.
func placeOf(f *growth.Frame) place {
	switch {
	case f.Python:
		return place{whereFile, f.File}
	case f.Module != nil:
		return place{whereModule, f.Module.Path}
	}
	return place{}
}

// placeRules are the rules that match a place.
type placeRules struct {
	// rules that match the place, whatever the function.
	rules []int
	// all is the match of every function there. Nil where it depends on the function; then
	// functions has it.
	all       *frameMatch
	functions map[string]*frameMatch
}

// A frameMatch is the rules that match a frame.
type frameMatch struct {
	// any and leaf are the first matching rules of each scope; noRule without one.
	any, leaf int
	// name of the frame's own package, script or library; empty without one.
	name string
	// isAllocator: the frame is the allocator's, by AllocatorFunctions. isWrapper: it is native
	// code that does little but allocate for its caller. isUnnamed: it has no symbol.
	isAllocator, isWrapper, isUnnamed bool
}

const noRule = math.MaxInt

// Of returns the component of a stack, never empty: the first rule that matches names it. Nil Rules
// are the built-in ones.
func (rs *Rules) Of(s *growth.Stack) string {
	if rs == nil {
		rs = DefaultRules()
	}
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if component, ok := rs.stacks[s]; ok {
		return component
	}
	if rs.cached >= maxCached || rs.stacks == nil {
		rs.places, rs.stacks = nil, make(map[*growth.Stack]string)
		rs.cached, rs.lastRules = 0, nil
	}

	component := rs.find(s)
	rs.stacks[s] = component
	rs.cached++
	return component
}

// find returns the component of a stack by its frames.
func (rs *Rules) find(s *growth.Stack) string {
	first := rs.match(place{whereRoot, s.Root}, "")
	site := &frameMatch{leaf: noRule} // the allocation site
	called, inWrapper := false, false
	for i := len(s.Frames) - 1; i >= 0; i-- {
		f := rs.match(placeOf(&s.Frames[i]), s.Frames[i].Function)
		if f.isAllocator && called {
			break // the rest is inside the allocator, see WithoutAllocator
		}

		called = called || !f.isAllocator
		inWrapper = f.isWrapper || inWrapper && f.isUnnamed
		isForCaller := inWrapper && f.any == first.any && f.any != noRule &&
			rs.rules[f.any].component == ownName
		if f.any <= first.any && !isForCaller {
			first = f // of frames that match one rule, the nearest to the leaf
		}

		if f.leaf != noRule && !rs.isLayer(f.leaf) {
			site = f
		}
	}

	if site.leaf < first.any {
		return rs.rules[site.leaf].componentOf(site.name)
	}
	return rs.rules[first.any].componentOf(first.name)
}

// match returns the rules that match a frame, from the cache if it can.
func (rs *Rules) match(p place, function string) *frameMatch {
	at := rs.rulesAt(p)
	if at.all != nil {
		return at.all
	}

	found, ok := at.functions[function]
	if !ok {
		found = rs.matchRules(at.rules, p, function)
		at.functions[function] = found
		rs.cached++
	}

	return found
}

// matchRules tries the rules of a place.
func (rs *Rules) matchRules(rules []int, p place, function string) *frameMatch {
	found := &frameMatch{any: noRule, leaf: noRule, name: p.ownName()}
	for _, i := range rules {
		rule := &rs.rules[i]
		scope := &found.any
		if rule.isLeaf {
			scope = &found.leaf
		}
		if *scope != noRule || !rule.matches(whereFunction, function) {
			continue
		}
		if rule.component != ownName || found.name != "" && !rs.isLayer(found.leaf) {
			*scope = i
		}
	}

	// An allocator's function that a rule names belongs to that rule's component.
	isNamed := found.any != noRule && rs.rules[found.any].has(whereFunction)
	if p.where != whereFile && !isNamed {
		found.isAllocator = growth.IsAllocatorFunction(function)
		found.isWrapper = found.isAllocator || growth.IsAllocationWrapper(function)
		frame := growth.Frame{Function: function}
		found.isUnnamed = !frame.HasName()
	}

	return found
}

func (rs *Rules) isLayer(rule int) bool {
	return rule != noRule && rs.rules[rule].component == layerName
}

// rulesAt returns the rules that match a place, from the cache if it can. There are far fewer
// places than functions, and no rule has a pattern for the functions of most Python files.
func (rs *Rules) rulesAt(p place) *placeRules {
	if rs.lastRules != nil && rs.last == p {
		return rs.lastRules
	}

	at, ok := rs.places[p]
	if !ok {
		if rs.places == nil {
			rs.places = make(map[place]*placeRules)
		}
		at = rs.findRulesAt(p)
		rs.places[p] = at
		rs.cached++
	}

	rs.last, rs.lastRules = p, at

	return at
}

func (rs *Rules) findRulesAt(p place) *placeRules {
	at := &placeRules{functions: make(map[string]*frameMatch)}
	// The functions of native code may be an allocator's.
	byFunction := p.where == whereModule || p.where == whereFunction
	for i := range rs.rules {
		if rule := &rs.rules[i]; rule.canMatchAt(p.where) && rule.matches(p.where, p.name) {
			at.rules = append(at.rules, i)
			byFunction = byFunction || rule.has(whereFunction)
		}
	}

	if !byFunction {
		at.all = rs.matchRules(at.rules, p, "")
	}
	return at
}

// ownName is the name of a place: the Python package, such as "json"; a script, "train.py"; or a
// library, "libfoo.so". Empty for code without a file.
func (p place) ownName() string {
	switch p.where {
	case whereFile:
		return pythonModule(p.name)
	case whereModule:
		return libraryName(p.name)
	}
	return ""
}

var (
	installedFile = regexp.MustCompile(`.*/(?:site|dist)-packages/(.+)`)
	standardFile  = regexp.MustCompile(`.*/lib(?:64)?/python[0-9][^/]*/(.+)`)
)

// libraryName is the Python package that a library is installed with, or its own name.
func libraryName(file string) string {
	if file == "" {
		return ""
	}
	if found := installedFile.FindStringSubmatch(file); found != nil {
		top, _, isInside := strings.Cut(found[1], "/")
		if isInside && top != "" && !strings.HasSuffix(top, ".libs") {
			return top
		}
	}
	return path.Base(file)
}

// pythonModule is the module of a source file. It is empty for code without a file ("<string>"),
// which counts as its caller's.
func pythonModule(file string) string {
	if frozen, ok := strings.CutPrefix(file, "<frozen "); ok {
		top, _, _ := strings.Cut(strings.TrimSuffix(frozen, ">"), ".")
		return top
	}
	if strings.HasPrefix(file, "<") {
		return ""
	}

	for _, root := range []*regexp.Regexp{installedFile, standardFile} {
		if found := root.FindStringSubmatch(file); found != nil {
			top, _, _ := strings.Cut(found[1], "/")
			return strings.TrimSuffix(top, ".py")
		}
	}

	return scriptName(file)
}

// scriptName is the name of a file, or of its package for __init__.py and __main__.py.
func scriptName(file string) string {
	if file == "" {
		return ""
	}
	base, folder := path.Base(file), path.Base(path.Dir(file))
	isPackage := slices.Contains([]string{"__init__.py", "__main__.py"}, base)
	if isPackage && folder != "." && folder != "/" {
		return folder
	}
	return base
}
