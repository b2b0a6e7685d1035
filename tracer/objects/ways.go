package objects

import (
	"cmp"
	"slices"

	"github.com/allocscope/allocscope/growth/keeper"
	"github.com/allocscope/allocscope/tracer/cpython"
	"github.com/allocscope/allocscope/tracer/heap/glibc"
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
	// A run of nodes of one structure of C, as of a list or tree, leads on by the field of the
	// first of them. alike counts the nodes behind that one, numbers the ones that have a number in
	// the field.
	field          uint64
	alike, numbers int
}

// A rootPath is a root with the way from it down to a sample.
type rootPath struct {
	root keeper.Root
	way  *way // from the outermost node
	rank int
	word *edge // by which the root refers to it; nil: it is part of the way
}

const (
	maxRoots = 16      // of one sample, and containers on ways to one place
	maxWays  = 1 << 14 // of one sample
)

// A wayFinder follows references upwards, from samples to roots.
type wayFinder struct {
	heap  *Heap
	lists *linkedLists
	// tables and objects are the references that were read so far. Ways of many samples go through
	// the same objects, level after level.
	tables  map[tableKey]knownReference
	objects map[uint64]knownReference // by where the word is
}

// A tableKey is a word of a container that leads to its table, and a word in the table.
type tableKey struct{ owner, at uint64 }

// A knownReference is a result of objectReader.
type knownReference struct {
	reference
	isTable, ok bool
}

func newWayFinder(h *Heap, lists *linkedLists) *wayFinder {
	f := &wayFinder{heap: h, lists: lists}
	f.forget()
	return f
}

// forget makes the finder read references again: the process has gone on since.
func (f *wayFinder) forget() {
	f.tables = make(map[tableKey]knownReference)
	f.objects = make(map[uint64]knownReference)
	f.heap.pages.forget()
}

// tableReference is objectReader.tableReference, read once.
func (f *wayFinder) tableReference(e edge, at uint64) (r reference, isTable, ok bool) {
	if e.typ() == nil {
		return reference{}, false, false
	}

	key := tableKey{e.at, at}
	known, isKnown := f.tables[key]
	if !isKnown {
		known.reference, known.isTable, known.ok = f.heap.objects.tableReference(e, at)
		f.tables[key] = known
	}
	return known.reference, known.isTable, known.ok
}

// objectReference is objectReader.objectReference, read once.
func (f *wayFinder) objectReference(e edge) (reference, bool) {
	if e.typ() == nil {
		return f.heap.objects.objectReference(e)
	}

	known, isKnown := f.objects[e.at]
	if !isKnown {
		known.reference, known.ok = f.heap.objects.objectReference(e)
		f.objects[e.at] = known
	}
	return known.reference, known.ok
}

// A wayQueue has the ways that are to be followed, the shortest first.
type wayQueue struct {
	ways []*way
	// later has the ways through another object of the sample's type, which come last: hundreds of
	// tensors in the same lists lead to each other.
	later  []*way
	sample *node
	seen   map[wayKey]bool
	// containers counts the ways to one place that differ by their containers alone.
	containers map[wayKey]int
}

// A wayKey is the same for ways that go on alike: only the first of them is followed. Ways through
// one node by different containers have different keepers, and both count.
type wayKey struct {
	node, container *node
	at              uint64
}

// push adds a way, unless one like it was added before.
func (q *wayQueue) push(w *way) {
	k := wayKey{node: w.node, container: w.container}
	switch {
	case w.node.typ == nil: // which entry of a table it is decides about the name
		k.at = w.at
	case w.node.typ.kind == kindDict && len(w.words) > 1: // several variables may share it
		k.at = w.words[len(w.words)-2].at
	}

	place := k
	place.container = nil
	if !q.seen[k] && len(q.seen) < maxWays && q.containers[place] < maxRoots {
		q.seen[k] = true
		q.containers[place]++
		if w.below != nil && w.node.typ != nil && w.node.typ == q.sample.typ {
			q.later = append(q.later, w)
			return
		}
		q.ways = append(q.ways, w)
	}
}

