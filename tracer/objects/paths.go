package objects

import (
	"cmp"
	"path"
	"slices"
	"strings"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/keeper"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/torch"
)

// A way is one step of the ways from a sample up to its roots: a node, and how it refers to the one
// below.
type way struct {
	node   *node
	at     uint64 // where in the node the one below is referred to; 0: the node is the sample
	ref    reference
	below  *way // nil: the node is the sample
	length int
	words  []edge // by which the node refers to the one below; two where a table lies between
	// container is the one nearest to the sample; nil: none so far.
	container *node
}

// A rooted is a whole way.
type rooted struct {
	root keeper.Root
	way  *way // from the outermost node
	rank int
	word *edge // by which the root refers to it; nil: it is part of the way
}

const (
	maxRoots = 16      // of one sample
	maxWays  = 1 << 14 // of one sample
)

// rootsOf follows the references to a sample upwards, and returns the roots that they lead to, the
// best first, and the ways to nodes that references have not been searched for yet. isClosed is set
// if all that refers to the sample is known and leads to no root.
func (s *search) rootsOf(sample *node) (found []rooted, open []*way, isClosed bool) {
	type key struct {
		n, container *node
		at           uint64
	}
	seen := map[key]bool{{n: sample}: true}
	queue := []*way{{node: sample}}
	push := func(up *way) {
		k := key{n: up.node, container: up.container}
		switch {
		case up.node.typ == nil:
			k.at = up.at
		case up.node.typ.kind == kindDict && len(up.words) > 1: // several variables may share it
			k.at = up.words[len(up.words)-2].at
		}
		if !seen[k] && len(seen) < maxWays {
			seen[k] = true
			queue = append(queue, up)
		}
	}
	isClosed = true
	for len(queue) > 0 && len(found) < maxRoots {
		if s.heap.memory.budget.isSpent() {
			isClosed = false
			break
		}
		w := queue[0]
		queue = queue[1:]
		n := w.node
		if root, ok := s.rootOf(w); ok {
			found = append(found, root)
			continue
		}
		if !n.searched {
			open = append(open, w)
			isClosed = false
			continue
		}
		if head := s.heads[n]; head != nil {
			push(&way{
				node: head.node, at: head.at, ref: w.ref, below: w, length: w.length + 1,
				container: w.container,
			})
		}
		edges, isComplete := s.references(n)
		isClosed = isClosed && (isComplete || n.typ == nil && n.isOwned())
		if n.typ == nil && w.below != nil {
			edges = s.owners(edges, sample.typ != nil)
		}
		for _, e := range edges {
			if s.heap.memory.budget.isSpent() {
				isClosed = false
				break
			}
			isObject := sample.typ != nil || n.typ != nil
			if e.root != nil && isObject && isBorrower(*e.root) {
				continue
			}
			if e.root != nil {
				found = append(found, rooted{root: s.completed(*e.root, w), way: w, word: &e})
				continue
			}
			up, ok := s.up(w, e)
			if !ok {
				continue
			}
			push(up)
		}
	}
	for i := range found {
		found[i].rank = rankOf(found[i].root) + found[i].way.length
	}
	slices.SortStableFunc(found, func(a, b rooted) int { return cmp.Compare(a.rank, b.rank) })
	return found, open, isClosed && len(found) == 0
}

// references returns the references that keep a node. isComplete is set if no others do: the
// references that were found in objects, and in memory with a name, are as many as the object
// counts. Then all other words that look like a reference are none: values that native code has
// borrowed, or that nobody uses any more.
func (s *search) references(n *node) (edges []edge, isComplete bool) {
	if n.isKnown {
		return n.kept, n.isComplete
	}
	isKnown := n.searched
	if n.typ == nil || n.more {
		n.kept, n.isKnown = n.edges, isKnown
		return n.edges, false
	}
	var strong []edge
	for _, e := range n.edges {
		isStrong, known := s.isStrong(e)
		isKnown = isKnown && known
		if isStrong {
			strong = append(strong, e)
		}
	}
	isComplete = isKnown && n.refcnt != 0 && uint64(len(strong)) == n.refcnt
	if edges = n.edges; isComplete {
		edges = strong
	}
	n.kept, n.isComplete, n.isKnown = edges, isComplete, isKnown
	return edges, isComplete
}

// isOwned reports whether all that refers to memory without an object is objects.
func (n *node) isOwned() bool {
	isOther := func(e edge) bool { return e.from == nil || e.from.typ == nil }
	return len(n.edges) > 0 && n.foreign == 0 && !n.more && !slices.ContainsFunc(n.edges, isOther)
}

