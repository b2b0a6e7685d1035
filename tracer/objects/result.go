package objects

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/allocscope/allocscope/growth/keeper"
	"github.com/allocscope/allocscope/tracer/cpython"
	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/process"
)

// minPart is the part of the samples, one in so many, that a path must explain.
const minPart = 4

// maxPaths is the number of paths of one suspect that are reported.
const maxPaths = 4

// maxTable is the number of bytes of a table that are searched for an entry again.
const maxTable = 64 << 20

// A candidate is a root with the ways by which samples lead to it.
type candidate struct {
	root     keeper.Root
	isSpread bool // the samples are kept by several places of one static variable
	ways     [][]step
	rank     int // of the shortest way
	complete bool
}

// A candidateKey is the keeper of samples: a variable, and how it leads to them, or to the entries of
// a container that have them somewhere.
type candidateKey struct {
	root      keeper.Root
	pattern   string
	container *node
}

// isWhole reports whether it leads to the samples themselves.
func (k candidateKey) isWhole() bool { return k.container == nil }

// A reporter makes the result of a search from its nodes.
type reporter struct {
	heap  *Heap
	ways  *wayFinder
	began time.Duration // CPU time when the search began
	late  bool          // the time was used up
	// chains has the ways from variables to the ends of ways.
	chains map[*node]headChain
}

// unexplainedSamples counts the samples that no root keeps, by the reason.
type unexplainedSamples struct {
	without  int  // no root was found
	changed  int  // a word of each way to a root has changed since
	isNative bool // words of native memory refer to some of the first
}

// result returns the findings on a suspect.
func (rep *reporter) result(suspect Suspect, samples []*node) keeper.Search {
	r := keeper.Search{
		PID: rep.heap.process.PID, Stack: suspect.Stack, Type: suspect.Type,
		Collections: rep.heap.collections(), Took: process.OwnCPUTime() - rep.began,
		Elapsed: process.Monotonic(),
	}

	candidates := make(map[candidateKey]*candidate)
	var rest unexplainedSamples
	rep.ways.forget()
	var pathless, garbage []uint64
	for _, n := range samples {
		if !rep.isAlive(n) {
			continue
		}
		r.Samples++

		// The process has gone on since the words were read: only ways that hold now count.
		found, _, in := rep.ways.rootsOf(n)
		tracked, cycle := in.tracked, in.cycle
		if rep.heap.isUnread() {
			found = nil
		}
		known := len(found)
		found = slices.DeleteFunc(found, func(f rootPath) bool { return !rep.holds(f) })
		if len(found) == 0 {
			if path, ok := rep.headPath(in.ends); ok {
				found = []rootPath{path}
			}
		}
		switch {
		case len(found) > 0:
			rep.addTo(candidates, independent(found))
		case known > 0, len(n.edges) == 0 && n.foreign == 0 && n.isMoving,
			tracked != nil && len(n.edges) > 0 && !rep.isStill(tracked):
			pathless = append(pathless, n.asked)
			rest.changed++
		case tracked != nil && len(n.edges) > 0:
			garbage = append(garbage, tracked.node.address)
		case cycle.way != nil && rep.holds(cycle):
			rep.addTo(candidates, []rootPath{cycle})
		default:
			pathless = append(pathless, n.asked)
			rest.without++
			rest.isNative = rest.isNative || len(n.edges) > 0 || n.foreign > 0
		}
	}

	if r.Garbage = len(garbage); r.Garbage > 0 {
		r.Waits = rep.heap.waits(garbage)
	}
	r.Sweep = keeper.Sweep{Lost: pathless, Samples: r.Samples}
	r.Paths = rep.paths(candidates, r.Samples)
	r.Reason = rep.reason(r, rest)
	runtime := rep.heap.roots.statics.Runtime()
	isNative := suspect.Type == "" && !slices.ContainsFunc(samples, (*node).isObject)
	interpreter := rep.heap.roots.statics.Interpreter()
	if r.Reason == keeper.ReasonNative && interpreter != "" {
		r.Reason, r.Sweep.Runtime = keeper.ReasonRuntime, interpreter
	}
	isKept := len(r.Paths) > 0 || r.Reason == keeper.ReasonNative
	if isNative && isKept && runtime != "" { // its references may keep them
		r.Paths, r.Reason = nil, keeper.ReasonRuntime
		r.Sweep = keeper.Sweep{
			Samples: r.Samples, Premise: keeper.PremiseRuntime, Runtime: runtime,
		}
	}
	return r
}