// next returns the next way; nil: there is none, or others are open or lead to a root with a name.
func (q *wayQueue) next(found []rootPath, open []*way) (w *way) {
	isNamed := func(f rootPath) bool { return rankOf(f.root) == 0 }
	if len(q.ways)+len(open) == 0 && !slices.ContainsFunc(found, isNamed) {
		q.ways, q.later = q.later, nil
	}
	if len(q.ways) > 0 {
		w, q.ways = q.ways[0], q.ways[1:]
	}
	return w
}

// An island has the references to a sample, where none of them leads to a root.
type island struct {
	// tracked leads to an object that the garbage collector tracks, where all that refers to the
	// sample is known: then the sample is garbage if that still holds.
	tracked *way
	// cycle leads from the sample to memory of C++ around a tensor that the sample keeps itself,
	// where nothing else was found; an empty one: there is none.
	cycle rootPath
	// ends are the ways that lead to memory to which nothing refers any more.
	ends []*way
}

// rootsOf follows the references to a sample upwards, and returns the roots that they lead to, the
// best first, and the ways to nodes that references have not been searched for yet. It returns the
// island that the sample is in where it finds neither.
func (f *wayFinder) rootsOf(sample *node) (found []rootPath, open []*way, in island) {
	queue := &wayQueue{
		sample: sample, seen: make(map[wayKey]bool), containers: make(map[wayKey]int),
	}
	queue.push(&way{node: sample})

	isClosed, shore := true, shore{isWhole: true}
	for len(found) < maxRoots {
		w := queue.next(found, open)
		if w == nil {
			break
		}
		if f.heap.memory.budget.isSpent() {
			isClosed, shore.isWhole = false, false
			break
		}
		if w.node.typ != nil && w.node.typ.flags&cpython.FlagHaveGC != 0 {
			in.tracked = w
		}
		if root, ok := f.rootOf(w); ok {
			found = append(found, root)
			continue
		}
		if !w.node.isFollowed {
			open, isClosed = append(open, w), false
			continue
		}

		if head := f.lists.heads[w.node]; head != nil {
			// The head is in the place of the node: it leads on in the same way, by other objects between.
			last := &way{
				node: head.node, at: head.at, ref: w.ref, below: w.below, length: w.length + 1,
				container: w.container,
			}
			queue.push(last)
			in.ends = append(in.ends, last) // where the variable leads to a newer one
			shore.isWhole = false           // the references to the nodes between have not been read
			continue
		}
		before := len(queue.seen)
		direct, areKnown := f.follow(queue, w, sample, &shore)
		if len(direct) == 0 && len(queue.seen) == before && shore.isEnd {
			in.ends = append(in.ends, w)
		}
		found = append(found, direct...)
		isClosed = isClosed && areKnown
	}

	isClosed = isClosed && len(queue.later) == 0
	for i := range found {
		found[i].rank = rankOf(found[i].root) + found[i].way.length
	}
	slices.SortStableFunc(found, func(a, b rootPath) int { return cmp.Compare(a.rank, b.rank) })
	if !isClosed || len(found) > 0 {
		in.tracked = nil
	}
	if in.tracked == nil && len(found) == 0 && len(open) == 0 && len(queue.seen) < maxWays {
		in.cycle, in.tracked = shore.cycle()
	}
	return found, open, in
}

// A shore has the findings on the memory that refers to a sample, while it is followed.
type shore struct {
	isWhole bool      // each block has references, and each reference is known
	closing rootPath  // the first way that comes back to itself
	tensor  *typeInfo // of the tensor nearest to the sample
	isEnd   bool      // the last block has no reference
	isOwned bool      // C++ counts as a reference to a tensor
}

// cycle returns the cycle of C++ that keeps a tensor, where nothing else refers to it. Where the
// garbage collector sees all of the cycle, tracked leads to an object of it instead.
func (s *shore) cycle() (cycle rootPath, tracked *way) {
	if !s.isWhole || s.tensor == nil || s.closing.way == nil {
		return rootPath{}, nil
	}
	if tracked = s.closing.tracked(); tracked != nil {
		if s.isOwned {
			tracked = nil
		}
		return rootPath{}, tracked
	}
	s.closing.root = keeper.Root{Kind: keeper.RootCycle, Name: s.tensor.name}
	return s.closing, nil
}

