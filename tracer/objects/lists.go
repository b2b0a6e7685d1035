package objects

import (
	"slices"

	"github.com/allocscope/allocscope/growth/keeper"
	"github.com/allocscope/allocscope/tracer/cpython"
	"github.com/allocscope/allocscope/tracer/heap/glibc"
	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/process"
)

// linkedLists are the linked lists that ways follow: to go back a node a level would take too long.
type linkedLists struct {
	heap   *Heap
	search *search
	heads  map[*node]*way // of the lists, by the nodes from which the ways go on; nil: no list
	// passed has the heads of lists by some of their nodes: other ways lead through these.
	passed map[listPlace]uint64
	// newest are nodes that lead to the heads of lists that grow at their front; 0: none is known.
	newest map[listPlace]uint64
	part   *budget // of all that looks for newer nodes; nil: nothing has
}

// A listPlace is a node of a list, and the offset of the word in it that leads on.
type listPlace struct{ node, hop uint64 }

const (
	passedPart    = 64 // one in so many nodes is remembered
	maxChainNodes = 1 << 20
	maxLinks      = 64 // words that lead to one node
	minPeriods    = 3  // of equal links in a row that show a linked list
	maxPeriod     = 4  // objects from one node to the next: a function leads by its tuple and a cell
	maxNewNodes   = 1 << 13
)

// note finds the head of the list that a way seems to follow: then the way goes on from there. All
// nodes of a list are of one type, or chunks of one size, and the words that lead from one to the
// next are at the same offsets.
func (l *linkedLists) note(w *way) {
	if w.node.typ != nil && w.node.typ.kind == kindDict { // its object is the node
		return
	}
	if _, isKnown := l.heads[w.node]; isKnown || l.search.index.only != nil {
		return
	}

	for period := 1; period <= maxPeriod; period++ {
		if !isPeriodic(w, period) {
			continue
		}
		var hops []uint64
		for i, at := 0, w; i < period; i, at = i+1, at.below {
			hops = append(hops, hopsOf(at)...)
		}

		nodes := listBack(w.node.address, func(node uint64) []uint64 {
			if last, isKnown := l.passed[listPlace{node, hops[0]}]; isKnown && last != node {
				return []uint64{last}
			}
			return l.previous(w.node, node, hops)
		})
		last := nodes[len(nodes)-1]
		for i := 0; i < len(nodes); i += passedPart {
			l.passed[listPlace{nodes[i], hops[0]}] = last
		}
		l.heads[w.node] = nil
		head := l.search.nodes.at(last)
		if len(nodes) > 1 && head != nil && head != w.node {
			l.heads[w.node] = &way{node: head, at: head.address + hops[0]}
			if head.typ == nil && period == 1 {
				l.findMoved(head, nodes, hops[0])
			}
		}
		return
	}
}

// findMoved finds what refers to a list of C that grows at its front: by now a word leads to a
// newer node than when the index was made. From there the list leads to the head that is known.
func (l *linkedLists) findMoved(head *node, nodes []uint64, hop uint64) {
	place := listPlace{head.address, hop}
	if _, isKnown := l.newest[place]; isKnown {
		return
	}
	l.newest[place] = 0

	if l.part == nil {
		l.part = l.heap.memory.budget.part(movedHeadsTime)
	}
	index := l.search.index
	l.heap.pages.forget()
	try := func(at, old uint64) {
		if l.part.isSpent() {
			return
		}
		now, ok := l.heap.pages.word(at)
		if !ok || now == old && old != head.address || !l.leads(at, place, l.part) {
			return
		}
		e := edge{at: at, value: l.newest[place]}
		e.from, e.root = l.search.source(at)
		if e.root != nil || e.from != nil && e.from != head && e.from.typ == nil {
			l.search.add(head, e)
		}
	}
	for _, at := range index.toGrown() {
		try(at, 0)
	}
	for _, address := range nodes[max(0, len(nodes)-maxNewNodes):] {
		words, _ := index.referers(address)
		for _, at := range words[:min(len(words), maxLinks)] {
			try(at, address)
		}
	}
}

// leads reports whether a word leads to the head of a list now, by the nodes that have come since.
func (l *linkedLists) leads(word uint64, head listPlace, limit *budget) bool {
	l.heap.pages.forget()
	first, ok := l.heap.pages.word(word)
	for at, n := first, 0; ok && at != 0 && n < maxNewNodes; n++ {
		if at == head.node || at == l.newest[head] {
			l.newest[head] = first
			return true
		}
		if limit.isSpent() {
			return false
		}
		at, ok = l.heap.pages.word(at + head.hop)
	}
	return false
}

// previous returns the nodes like one that lead to a node of a list by hops: the word at each
// offset leads to the next one.
func (l *linkedLists) previous(like *node, node uint64, hops []uint64) []uint64 {
	if l.heap.memory.budget.isSpent() {
		return nil
	}

	found := []uint64{node}
	for _, hop := range slices.Backward(hops) {
		var from []uint64
		for _, at := range found {
			words, _ := l.search.index.referers(at)
			for _, word := range words[:min(len(words), maxLinks)] {
				from = append(from, word-hop)
			}
		}
		found = from
	}
	return slices.DeleteFunc(found, func(at uint64) bool { return !l.isLike(at, like) })
}