// reason returns why some samples have no path, the most frequent reason; keeper.ReasonNone: all
// have one.
func (rep *reporter) reason(r keeper.Search, rest unexplainedSamples) keeper.Reason {
	h := rep.heap
	// Samples with roots that too few others share.
	many := unexplained(r) - rest.without - rest.changed - r.Garbage

	switch {
	case r.Samples == 0 && len(h.heaps.Spans) == 0 && h.memory.others == nil:
		return keeper.ReasonAllocator
	case r.Samples == 0:
		return keeper.ReasonFreed
	case unexplained(r) == 0:
		return keeper.ReasonNone
	case h.isUnread():
		return keeper.ReasonUnsupported
	case rep.late || h.memory.budget.check():
		return keeper.ReasonBudget
	case r.Garbage >= max(1, rest.without, rest.changed):
		return keeper.ReasonGarbage
	case rest.changed > rest.without:
		return keeper.ReasonChanging
	case many > rest.without:
		return keeper.ReasonMany
	case rest.isNative:
		return keeper.ReasonNative
	}
	return keeper.ReasonUnreferenced
}

// isAlive reports whether a sample is still the same object as when the search began.
func (rep *reporter) isAlive(n *node) bool {
	rep.heap.pages.forget()
	if n.typ == nil {
		again := &nodeTable{heap: rep.heap, byBlock: make(map[uint64]*node)}
		now := again.at(n.address)
		return now != nil && now.block == n.block
	}

	// Another object of the same type at the address counts as the same: its way is checked, too.
	head, ok := rep.heap.pages.peek(n.address, cpython.ObjectHead)
	return ok && mem.Word(head, cpython.ObRefcnt) != 0 &&
		mem.Word(head, cpython.ObType) == n.typ.address
}

// isStill reports whether the objects of a way are alive, and its words unchanged. An object that
// was freed has no references to it, as one of a cycle has none from outside.
func (rep *reporter) isStill(tracked *way) bool {
	for w := tracked; w != nil; w = w.below {
		if !rep.isAlive(w.node) {
			return false
		}
	}
	return rep.holds(rootPath{way: tracked})
}

// holds reports whether all words of a way are unchanged.
func (rep *reporter) holds(f rootPath) bool {
	if f.word != nil && !rep.isUnchanged(*f.word) {
		return rep.leads(f)
	}

	for w := f.way; w != nil; w = w.below {
		if slices.ContainsFunc(w.words, func(e edge) bool { return !rep.isUnchanged(e) }) &&
			!rep.stillHas(w) {
			return rep.leads(f)
		}
	}
	return true
}

// leads reports whether a root leads to a sample by memory of C at the offsets of a way, whatever
// its words are now: the head of a list moves.
func (rep *reporter) leads(f rootPath) bool {
	if f.word == nil {
		return false
	}

	at, before := f.word.at, f.word.value
	now, ok := rep.heap.readWord(at)
	for w := f.way; ok && w.below != nil; w = w.below {
		switch {
		case w.node.typ != nil:
			return false
		case len(w.words) == 0: // a list, of which the known part stays
			place := listPlace{w.node.address, w.at - w.node.address}
			ok = rep.ways.lists.leads(at, place, rep.heap.memory.budget)
			at, now, before = 0, w.below.node.address, w.below.node.address
		default:
			at = now + w.at - before
			now, ok = rep.heap.readWord(at)
			before = w.words[0].value
		}
	}
	return ok && now == before
}

// stillHas reports whether a container still has its reference: its table moves as it grows.
func (rep *reporter) stillHas(w *way) bool {
	if len(w.words) < 2 { // it has no table
		return false
	}

	rep.heap.pages.forget()
	value, has := w.words[len(w.words)-2].value, false
	rep.heap.memory.eachWord(rep.heap.objects.table(w.node).entries, func(_, word uint64) bool {
		has = word == value
		return !has
	})
	return has
}

// eachWord calls visit with the first maxTable bytes of a table and their places, a word at a time,
// until visit returns false. Memory that cannot be read has none.
func (m *memory) eachWord(s mem.Span, visit func(at, word uint64) bool) {
	end := s.Start + min(s.Len(), maxTable)
	for at := s.Start &^ (process.PageSize - 1); at < end && !m.budget.check(); at += pieceBytes {
		content := m.buffer[:min(pieceBytes, mem.AlignUp(end-at, process.PageSize))]
		if _, err := m.reader.PeekPages(at, content); err != nil {
			return
		}

		first := max(at, s.Start) - at
		for i := first; i+wordSize <= min(uint64(len(content)), end-at); i += wordSize {
			if !visit(at+i, mem.Word(content, i)) {
				return
			}
		}
	}
}

// isUnchanged reports whether a word is as it was when it was found.
func (rep *reporter) isUnchanged(e edge) bool {
	now, ok := rep.heap.readWord(e.at)
	return ok && now == e.value
}

