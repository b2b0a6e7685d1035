package objects

import (
	"cmp"
	"strings"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/keeper"
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
		next := w.ref
		switch {
		case ref.isDict && w.below != nil && next.how == keeper.HowValue: // the dict of attributes
			next.how, next.name = keeper.HowAttribute, next.attr
			ref = next
			continue
		case ref.how == keeper.HowClosure && w.node.typ != nil && w.node.typ.kind == kindTuple && w.below != nil:
			next.how, next.attr = keeper.HowClosure, rep.freeVariable(steps, w)
			ref = next
			continue
		case ref.how == keeper.HowDefault && w.node.typ != nil && w.below != nil &&
			(w.node.typ.kind == kindTuple || w.node.typ.kind == kindDict):
			next.how = keeper.HowDefault
			if w.node.typ.kind == kindTuple {
				next.attr = rep.argument(steps, w)
			}
			ref = next
			continue
		case w.node.typ != nil && w.node.typ.kind == kindCell && w.below != nil:
			continue // the variable is the cell's content
		case w.node.typ != nil && w.node.typ.name == "functools._lru_list_elem" && w.below != nil:
			continue
		case w.node.typ == nil && w.below != nil:
			if ref.how == keeper.HowField && ref.attr == "" {
				ref = next
			}
			continue
		}
		steps = append(steps, step{node: w.node, ref: ref})
		ref = next
	}

	return foldChains(steps)
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
	i := int64(index) + int64(len(f.Args)) - n // they belong to the last arguments
	if n < 0 || i < 0 || i >= int64(len(f.Args)) {
		return ""
	}

	return f.Args[i]
}

// linkOf returns a step as the domain has it. isShared is set if all samples have this very object
// there.
func (rep *reporter) linkOf(st step, isShared bool) keeper.Link {
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
	if isShared && rep.heap.types != nil {
		l.Entries = keeper.Entries(rep.heap.objects.length(st.node.address, st.node.typ))
	}

	return l
}

// minRepeats is the number of objects of one type that refer to each other alike, from which on
// they are one chain.
const minRepeats = 3

// foldChains makes one step of each run of objects that refer to each other alike: a linked list.
func foldChains(steps []step) []step {
	var folded []step
	for i := 0; i < len(steps); {
		n := 1
		for i+n < len(steps) && alike(steps[i+n], steps[i]) && (n == 1 || steps[i+n].ref == steps[i+1].ref) {
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

func alike(a, b step) bool { return a.node.typ != nil && a.node.typ == b.node.typ }

// patternOf is the same for ways that are alike: the types on them, how they refer to each other, and
// the names of attributes.
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