// isLike reports whether there is a node of a list like another one at an address.
func (l *linkedLists) isLike(at uint64, like *node) bool {
	if like.typ != nil {
		typ, ok := l.heap.pages.word(at + cpython.ObType)
		return ok && typ == like.typ.address
	}
	n := l.search.nodes.at(at)
	return n != nil && n.typ == nil && n.address == at && n.block.kind == like.block.kind &&
		isSize(n.block, like.block.Len())
}

// isPeriodic reports whether the outermost steps of a way repeat: minPeriods links in a row are
// alike.
func isPeriodic(w *way, period int) bool {
	steps := make([]*way, 0, period*(minPeriods+1))
	for at := w; at != nil && len(steps) < cap(steps); at = at.below {
		steps = append(steps, at)
	}
	if len(steps) < cap(steps) {
		return false
	}

	for i := range period * (minPeriods - 1) {
		if !areAlike(steps[i], steps[i+period]) {
			return false
		}
	}
	return true
}

// areAlike reports whether two steps of a way have the same kind of node and the same link.
func areAlike(a, b *way) bool {
	hops := hopsOf(a)
	return a.node.typ == b.node.typ && isSize(a.node.block, b.node.block.Len()) &&
		a.node.block.kind == b.node.block.kind && len(hops) > 0 && slices.Equal(hops, hopsOf(b))
}

// isSize reports whether a block may be one for a request of the same size as another one.
func isSize(b block, size uint64) bool {
	if b.kind == blockPool {
		return b.Len() == size
	}
	return glibc.MayBeAlike(b.Len(), size)
}

// hopsOf returns the offsets by which a node leads to the one below it.
func hopsOf(w *way) []uint64 {
	n := len(w.words)
	if n == 0 {
		return nil
	}

	outer := w.words[n-1]
	hops := []uint64{outer.at - w.node.address}
	if n > 1 { // by a table
		hops = append(hops, w.words[n-2].at-outer.value)
	}
	return hops
}

// listBack returns the nodes from one back to the head of its list: each is referred to by the one
// after it, as previous has it. The first is the node itself. The last one is not referred to by
// another node, or by several: then it is no list from there on. In a circular list it is the one
// behind the first, and the keeper may refer to any of them. An empty list refers to itself.
func listBack(node uint64, previous func(node uint64) []uint64) (nodes []uint64) {
	for at := node; ; {
		nodes = append(nodes, at)
		from := slices.DeleteFunc(previous(at), func(n uint64) bool { return n == at })
		if len(from) != 1 || from[0] == node || len(nodes) >= maxChainNodes {
			return nodes
		}
		at = from[0]
	}
}

// Bounds of a search forwards.
const (
	maxForward   = 1 << 15 // blocks that are followed from one variable
	maxSlots     = 256     // variables of a function
	forwardBytes = 4096    // of a block that are followed
	forwardTries = 4       // of a variable, which may change meanwhile
	alikeHops    = 32      // before a head in which one like it must be
)

// A forwardSearch follows references from the variables of the running functions to the heads of
// chains that the variables have left. The chain of a sum of losses, or of a state that is carried
// on, gets a new head at each step: the index has an old one, to which the variable does not refer
// any more.
type forwardSearch struct {
	*search
	heads map[*node]bool    // the last nodes of ways that end
	maps  []process.Mapping // of now: the heap has grown since the index was made
}

// findHeads looks for the variables that lead to the ends of the ways from samples without a root. It
// may take seconds, and does not look for a few samples of a suspect: they may be free by now.
func (s *search) findHeads(samples [][]*node) {
	f := &forwardSearch{search: s, heads: make(map[*node]bool)}
	if s.heap.types == nil {
		return
	}
	for _, some := range samples {
		rootless, ends := 0, []*way(nil)
		for _, n := range some {
			if found, _, in := s.ways.rootsOf(n); len(found) == 0 {
				rootless, ends = rootless+1, append(ends, in.ends...)
			}
		}
		for _, w := range ends {
			if minPart*rootless > len(some) {
				f.heads[w.node] = true
			}
		}
	}
	var err error
	if f.maps, err = s.heap.process.Maps(); err != nil || len(f.heads) == 0 {
		return
	}

	for i := range s.heap.roots.frames {
		frame := &s.heap.roots.frames[i]
		for k := range frame.Names[:min(len(frame.Names), maxSlots)] {
			at := frame.Locals + uint64(k)*wordSize
			root := s.heap.roots.frameRoot(at)
			for range forwardTries {
				s.heap.pages.forget()
				value, ok := s.heap.pages.word(at)
				if ok && root != nil && root.Name != "" {
					f.follow(value, root)
				}
			}
		}
	}
	for dict, m := range s.heap.roots.modules {
		if m.Name == "__main__" {
			f.follow(dict, nil)
		}
	}
}

