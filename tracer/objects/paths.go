package objects

import (
	"cmp"
	"slices"
	"strings"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/keeper"
	"github.com/allocscope/allocscope/tracer/objects/sourcecode"
)

// A step is one object of a path from the root downwards, and how the one above refers to it.
type step struct {
	node *node
	ref  reference
	// repeated is set for the last of a run of objects of one type that refer to each other alike.
	repeated bool
}

// stepsOf returns the objects of a way from the root downwards, without the ones of no interest:
// dicts of attributes, cells and tuples of functions, and memory without a type in between.
func (rep *reporter) stepsOf(w *way) (steps []step) {
	ref := reference{how: keeper.HowVariable}
	for ; w != nil; w = w.below {
		if w.below != nil {
			if through, isHidden := rep.through(ref, w, steps); isHidden {
				ref = through
				continue
			}
		}
		steps = append(steps, step{node: w.node, ref: ref})
		ref = rep.heap.named(w.ref)
	}
	return foldChains(steps)
}

// through returns how the object above refers to the object below a node that a reader of Python
// does not see. isHidden is false if it is an object of its own.
func (rep *reporter) through(
	ref reference, w *way, above []step,
) (through reference, isHidden bool) {
	next, t := rep.heap.named(w.ref), w.node.typ
	switch {
	case ref.isDict && next.how == keeper.HowValue: // obj.__dict__["name"] is obj.name
		next.how, next.name = keeper.HowAttribute, next.attr
		return next, true

	case t == nil: // a structure of C has no name: the field that led to it may have one
		if ref.how == keeper.HowField && ref.attr == "" {
			return next, true
		}
		return ref, true

	case ref.how == keeper.HowClosure && t.kind == kindTuple:
		next.how, next.attr = keeper.HowClosure, rep.freeVariable(above, w)
		return next, true

	case ref.how == keeper.HowDefault && (t.kind == kindTuple || t.kind == kindDict):
		next.how = keeper.HowDefault
		if t.kind == kindTuple { // the dict of keyword-only arguments has the names itself
			next.attr = rep.argument(above, w)
		}
		return next, true

	case t.kind == kindCell, // the variable is the cell's content
		t.name == "functools._lru_list_elem":
		return ref, true
	}
	return ref, false
}

// freeVariable returns the name of a variable of an enclosing function, by its place in the
// closure.
func (rep *reporter) freeVariable(steps []step, closure *way) string {
	if len(steps) == 0 {
		return ""
	}

	f, ok := rep.heap.python.Function(steps[len(steps)-1].node.address)
	i := (closure.at - closure.node.address - rep.heap.version.TupleItem) / wordSize
	if !ok || i >= uint64(len(f.FreeVars)) {
		return ""
	}
	return f.FreeVars[i]
}

// argument returns the name of a default argument, by its place in __defaults__.
func (rep *reporter) argument(steps []step, defaults *way) string {
	if len(steps) == 0 {
		return ""
	}

	f, ok := rep.heap.python.Function(steps[len(steps)-1].node.address)
	n := rep.heap.objects.length(defaults.node.address, defaults.node.typ)
	if !ok {
		return ""
	}

	index := (defaults.at - defaults.node.address - rep.heap.version.TupleItem) / wordSize
	i := int64(index) + int64(len(f.Args)) - n // defaults belong to the last arguments
	if n < 0 || i < 0 || i >= int64(len(f.Args)) {
		return ""
	}

	return f.Args[i]
}

// maxReadings is how many containers a link may have that are read one by one.
const maxReadings = 4

// linkOf returns a step as the domain has it. places are the objects that the samples have there,
// if they are few; nil: they are many, or the samples themselves.
func (rep *reporter) linkOf(st step, places []step) keeper.Link {
	l := keeper.Link{
		How:      st.ref.how,
		Name:     cmp.Or(st.ref.name, st.ref.attr),
		Entries:  keeper.NoContainer,
		Repeated: st.repeated,
	}
	l.Name = growth.Truncate(l.Name, maxTypeName)

	if t := st.node.typ; t != nil {
		l.Type = t.name
	} else {
		l.TypeSize = st.node.block.Len()
	}
	isContainer := rep.heap.types != nil &&
		rep.heap.objects.length(st.node.address, st.node.typ) >= 0
	if len(places) == 0 || !isContainer {
		return l
	}

	if len(places) == 1 {
		l.Limit = rep.heap.objects.limitOf(st.node)
	}
	l.Entries = 0
	for _, at := range places {
		reading := rep.heap.objects.readContainer(at.node)
		l.Readings, l.Entries = append(l.Readings, reading), l.Entries+reading.Entries
		name := growth.Truncate(cmp.Or(at.ref.name, at.ref.attr), maxTypeName)
		if l.Name == "" && name != "" && len(places) > 1 {
			l.Names = append(l.Names, name)
		}
	}
	slices.Sort(l.Names)
	return l
}