// independent returns the ways whose container no better way has: they are other keepers, and not
// other names of the same one.
func independent(found []rootPath) (ways []rootPath) {
	used := make(map[*node]bool)
	for _, f := range found {
		container := containerOf(f.way)
		if container == nil || !used[container] {
			used[container] = true
			ways = append(ways, f)
		}
	}
	return ways
}

// containerOf returns the container on a way that is nearest to the sample; without one the object
// that refers to the sample, and nil if a variable does.
func containerOf(w *way) *node {
	if w.container != nil || w.below == nil {
		return w.container
	}
	for w.below.below != nil {
		w = w.below
	}
	return w.node
}

// addTo adds the ways of one sample to the candidates: each as a whole, and as far as the entries of
// each container on it.
func (rep *reporter) addTo(candidates map[candidateKey]*candidate, ways []rootPath) {
	seen := make(map[candidateKey]bool)
	for _, f := range ways {
		steps, isOnly := rep.stepsOf(f.way), rep.isOnly(f.way)
		add := func(pattern, steps []step, container *node) {
			key := candidateKey{f.root, patternOf(pattern), container}
			if key.root.Name != "" { // elements of one array are one variable
				key.root.Offset = 0
			}
			if seen[key] {
				return
			}
			seen[key] = true

			c := candidates[key]
			if c == nil {
				c = &candidate{root: f.root, rank: f.rank, complete: true}
				candidates[key] = c
			}

			// Places of one variable without a name are one candidate, without the offset.
			c.isSpread = c.isSpread || c.root.Offset != f.root.Offset
			c.rank = min(c.rank, f.rank)
			c.ways = append(c.ways, steps)
			c.complete = c.complete && isOnly
		}

		add(steps, steps, nil)
		for i := range max(0, len(steps)-2) {
			if steps[i].node.isContainer() {
				add(steps[:i+1], steps[:i+2], steps[i].node)
			}
		}
	}
}

// isOnly reports whether nothing but a way keeps its objects: each has one reference. Nothing
// counts the references to memory without an object.
func (rep *reporter) isOnly(w *way) bool {
	for ; w != nil; w = w.below {
		if w.node.typ == nil {
			return false
		}
		if kept, isComplete := rep.ways.references(w.node); !isComplete || len(kept) != 1 {
			return false
		}
	}
	return true
}

// paths returns the paths of the candidates, paths of most samples first. Where no one way leads to
// most samples, it begins with the container that has most of them somewhere in its entries.
func (rep *reporter) paths(candidates map[candidateKey]*candidate, samples int) []keeper.Path {
	var chosen []*candidate
	for key, c := range candidates {
		if key.isWhole() && c.isBelieved(samples) {
			chosen = append(chosen, c)
		}
	}
	isMost := func(c *candidate) bool { return 2*len(c.ways) >= samples }
	if !slices.ContainsFunc(chosen, isMost) {
		var around []*candidate
		for key, c := range candidates {
			if !key.isWhole() && isMost(c) && c.isBelieved(samples) && c.entries() > 1 {
				around = append(around, c)
			}
		}
		if len(around) > 0 {
			chosen = append(chosen, slices.MinFunc(around, compareCandidates))
		}
	}

	slices.SortFunc(chosen, compareCandidates)
	var paths []keeper.Path
	for _, c := range chosen[:min(len(chosen), maxPaths)] {
		paths = append(paths, rep.path(c))
	}
	return paths
}

// isBelieved reports whether a candidate leads to enough of so many samples. A native stack has values
// that nobody uses any more, and the evaluation stack changes all the time: they are believed only if
// most samples agree.
func (c *candidate) isBelieved(samples int) bool {
	if c.root.Kind == keeper.RootThread || c.root.Name == "" && c.root.Kind != keeper.RootCache {
		return 2*len(c.ways) > samples
	}
	return minPart*len(c.ways) >= samples
}

// entries is the number of objects at the ends of its ways.
func (c *candidate) entries() int {
	ends := make(map[*node]bool)
	for _, w := range c.ways {
		ends[w[len(w)-1].node] = true
	}
	return len(ends)
}

// isMixed reports whether the objects at the ends of its ways are of several types.
func (c *candidate) isMixed() bool {
	first := c.ways[0]
	return slices.ContainsFunc(c.ways, func(w []step) bool {
		return w[len(w)-1].node.typ != first[len(first)-1].node.typ
	})
}

// compareCandidates compares by the number of samples, then how near they are to the variable, and
// then how near to the samples.
func compareCandidates(a, b *candidate) int {
	return cmp.Or(cmp.Compare(len(b.ways), len(a.ways)), cmp.Compare(a.rank, b.rank),
		cmp.Compare(len(b.ways[0]), len(a.ways[0])),
		strings.Compare(a.root.Name, b.root.Name), strings.Compare(a.root.Owner, b.root.Owner))
}