// follow follows one variable, or the dict of a module; root is nil then.
func (f *forwardSearch) follow(value uint64, root *keeper.Root) {
	first := f.targetOf(value)
	if first == nil || first.typ == nil || len(f.chains) == len(f.heads) {
		return
	}
	parents := map[uint64]edge{first.block.Start: {}}
	nodes := []*node{first}
	for i := 0; i < len(nodes) && len(nodes) < maxForward; i++ {
		if f.heap.memory.budget.isSpent() {
			return
		}
		n := nodes[i]
		if f.heads[n] {
			f.reach(n, parents, root)
			if len(f.chains) == len(f.heads) {
				return
			}
		}
		f.each(n, parents[n.block.Start], func(at, word uint64) {
			next := f.targetOf(word)
			if next == nil || len(nodes) >= maxForward {
				return
			}
			if _, isKnown := parents[next.block.Start]; !isKnown {
				parents[next.block.Start] = edge{from: n, at: at, value: word}
				nodes = append(nodes, next)
			}
		})
	}
}

// each calls visit with the words of a block that may refer to others.
func (f *forwardSearch) each(n *node, in edge, visit func(at, word uint64)) {
	if n.typ != nil {
		switch n.typ.kind {
		case kindModule, kindType, kindCode, kindFunction:
			return
		}
		if n.typ.isLeaf() {
			return
		}
	}
	end := min(n.block.End, n.block.Start+forwardBytes)
	for at := n.block.Start; at+wordSize <= end; at += wordSize {
		word, ok := f.heap.pages.word(at)
		if !ok || word < 1<<16 {
			continue
		}
		e := edge{from: n, at: at, value: word}
		switch {
		case n.typ != nil:
			o := f.heap.objects
			_, ok := o.objectReference(e)
			ok = ok || n.typ.flags&cpython.FlagManagedDict != 0 && at == o.managedValues(n)
			if !ok || o.isWeak(n, at) {
				continue
			}
		case in.typ() != nil:
			if _, isTable, ok := f.heap.objects.tableReference(in, at); isTable && !ok {
				continue
			}
		}
		visit(at, word)
	}
}

// targetOf returns the block that a word leads to.
func (f *forwardSearch) targetOf(word uint64) *node {
	address := word &^ (wordSize - 1) // a tag may be in it
	r, ok := f.regionNow(address)
	if !ok || r.kind != regionHeap && r.kind != regionAnonymous {
		return nil
	}
	return f.nodes.holderNow(f.index, address, r)
}

// regionNow returns the region of an address, also in memory that has come since the index was
// made.
func (f *forwardSearch) regionNow(address uint64) (region, bool) {
	if r, ok := f.heap.memory.regionAt(address); ok {
		return r, true
	}
	m, ok := process.FindMapping(f.maps, address)
	if !ok || !m.Write || m.Shared || m.IsFile() {
		return region{}, false
	}
	r := region{mem.Span{Start: m.Start, End: m.End}, regionAnonymous}
	for _, s := range f.heap.heaps.Spans {
		if s.Start >= m.Start && s.Start < m.End {
			r.kind = regionHeap
		}
	}
	return r, true
}

// reach notes the way from a variable to a head. Before the head comes a block like it: the chain
// goes on from the head that the variable had before.
func (f *forwardSearch) reach(head *node, parents map[uint64]edge, root *keeper.Root) {
	chain := headChain{root: root}
	isAlike := false
	for e := parents[head.block.Start]; e.from != nil; e = parents[e.from.block.Start] {
		chain.edges = append(chain.edges, e)
		isAlike = isAlike || len(chain.edges) <= alikeHops && f.isAlike(e.from, head)
	}
	if isAlike {
		f.chains[head] = chain
	}
}

// isAlike reports whether two nodes have one type: of Python, or by their vtable.
func (f *forwardSearch) isAlike(a, b *node) bool {
	return a.typ != nil && a.typ == b.typ && a.block.Len() == b.block.Len() || f.ways.areAlike(a, b)
}

// A headChain leads from a variable to the head of a chain that the variable had before.
type headChain struct {
	root  *keeper.Root // nil: the last edge is of the dict of a module
	edges []edge       // from the head back to the object of the variable
}

// headPath returns the path from a variable to a sample, by an end of a way from the sample.
func (rep *reporter) headPath(ends []*way) (found rootPath, ok bool) {
	for _, w := range ends {
		chain, isKnown := rep.chains[w.node]
		if !isKnown || !rep.holds(rootPath{way: w}) {
			continue
		}
		isWhole := true
		for _, e := range chain.edges {
			if w, isWhole = rep.ways.up(w, e); !isWhole {
				break
			}
		}
		switch {
		case isWhole && chain.root != nil:
			return rootPath{root: *chain.root, way: w}, true
		case isWhole:
			return rep.ways.rootOf(w)
		}
	}
	return rootPath{}, false
}