// placesOf returns the objects that ways have at a step, if they are few beside the ways.
func placesOf(ways [][]step, i int) (places []step) {
	if i+1 == len(ways[0]) && len(ways) > 1 {
		return nil
	}
	for _, w := range ways {
		isKnown := slices.ContainsFunc(places, func(s step) bool { return s.node == w[i].node })
		if !isKnown {
			places = append(places, w[i])
		}
	}
	if len(places) > 1 && (len(places) > maxReadings || len(ways) < 2*len(places)) {
		return nil
	}
	return places
}

// minRepeats is the number of objects of one type that refer to each other alike, from which on
// they are one chain.
const minRepeats = 3

// foldChains makes one step of each run of objects that refer to each other alike: a linked list.
func foldChains(steps []step) []step {
	var folded []step
	for i := 0; i < len(steps); {
		n := 1
		for i+n < len(steps) && haveOneType(steps[i+n], steps[i]) &&
			(n == 1 || steps[i+n].ref == steps[i+1].ref) {
			n++
		}
		if n >= minRepeats {
			last := steps[i+n-1]
			last.repeated = true
			folded = append(folded, steps[i], last)
		} else {
			folded = append(folded, steps[i:i+n]...)
		}
		i += n
	}
	return folded
}

func haveOneType(a, b step) bool { return a.node.typ != nil && a.node.typ == b.node.typ }

// patternOf is the same for ways that are alike: the types on them, how they refer to each other,
// and the names of attributes.
func patternOf(steps []step) string {
	var b strings.Builder
	for _, st := range steps {
		b.WriteString(string(st.ref.how))
		if st.ref.how == keeper.HowAttribute {
			b.WriteString(st.ref.attr)
		}
		if st.node.typ != nil {
			b.WriteString(st.node.typ.name)
		}
		b.WriteByte(0)
	}
	return b.String()
}

// addUses marks the container to which the source of the program only adds: the first one that
// variables and attributes lead to, each of which is set once. One that several references keep has
// other names. The path begins with one of steps, and root is where all of them begin.
func (rep *reporter) addUses(p *keeper.Path, root keeper.Root, steps []step, from int) {
	v := sourcecode.Variable{Name: root.Name, File: root.File}
	switch {
	case root.Kind == keeper.RootClass && from == 0:
		v.Scope = sourcecode.Attribute
	case root.Kind != keeper.RootGlobal:
		return
	case from > 0:
		if p.Root.Kind != keeper.RootClosure || from > 1 || !rep.heap.program().IsSetOnce(v) {
			return
		}
		v = closureOf(p.Root)
	}

	for i := range p.Links {
		l := &p.Links[i]
		if i > 0 && l.How != keeper.HowAttribute {
			return
		}
		if i > 0 {
			v = sourcecode.Variable{Scope: sourcecode.Attribute, Name: l.Name}
		}

		if l.Entries >= 0 {
			kept, isComplete := rep.ways.references(steps[from+i].node)
			l.WriteOnly = isComplete && len(kept) == 1 && rep.heap.program().IsOnlyAddedTo(v)
			return
		}
		if !rep.heap.program().IsSetOnce(v) {
			return
		}
	}
}

// closureOf is the variable of a function around the one that keeps it.
func closureOf(root keeper.Root) sourcecode.Variable {
	outer := root.Owner[:max(0, strings.LastIndex(root.Owner, ".<locals>"))]
	return sourcecode.Variable{
		Scope: sourcecode.Closure, Name: root.Name, Owner: outer[strings.LastIndex(outer, ".")+1:],
	}
}

// program is the source of the program; it has no file where that is not known.
func (h *Heap) program() *sourcecode.Program {
	if h.source != nil {
		return h.source
	}

	var paths []string
	for _, m := range h.roots.modules {
		paths = append(paths, h.python.FileOf(m))
	}
	if h.source = sourcecode.Read(h.process, paths); h.source == nil {
		h.source = &sourcecode.Program{}
	}
	return h.source
}
