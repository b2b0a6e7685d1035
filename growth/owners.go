package growth

import (
	_ "embed"
	"math"
	"strings"
	"sync"
)

//go:embed owners.rules
var builtinRules []byte

// Owners tell whose memory a stack holds, by an ordered table of rules; docs/owners.md describes it. Several goroutines may
// use them at once.
type Owners struct {
	rules []ownerRule

	mu     sync.Mutex
	places map[ownerPlace]*ownersOfPlace
	known  int // places and functions that are remembered
	// last place that was asked for: one library follows itself in a stack.
	last   ownerPlace
	lastAt *ownersOfPlace
}

// DefaultOwners are the built-in rules.
var DefaultOwners = sync.OnceValue(func() *Owners {
	o, err := ParseOwners("", nil)
	if err != nil {
		panic(err) // a test parses them
	}
	return o
})

// An ownerPlace is the file, module or root of a frame; whereFunction: it has none.
type ownerPlace struct {
	where ownerWhere
	name  string
}

// ownName is what a place is called: the package of Python, such as "json"; a script, "train.py"; or a library, "libfoo.so".
// Empty for code without a file.
func (p ownerPlace) ownName() string {
	switch p.where {
	case whereFile:
		return pythonModule(p.name)
	case whereModule:
		return libraryName(p.name)
	}
	return ""
}

// ownersOfPlace is what has been found of a place.
type ownersOfPlace struct {
	// rules that fit the place, whatever the function.
	rules []int
	// all is what they say of every function there; nil: of each another thing, which functions has.
	all       *ownersOfFrame
	functions map[string]*ownersOfFrame
}

// ownersOfFrame is what the rules say of a frame.
type ownersOfFrame struct {
	// any and leaf are the first rules of their scope that fit; noRule where none does.
	any, leaf int
	// name of the frame's own package, script or library; empty where it has none.
	name      string
	allocator bool
}

const noRule = math.MaxInt

// Of is the owner of a stack, never empty: that of the first rule that fits. Nil Owners are the built-in ones.
func (o *Owners) Of(s *Stack) string {
	if o == nil {
		o = DefaultOwners()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.known >= remembered {
		o.places, o.known, o.lastAt = nil, 0, nil
	}
	first := o.ofFrame(ownerPlace{whereRoot, s.Root}, "")
	holder := &ownersOfFrame{leaf: noRule}
	called := false
	for i := len(s.Frames) - 1; i >= 0; i-- {
		f := o.ofFrame(placeOf(&s.Frames[i]), s.Frames[i].Function)
		if f.allocator && called {
			break // the rest is the allocator's own, as WithoutAllocator tells
		}
		called = called || !f.allocator
		if f.any <= first.any {
			first = f // of frames by one rule, that nearest to the leaf
		}
		if f.leaf != noRule && !o.isLayer(f.leaf) {
			holder = f
		}
	}
	if holder.leaf < first.any {
		return o.rules[holder.leaf].nameOf(holder.name)
	}
	return o.rules[first.any].nameOf(first.name)
}

// placeOf is where a frame is, as rules see it.
func placeOf(f *Frame) ownerPlace {
	switch {
	case f.Python:
		return ownerPlace{whereFile, f.File}
	case f.Module != nil:
		return ownerPlace{whereModule, f.Module.Path}
	}
	return ownerPlace{}
}

// remembered is how many places and functions are remembered before all are forgotten: a target may make up names without end.
const remembered = 1 << 16

// ofFrame finds what the rules say of a frame, and remembers it.
func (o *Owners) ofFrame(p ownerPlace, function string) *ownersOfFrame {
	at := o.ofPlace(p)
	if at.all != nil {
		return at.all
	}
	found, ok := at.functions[function]
	if !ok {
		found = o.find(at.rules, p, function)
		at.functions[function] = found
		o.known++
	}
	return found
}

// find goes through the rules that fit a place.
func (o *Owners) find(rules []int, p ownerPlace, function string) *ownersOfFrame {
	found := &ownersOfFrame{any: noRule, leaf: noRule, name: p.ownName()}
	for _, i := range rules {
		rule := &o.rules[i]
		scope := &found.any
		if rule.leaf {
			scope = &found.leaf
		}
		if *scope == noRule && rule.fits(whereFunction, function) && (rule.owner != ownName || found.name != "" && !o.isLayer(found.leaf)) {
			*scope = i
		}
	}
	if asked := found.any != noRule && o.rules[found.any].asks(whereFunction); p.where != whereFile && !asked { // by a rule, it is somebody's
		name, _, _ := strings.Cut(function, "(")
		found.allocator = allocatorFunction.MatchString(name)
	}
	return found
}

func (o *Owners) isLayer(rule int) bool { return rule != noRule && o.rules[rule].owner == layerOwner }

// ofPlace finds the rules that fit a place. There are far fewer places than functions, and of most files of Python no rule
// asks for the function.
func (o *Owners) ofPlace(p ownerPlace) *ownersOfPlace {
	if o.lastAt == nil || o.last != p {
		o.last, o.lastAt = p, o.placeRules(p)
	}
	return o.lastAt
}

// placeRules remembers them.
func (o *Owners) placeRules(p ownerPlace) *ownersOfPlace {
	if known, ok := o.places[p]; ok {
		return known
	}
	if o.places == nil {
		o.places = make(map[ownerPlace]*ownersOfPlace)
	}
	at := &ownersOfPlace{functions: make(map[string]*ownersOfFrame)}
	byFunction := p.where == whereModule || p.where == whereFunction // it tells allocators
	for i := range o.rules {
		if rule := &o.rules[i]; rule.at(p.where) && rule.fits(p.where, p.name) {
			at.rules = append(at.rules, i)
			byFunction = byFunction || rule.asks(whereFunction)
		}
	}
	if !byFunction {
		at.all = o.find(at.rules, p, "")
	}
	o.places[p] = at
	o.known++
	return at
}