// maxGraphBlocks is the most blocks of C++ from a tensor to an object that its tp_traverse visits:
// TensorImpl, AutogradMeta, a list of hooks, and a hook or the grad_fn.
// https://github.com/pytorch/pytorch/blob/main/torch/csrc/autograd/python_variable.cpp
const maxGraphBlocks = 4

// tracked returns the way to an object of a closed way, where the garbage collector can follow the
// way from object to object; nil: it cannot. It follows C++ only from a tensor to its hooks and its
// grad_fn, and only where C++ has no further pointer to the tensor.
func (p rootPath) tracked() *way {
	var ring []*way
	for w := p.way; w != nil; w = w.below {
		if ring = append(ring, w); w.node == p.word.from {
			break
		}
	}
	start := slices.IndexFunc(ring, func(w *way) bool {
		t := w.node.typ
		return t != nil && !t.isTensor && t.flags&cpython.FlagHaveGC != 0
	})
	if start < 0 {
		return nil
	}

	ring = slices.Concat(ring[start:], ring[:start+1])
	above, blocks := ring[0].node, []*node(nil)
	for _, w := range ring[1:] {
		n := w.node
		if n.typ == nil {
			blocks = append(blocks, n)
			continue
		}
		isSeen := len(blocks) == 0 || above.typ.isTensor && !n.typ.isTensor &&
			len(blocks) <= maxGraphBlocks && torch.IsUnshared(blocks[0].second)
		if !isSeen {
			return nil
		}
		above, blocks = n, nil
	}
	return ring[0]
}

// add notes the references to the outermost node of a way, and whether the node counts as many.
func (s *shore) add(w *way, edges []edge, areCounted bool) {
	n := w.node
	s.isEnd = true
	s.isWhole = s.isWhole && len(edges) > 0 && (areCounted || n.foreign == 0 && !n.more)
	if n.typ != nil && n.typ.isTensor {
		s.tensor = cmp.Or(s.tensor, n.typ)
		s.isWhole = s.isWhole && n.hasAllOwners()
	}
	for _, e := range edges {
		s.isOwned = s.isOwned || n.typ != nil && n.typ.isTensor && e.isOfImpl()
		if e.root != nil {
			s.isWhole = s.isWhole && isBorrower(*e.root)
			continue
		}
		// A tensor refers to its TensorImpl, which owns it: that is no cycle.
		isPair := w.below != nil && e.from == w.below.node || e.from == n
		for at := w; at != nil && s.closing.way == nil && !isPair; at = at.below {
			if at.node == e.from {
				s.closing = rootPath{way: w, word: &e}
			}
		}
	}
}

// isSearched reports whether all references to the nodes of a way are known.
func (w *way) isSearched() bool {
	for ; w != nil; w = w.below {
		if !w.node.searched {
			return false
		}
	}
	return true
}

// follow adds the ways that go on from the outermost node of a way, and returns the roots that
// refer to it. areKnown is set if nothing else can refer to the node.
func (f *wayFinder) follow(
	queue *wayQueue, w *way, sample *node, in *shore,
) (found []rootPath, areKnown bool) {
	n := w.node
	if n.isBuffer && w.below != nil {
		return nil, false
	}
	edges, isComplete := f.references(n)
	areKnown = isComplete || n.typ == nil && n.searched && n.isOwned()
	if n.typ == nil && w.below != nil {
		edges = f.owners(edges, sample.typ != nil)
	}
	in.add(w, edges, isComplete)
	areKnown = areKnown && !in.isOwned // C++ may have a pointer to the tensor that was not found

	isObject := sample.typ != nil || n.typ != nil
	for _, e := range edges {
		switch {
		case f.heap.memory.budget.isSpent():
			in.isWhole = false
			return found, false
		case e.root != nil && isObject && isBorrower(*e.root):
		case e.root != nil:
			found = append(found, rootPath{root: f.completed(*e.root, w), way: w, word: &e})
		default:
			up, ok := f.up(w, e)
			if ok {
				queue.push(up)
			}
			in.isEnd = in.isEnd && !ok
			areKnown = areKnown && ok // the process has gone on since the reference was read
			in.isWhole = in.isWhole && ok
		}
	}
	return found, areKnown
}