// path returns the path of a candidate.
func (rep *reporter) path(c *candidate) keeper.Path {
	steps, shared := commonSteps(c.ways)
	p := keeper.Path{Root: c.root, Samples: len(c.ways), Complete: c.complete}
	if c.isSpread {
		p.Root.Offset = 0
	}

	// The root that is nearest to the samples says most: a function's closure rather than the
	// module in which the function is. In a chain of functions the variable that keeps the first does.
	from := 0
	for i := 0; i+1 < len(steps) && shared[i] && !steps[i+1].repeated; i++ {
		var owner *typeInfo // before 3.11 a generator has a frame object
		if i > 0 {
			owner = steps[i-1].node.typ
		}
		if root, ok := rep.innerRoot(steps[i], steps[i+1], owner); ok {
			p.Root, from = root, i+1
		}
	}

	for i := from; i < len(steps); i++ {
		l := rep.linkOf(steps[i], placesOf(c.ways, i))
		if i > 0 && shared[i-1] && l.Entries > 0 && l.Limit == 0 {
			l.Limit = rep.heap.objects.ownerLimit(steps[i-1].node, int64(l.Entries))
		}
		if i == from {
			l.How, l.Name = keeper.HowVariable, ""
		}
		p.Links = append(p.Links, l)
	}
	if last := len(steps) - 1; last > from && c.isMixed() {
		p.Links = p.Links[:len(p.Links)-1]
	}
	if p.Root.Kind == keeper.RootCache && from > 0 {
		rep.addCache(&p, steps[from-1].node)
	} else {
		rep.addUses(&p, c.root, steps, from)
	}
	return p
}

// addCache adds the entries of a functools.lru_cache, and its limit, to the path that it begins.
func (rep *reporter) addCache(p *keeper.Path, cache *node) {
	l, ok := rep.heap.objects.cacheLink(cache)
	switch {
	case !ok:
	case len(p.Links) > 0 && p.Links[0].Type == l.Type:
		p.Links[0].Limit = l.Limit
	default:
		if len(p.Links) > 0 {
			p.Links[0].How = keeper.HowValue
		}
		p.Links = slices.Insert(p.Links, 0, l)
	}
}

// commonSteps returns the steps of ways of one pattern, without the names that differ among them.
// shared says of each step whether all ways have the same object there.
func commonSteps(ways [][]step) (steps []step, shared []bool) {
	steps = slices.Clone(ways[0])
	shared = make([]bool, len(steps))
	isShared := true
	for i := range steps {
		for _, w := range ways {
			isShared = isShared && w[i].node == steps[i].node
			if w[i].ref.name != steps[i].ref.name || w[i].ref.attr != steps[i].ref.attr {
				steps[i].ref.name, steps[i].ref.attr = "", ""
			}
		}
		shared[i] = isShared
	}
	return steps, shared
}

// innerRoot returns the root that an object on the way is: a function with the objects that its
// closure and defaults keep, a cache, or a generator, of which it may be the frame object; owner is
// the type of the object above.
func (rep *reporter) innerRoot(at, next step, owner *typeInfo) (keeper.Root, bool) {
	n := at.node
	if n.typ == nil {
		return keeper.Root{}, false
	}

	how := next.ref.how
	switch {
	case n.typ.kind == kindFunction && how == keeper.HowClosure:
		return rep.functionRoot(keeper.RootClosure, n.address, next.ref.attr)
	case n.typ.kind == kindFunction && how == keeper.HowDefault:
		return rep.functionRoot(keeper.RootDefault, n.address, next.ref.attr)

	case n.typ.kind == kindCache:
		function, _ := rep.heap.pages.word(n.address + rep.heap.version.LRUFunc)
		root, ok := rep.functionRoot(keeper.RootCache, function, "")
		return root, ok && root.Owner != ""

	case n.typ.kind == kindGenerator:
		owner = n.typ
	case n.typ.kind != kindFrame || owner == nil || owner.kind != kindGenerator:
		return keeper.Root{}, false
	}

	f, ok := rep.heap.python.FrameOf(n.address, n.typ.name)
	kind := keeper.RootGenerator
	if owner.name == "coroutine" {
		kind = keeper.RootCoroutine
	}
	return keeper.Root{
		Kind: kind, Module: f.Module, File: f.File, Line: f.Line, Owner: f.Function,
		Name: next.ref.attr,
	}, ok && how == keeper.HowLocal
}

// functionRoot returns a root that is a function, or one of its variables by name.
func (rep *reporter) functionRoot(
	kind keeper.RootKind, address uint64, name string,
) (keeper.Root, bool) {
	f, ok := rep.heap.python.Function(address)
	if !ok {
		return keeper.Root{}, false
	}
	return keeper.Root{
		Kind: kind, Module: f.Module, File: f.File, Line: f.Line, Owner: f.Qualname, Name: name,
	}, true
}
