package objects

import (
	"slices"

	"github.com/allocscope/allocscope/growth/keeper"
	"github.com/allocscope/allocscope/tracer/cpython"
	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/process"
)

// Bounds of a search forwards.
const (
	maxForward   = 1 << 15 // blocks that are followed from one variable
	maxSlots     = 256     // variables of a function
	forwardBytes = 4096    // of a block that are followed
	forwardTries = 4       // of a variable, which may change meanwhile
	alikeHops    = 32      // before a head in which one like it must be
)

// A forwardSearch follows references from the variables of the running functions to the heads of chains
// that the variables have left. The chain of a sum of losses, or of a state that is carried on, gets a new
// head at each step: the index has an old one, to which the variable does not refer any more.
type forwardSearch struct {
	*search
	heads map[*node]bool    // the last nodes of ways that end
	maps  []process.Mapping // of now: the heap has grown since the index was made
}

// findHeads looks for the variables that lead to the ends of the ways from samples without a root.
func (s *search) findHeads(samples [][]*node) {
	f := &forwardSearch{search: s, heads: make(map[*node]bool)}
	if s.heap.types == nil {
		return
	}
	for _, n := range slices.Concat(samples...) {
		found, _, in := s.ways.rootsOf(n)
		if len(found) > 0 {
			continue
		}
		for _, w := range in.ends {
			f.heads[w.node] = true
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
			isTable := n.typ.flags&cpython.FlagManagedDict != 0 && at == f.heap.objects.managedValues(n)
			if _, ok := f.heap.objects.objectReference(e); f.heap.objects.isWeak(n, at) || !ok && !isTable {
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

// regionNow returns the region of an address, also in memory that has come since the index was made.
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

// reach notes the way from a variable to a head. Before the head comes a block like it: the chain goes on
// from the head that the variable had before.
func (f *forwardSearch) reach(head *node, parents map[uint64]edge, root *keeper.Root) {
	chain := headChain{root: root}
	isAlike := false
	for e := parents[head.block.Start]; e.from != nil; e = parents[e.from.block.Start] {
		chain.edges = append(chain.edges, e)
		isAlike = isAlike || len(chain.edges) <= alikeHops && f.areAlike(e.from, head)
	}
	if isAlike {
		f.chains[head] = chain
	}
}

// areAlike reports whether two nodes have one type: of Python, or by their vtable.
func (f *forwardSearch) areAlike(a, b *node) bool {
	if a.typ != b.typ || a.block.Len() != b.block.Len() {
		return false
	}
	return a.typ != nil || a.first == b.first || !f.nodes.hasVtable(a) && !f.nodes.hasVtable(b)
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