// references returns the references that keep a node. isComplete is set if no others do: the
// references that were found in objects, and in memory with a name, are as many as the object
// counts. Then all other words that look like a reference are none: values that native code has
// borrowed, or that nobody uses any more. That holds as well where some words were left out, or the
// time was too short to read all memory: no reference is missing then.
func (f *wayFinder) references(n *node) (edges []edge, isComplete bool) {
	if n.isKnown {
		return n.kept, n.isComplete
	}

	isKnown := n.isFollowed
	if n.typ == nil || uint64(len(n.edges)) < n.refcnt { // nothing counts them, or some are missing
		n.kept, n.isKnown = n.edges, isKnown
		return n.edges, false
	}

	var strong []edge
	for _, e := range n.edges {
		isStrong, known := f.isStrong(n, e)
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

// owners returns the references to a table by the container that owns it: then no other word
// counts. For memory that is no table of a container it returns all references; for data none.
// Memory of C that leads to data may lead to other memory of C; isObject is set if an object is
// looked for.
func (f *wayFinder) owners(edges []edge, isObject bool) []edge {
	if f.heap.types == nil {
		return edges
	}

	var owners, others []edge
	for _, e := range edges {
		if t := e.typ(); t != nil && (t.isOpaque || isObject && t.isData) || isText(e) {
			return nil
		}
		if isObject && e.from != nil && e.from.typ == nil && f.heap.roots.isStorage(e.from) {
			if torch.IsStorageData(e.at - e.from.address) {
				return nil
			}
			continue // its other words keep no memory of C that leads to objects
		}
		if _, isTable, _ := f.tableReference(e, e.value); isTable {
			owners = append(owners, e)
		}
		others = append(others, e)
	}
	if len(owners) > 0 {
		return owners
	}
	return others
}

// isText reports whether a word leads to the name or the text of a function of C.
func isText(e edge) bool {
	if e.from == nil || e.from.typ != nil {
		return false
	}
	return slices.ContainsFunc(e.from.edges, func(method edge) bool {
		t := method.typ()
		return t != nil && t.isMethod &&
			(e.at == method.value+cpython.MethodName || e.at == method.value+cpython.MethodDoc)
	})
}

// isStrong reports whether a reference to an object is counted by it. known is false while that
// cannot be known.
func (f *wayFinder) isStrong(n *node, e edge) (isStrong, known bool) {
	switch {
	case e.root != nil:
		return !isBorrower(*e.root), true
	case n.typ.isTensor && e.isOfImpl():
		return true, true
	case e.from.typ != nil:
		_, ok := f.objectReference(e)
		return ok, true
	case !e.from.isFollowed:
		return false, f.heap.roots.isRoot(e.from)
	}

	// The word is in memory without an object. It counts if that is the table of a container, and
	// the container has an entry there.
	for _, owner := range e.from.edges {
		if owner.from == nil || owner.from.typ == nil {
			continue
		}
		if _, isTable, ok := f.tableReference(owner, e.at); isTable && ok {
			return true, true
		}
	}
	return false, true
}

// up returns the way one step further, by a reference to its outermost node; false: the reference
// is stale.
func (f *wayFinder) up(w *way, e edge) (*way, bool) {
	h := f.heap
	// A table is no step of its own: the container refers to the object, by two words.
	if h.types != nil && w.node.typ == nil && w.below != nil {
		if r, isTable, ok := f.tableReference(e, w.at); isTable {
			words := append(slices.Clone(w.words), e)
			return newWay(w.below, e, r, w.length+1, words), ok
		}
	}

	r := reference{how: keeper.HowField}
	if h.types != nil {
		var ok bool
		if r, ok = f.objectReference(e); !ok && w.node.typ == nil && w.below == nil {
			r, ok = h.objects.bufferReference(e)
		}
		if !ok {
			return nil, false
		}
	}
	up := newWay(w, e, r, w.length+1, []edge{e})
	up.field = e.at - e.from.block.Start
	if w.below != nil && f.areAlike(w.node, e.from) {
		up.field, up.alike, up.numbers = w.field, w.alike+1, w.numbers
		if word, ok := h.pages.word(e.from.block.Start + up.field); ok && word >= process.PageSize &&
			!h.memory.isMapped(word) {
			up.numbers++
		}
	}
	return up, up.numbers == 0 || up.alike < minAlike
}

// minAlike is how many nodes of one structure show that a field of theirs has numbers. A few nodes
// of one size may be of several structures.
const minAlike = 3

// areAlike reports whether two blocks of C may be of one structure: they have one size, and one
// table of functions or none.
func (f *wayFinder) areAlike(a, b *node) bool {
	if a.typ != nil || b.typ != nil || a.block.kind != b.block.kind || !isSize(a.block, b.block.Len()) {
		return false
	}
	nodes := f.lists.search.nodes
	return a.first == b.first || !nodes.hasVtable(a) && !nodes.hasVtable(b)
}

// rootOf returns the root that the outermost node of a way is: the dict of a module, or a class.
func (f *wayFinder) rootOf(w *way) (rootPath, bool) {
	h := f.heap
	if w.node.typ == nil || w.below == nil {
		return rootPath{}, false
	}

	if m, ok := h.roots.modules[w.node.address]; ok {
		root := keeper.Root{
			Kind: keeper.RootGlobal, Module: m.Name, File: h.python.FileOf(m), Name: h.named(w.ref).attr,
		}
		return rootPath{root: root, way: w.below}, true
	}
	if t := h.roots.classOf(w.node); t != nil {
		root := keeper.Root{
			Kind: keeper.RootClass, Module: t.module, Owner: t.qualifiedName(),
			Name: h.named(w.ref).attr,
		}
		root.File = h.roots.fileOf(t.module)
		return rootPath{root: root, way: w.below}, true
	}
	return rootPath{}, false
}

// completed returns the root of a way that ends at memory which is a root itself.
func (f *wayFinder) completed(root keeper.Root, w *way) keeper.Root {
	if root.Kind == keeper.RootClass {
		root.Name = f.heap.named(w.ref).attr
		root.File = f.heap.roots.fileOf(root.Module)
	}
	return root
}

// newWay returns a way from a reference to a node on to the ways below.
func newWay(below *way, e edge, r reference, length int, words []edge) *way {
	w := &way{
		node: e.from, at: e.at, ref: r, below: below, length: length, words: words,
		container: below.container,
	}

	// The dict of an object's attributes is no container that a reader knows: the object is.
	if r.isDict && below.node == below.container {
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

// isBorrower reports whether a root never owns an object of Python. Native code on a thread's stack
// borrows objects and leaves their addresses behind. The dynamic linker has none, but its arrays
// lie in memory that may have been a table of Python's before.
func isBorrower(r keeper.Root) bool {
	return r.Kind == keeper.RootThread || r.Kind == keeper.RootStatic && glibc.IsLinker(r.Module)
}

// rankOf orders kinds of roots: those that a reader can look up come first, if they are not much
// farther.
//
// The ranks are in references. A global variable, a class or a cache comes before a local or static
// variable that is some references nearer. A stack of native code comes last: its words may be of a
// call that has ended.
func rankOf(r keeper.Root) int {
	const localRank, unnamedRank, threadRank = 3, 8, 100
	switch {
	case r.Kind == keeper.RootThread:
		return threadRank
	case r.Kind == keeper.RootLocal && r.Name == "":
		return unnamedRank
	case r.Kind == keeper.RootLocal:
		return localRank
	case r.Kind == keeper.RootStatic:
		return localRank + 1
	}
	return 0
}
