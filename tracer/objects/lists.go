package objects

import (
	"encoding/binary"
	"slices"

	"github.com/allocscope/allocscope/tracer/heap/glibc"
)

// A linkPattern is how the nodes of linked lists refer to the next one: all nodes are of one type,
// or chunks of one size, and the words that lead from one to the next are at the same offsets.
type linkPattern struct {
	typ    *typeInfo
	size   uint64     // of a node's block
	kind   blockKind  // of it
	hops   []uint64   // offsets: the word at each leads to the next one
	wanted []*node    // from which ways are to go on
	nodes  []uint64   // all nodes that were found
	chain  *listChain // of these; nil: not yet
}

const (
	maxChainNodes = 1 << 18
	maxPatterns   = 8
	minPeriods    = 3 // of equal links in a row that show a linked list
	maxPeriod     = 2 // objects between two nodes: a node may refer to the next one by its dict
)

// linkedLists are the linked lists that ways follow: to go back a node a level would take too long.
type linkedLists struct {
	heap     *Heap
	nodes    *nodeTable
	patterns map[string]*linkPattern
	heads    map[*node]*way // of the lists, by the nodes from which the ways go on
}

// note notes a way that seems to follow a linked list. The nodes of its pattern are collected in
// the next pass over the memory, and linked after it: then the way goes on from the head of the
// list.
func (l *linkedLists) note(w *way) {
	if w.node.typ != nil && w.node.typ.kind == kindDict { // its object is the node
		return
	}

	for period := 1; period <= maxPeriod; period++ {
		if !isPeriodic(w, period) {
			continue
		}
		p := l.patternOf(w, period)
		if p == nil || l.heads[w.node] != nil {
			return
		}
		if p.wanted = append(p.wanted, w.node); p.chain != nil {
			l.goBack(p)
		}
		return
	}
}

// patternOf returns the pattern of a way whose outermost steps repeat; nil: there are too many.
func (l *linkedLists) patternOf(w *way, period int) *linkPattern {
	var hops []uint64
	for i, at := 0, w; i < period; i, at = i+1, at.below {
		hops = append(hops, hopsOf(at)...)
	}

	key := binary.LittleEndian.AppendUint64(nil, w.node.block.Len())
	if w.node.typ != nil {
		key = append(key, w.node.typ.name...)
	}
	for _, h := range hops {
		key = binary.LittleEndian.AppendUint64(key, h)
	}

	p := l.patterns[string(key)]
	if p == nil && len(l.patterns) < maxPatterns {
		p = &linkPattern{
			typ: w.node.typ, size: w.node.block.Len(), kind: w.node.block.kind, hops: hops,
		}
		l.patterns[string(key)] = p
	}
	return p
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

// collect collects the nodes of the patterns that are in a piece.
func (l *linkedLists) collect(p *piece) {
	for _, pattern := range l.patterns {
		if pattern.chain != nil || len(pattern.nodes) >= maxChainNodes {
			continue
		}

		p.eachBlock(pattern.kind, pattern.size, func(b block) {
			content := p.At(b.Start, min(b.Len(), nodeContents))
			if content == nil {
				return
			}

			address := b.Start
			if l.heap.types != nil {
				object, t := l.heap.types.objectIn(b, content)
				if t != pattern.typ {
					return
				}
				if t != nil {
					address = object
				}
			}
			pattern.nodes = append(pattern.nodes, address)
		})
	}
}

// link links the nodes that were collected, and finds the heads of their lists.
func (l *linkedLists) link() {
	for _, pattern := range l.patterns {
		if pattern.chain != nil {
			continue
		}

		// The link of a node may lead by way of another object: its dict, or a table.
		links := make([]nodeLink, 0, len(pattern.nodes))
		for _, n := range pattern.nodes {
			if l.heap.memory.budget.isSpent() {
				break
			}

			next, ok := n, true
			for _, hop := range pattern.hops {
				if next, ok = l.heap.pages.word(next + hop); !ok {
					break
				}
			}
			if ok {
				links = append(links, nodeLink{n, next})
			}
		}

		pattern.chain, pattern.nodes = newListChain(links), nil
		l.goBack(pattern)
	}
}

// goBack finds the heads of the lists that ways follow.
func (l *linkedLists) goBack(pattern *linkPattern) {
	for _, n := range pattern.wanted {
		if l.heap.memory.budget.check() {
			break
		}
		nodes := pattern.chain.back(n.address)
		if head := l.nodes.at(nodes[len(nodes)-1]); len(nodes) > 1 && head != nil && head != n {
			l.heads[n] = &way{node: head, at: head.address + pattern.hops[0]}
		}
	}
	pattern.wanted = nil
}

// A nodeLink is the reference of a node of a linked list by the word at its link offset.
type nodeLink struct{ node, next uint64 }

// A listChain has the linked lists that nodes of one kind form: chunks of one size or objects of
// one type, by the word at one offset.
type listChain struct {
	previous map[uint64]uint64
	forks    map[uint64]bool // nodes that several nodes refer to
}

// newListChain returns the lists of links. If a node has several links, it takes the first. A link
// of a node to itself is none: an empty list has it.
func newListChain(links []nodeLink) *listChain {
	next := make(map[uint64]uint64, len(links))
	for _, l := range links {
		if _, ok := next[l.node]; !ok {
			next[l.node] = l.next
		}
	}

	c := &listChain{previous: make(map[uint64]uint64, len(next)), forks: make(map[uint64]bool)}
	for node, to := range next {
		_, isNode := next[to]
		_, isKnown := c.previous[to]
		switch {
		case !isNode || to == node:
		case isKnown:
			c.forks[to] = true
		default:
			c.previous[to] = node
		}
	}

	return c
}

// back returns the nodes from one back to the head of its list: each is referred to by the one
// after it. The first is the node itself, even if it is not known. The last one is not referred to
// by another node, or by several: then it is no list from there on. In a circular list it is the
// one behind the first, and the keeper may refer to any of them.
func (c *listChain) back(node uint64) (nodes []uint64) {
	for at := node; ; {
		nodes = append(nodes, at)
		previous, ok := c.previous[at]
		if !ok || c.forks[at] || previous == node {
			return nodes
		}
		at = previous
	}
}