// owners returns the references to a table by the container that owns it: then no other word
// counts. For memory that is no table of a container it returns all references; for data none.
// Memory of C that leads to data may lead to other memory of C; isObject is set if an object is
// looked for.
func (s *search) owners(edges []edge, isObject bool) []edge {
	if s.heap.structures == nil {
		return edges
	}
	var owners []edge
	for _, e := range edges {
		if t := e.typ(); t != nil && (t.isOpaque || isObject && t.isData) {
			return nil
		}
		if isObject && e.from != nil && e.from.typ == nil && s.heap.isStorage(e.from) {
			return nil
		}
		if e.from != nil && s.heap.isTable(e) {
			owners = append(owners, e)
		}
	}
	if len(owners) > 0 {
		return owners
	}

	return edges
}

// typ returns the type of the object that refers; nil: it is none.
func (e edge) typ() *typeInfo {
	if e.from == nil {
		return nil
	}
	return e.from.typ
}

// isStorage reports whether a block is a StorageImpl of PyTorch: it leads to numbers.
func (h *Heap) isStorage(n *node) bool {
	vtable, _ := h.word(n.address)
	if isOne, ok := h.storages[vtable]; ok {
		return isOne
	}
	m, ok := process.FindMapping(h.memory.maps, vtable)
	isOne := ok && torch.HasStorageImpl(m) &&
		h.statics.Constant(m, vtable) == torch.StorageImplVtable
	if ok && m.IsFile() && len(h.storages) < maxTypes {
		h.storages[vtable] = isOne
	}
	return isOne
}

// isStrong reports whether a reference to an object is counted by it. known is false while that
// cannot be known.
func (s *search) isStrong(e edge) (isStrong, known bool) {
	switch {
	case e.root != nil:
		return !isBorrower(*e.root), true
	case e.from.typ != nil:
		_, ok := s.heap.objectReference(e)
		return ok, true
	case !e.from.searched:
		return false, s.heap.isRoot(e.from)
	}
	for _, owner := range e.from.edges {
		if owner.from == nil || owner.from.typ == nil {
			continue
		}
		if _, isTable, ok := s.heap.tableReference(owner, e.at); isTable && ok {
			return true, true
		}
	}

	return false, true
}

// isBorrower reports whether a root never owns an object of Python. Native code on a thread's stack
// borrows objects and leaves their addresses behind. The dynamic linker has none, but its arrays lie
// in memory that may have been a table of Python's before.
func isBorrower(r keeper.Root) bool {
	return r.Kind == keeper.RootThread || r.Kind == keeper.RootStatic && isLinkerOfGlibc(r.Module)
}

// isLinkerOfGlibc reports whether a file has the name of glibc's dynamic linker. Before glibc 2.34
// it was that with the version, such as ld-2.31.so. musl's ld-musl-x86_64.so.1 is the C library, too.
func isLinkerOfGlibc(file string) bool {
	name := path.Base(file)
	return strings.HasPrefix(name, "ld-linux") || strings.HasPrefix(name, "ld-2.")
}

// rankOf orders kinds of roots: those that a reader can look up come first, if they are not much
// farther.
func rankOf(r keeper.Root) int {
	switch {
	case r.Kind == keeper.RootThread:
		return 100
	case r.Kind == keeper.RootLocal && r.Name == "":
		return 8
	case r.Kind == keeper.RootLocal:
		return levelsAfter
	case r.Kind == keeper.RootStatic:
		return levelsAfter + 1
	}
	return 0
}

// up returns the way one step further, by a reference to its outermost node; false: the reference
// is stale.
func (s *search) up(w *way, e edge) (*way, bool) {
	h := s.heap
	if h.structures != nil && w.node.typ == nil && w.below != nil {
		if r, isTable, ok := h.tableReference(e, w.at); isTable {
			words := append(slices.Clone(w.words), e)
			return newWay(w.below, e, r, w.length+1, words), ok
		}
	}
	r := reference{how: keeper.HowField}
	if h.structures != nil {
		var ok bool
		if r, ok = h.objectReference(e); !ok && w.node.typ == nil && w.below == nil {
			r, ok = h.bufferReference(e)
		}
		if !ok {
			return nil, false
		}
	}

	return newWay(w, e, r, w.length+1, []edge{e}), true
}

// newWay returns a way from a reference to a node on to the ways below.
func newWay(below *way, e edge, r reference, length int, words []edge) *way {
	w := &way{
		node: e.from, at: e.at, ref: r, below: below, length: length, words: words,
		container: below.container,
	}
	if r.isDict && below.node == below.container { // it has an object's attributes
		w.container = nil
		if below.below != nil {
			w.container = below.below.container
		}
	}
	if w.container == nil && w.node.isContainer() {
		w.container = w.node
	}

	return w
}

// isContainer reports whether a node is a list, dict, set or deque.
func (n *node) isContainer() bool {
	if n.typ == nil {
		return false
	}
	switch n.typ.kind {
	case kindList, kindDict, kindSet, kindDeque:
		return true
	}
	return false
}

// rootOf returns the root that the outermost node of a way is: the dict of a module, or a class.
func (s *search) rootOf(w *way) (rooted, bool) {
	h := s.heap
	if w.node.typ == nil || w.below == nil {
		return rooted{}, false
	}
	if m, ok := h.modules[w.node.address]; ok {
		root := keeper.Root{Kind: keeper.RootGlobal, Module: m.Name, File: m.File, Name: w.ref.attr}
		return rooted{root: root, way: w.below}, true
	}
	if t := h.classOf(w.node); t != nil {
		root := keeper.Root{
			Kind: keeper.RootClass, Module: t.module, Owner: t.qualifiedName(), Name: w.ref.attr,
		}
		root.File = h.fileOf(t.module)
		return rooted{root: root, way: w.below}, true
	}

	return rooted{}, false
}

// classOf returns the class that a dict has the attributes of; nil: it is none that has a name.
func (h *Heap) classOf(n *node) *typeInfo {
	for _, e := range n.edges {
		f := e.from
		if f == nil || f.typ == nil || f.typ.kind != kindType ||
			e.at != f.address+h.structures.TypeDict {
			continue
		}
		if t := h.typeOf(f.address); t != nil && h.isNamed(t) {
			return t
		}
	}
	return nil
}

// completed returns the root of a way that ends at memory which is a root itself.
func (s *search) completed(root keeper.Root, w *way) keeper.Root {
	if root.Kind == keeper.RootClass {
		root.Name, root.File = w.ref.attr, s.heap.fileOf(root.Module)
	}
	return root
}

func (h *Heap) fileOf(module string) string {
	for _, m := range h.modules {
		if m.Name == module {
			return m.File
		}
	}
	return ""
}

// A step is one object of a path from the root downwards, and how the one above refers to it.
type step struct {
	node *node
	ref  reference
	// repeated is set for the last of a run of objects of one type that refer to each other alike.
	repeated bool
}

// stepsOf returns the objects of a way from the root downwards, without the ones of no interest:
// dicts of attributes, cells and tuples of functions, and memory without a type in between.
func (s *search) stepsOf(w *way) (steps []step) {
	ref := reference{how: keeper.HowVariable}
	for ; w != nil; w = w.below {
		next := w.ref
		switch {
		case ref.isDict && w.below != nil && next.how == keeper.HowValue: // the dict of attributes
			next.how, next.name = keeper.HowAttribute, next.attr
			ref = next
			continue
		case ref.how == keeper.HowClosure && w.node.typ != nil && w.node.typ.kind == kindTuple && w.below != nil:
			next.how, next.attr = keeper.HowClosure, s.freeVariable(steps, w)
			ref = next
			continue
		case ref.how == keeper.HowDefault && w.node.typ != nil && w.below != nil &&
			(w.node.typ.kind == kindTuple || w.node.typ.kind == kindDict):
			next.how = keeper.HowDefault
			if w.node.typ.kind == kindTuple {
				next.attr = s.argument(steps, w)
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
func (s *search) freeVariable(steps []step, closure *way) string {
	if len(steps) == 0 {
		return ""
	}
	f, ok := s.heap.python.Function(steps[len(steps)-1].node.address)
	i := (closure.at - closure.node.address - s.heap.structures.TupleItem) / wordSize
	if !ok || i >= uint64(len(f.FreeVars)) {
		return ""
	}
	return f.FreeVars[i]
}

// argument returns the name of a default argument, by its place in __defaults__.
func (s *search) argument(steps []step, defaults *way) string {
	if len(steps) == 0 {
		return ""
	}
	f, ok := s.heap.python.Function(steps[len(steps)-1].node.address)
	n := s.heap.length(defaults.node.address, defaults.node.typ)
	if !ok {
		return ""
	}
	index := (defaults.at - defaults.node.address - s.heap.structures.TupleItem) / wordSize
	i := int64(index) + int64(len(f.Args)) - n // they belong to the last arguments
	if n < 0 || i < 0 || i >= int64(len(f.Args)) {
		return ""
	}

	return f.Args[i]
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

// linkOf returns a step as the domain has it. isShared is set if all samples have this very object
// there.
func (s *search) linkOf(st step, isShared bool) keeper.Link {
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
	if isShared && s.heap.structures != nil {
		l.Entries = keeper.Entries(s.heap.length(st.node.address, st.node.typ))
	}

	return l
}
