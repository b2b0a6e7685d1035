package objects

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"github.com/allocscope/allocscope/growth/keeper"
	"github.com/allocscope/allocscope/tracer/cpython"
	"github.com/allocscope/allocscope/tracer/heap/glibc"
	"github.com/allocscope/allocscope/tracer/heap/pymalloc"
	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/process"
)

// A Suspect is a set of objects whose keeper is searched for: the objects of a stack or of a type.
type Suspect struct {
	Stack   uint64 // ID; 0: they are the objects of a type
	Type    string
	Objects []uint64 // addresses: as malloc returned them, or of Python objects
}

// Bounds of a search.
const (
	maxObjects   = 64      // of a suspect
	maxLevels    = 96      // levels of references
	levelsAfter  = 3       // levels that are searched after every sample has a root
	maxNodes     = 1 << 17 // in all
	maxFrontier  = 1 << 14 // nodes that are searched for at once
	maxEdges     = 512     // references to a node that are remembered
	maxAllEdges  = 1 << 19 // of all nodes
	maxTargets   = 1 << 19 // addresses that are searched for at once
	maxAlike     = 8       // of those from the same place in objects of one type
	maxInterior  = 64      // words of a block that references may point into
	filterBits   = 1 << 18
	nodeContents = 64 // bytes of a block that are read to find its object
)

// A node is a block that was found on a way, or an object in it.
type node struct {
	block   block
	typ     *typeInfo // nil: memory without an object
	address uint64    // of the object, or of the block
	refcnt  uint64
	edges   []edge // references to it
	// more is set if there are more than maxEdges. foreign counts references from memory that
	// nothing is known of: free blocks, blocks of unknown allocators, CPython's own variables.
	more    bool
	foreign int
	// searched is set once a pass has looked for references to it.
	searched bool
	sample   bool
	// kept are the edges that count, once they are known: see references.
	kept                []edge
	isComplete, isKnown bool
}

// An edge is a word that refers to a node.
type edge struct {
	from      *node        // nil: root
	root      *keeper.Root // nil: from
	at, value uint64       // where the word is, and its value then
}

// A search finds references backwards, a level at a time.
type search struct {
	heap    *Heap
	nodes   map[uint64]*node // by the address of their block
	targets map[uint64]*node // by each address that refers to them
	filter  []uint64
	low     uint64
	high    uint64
	began   time.Duration // CPU time when it began
	edges   int           // of all nodes
	late    bool          // the time is used up

	chains map[string]*linkPattern // linked lists that ways follow
	heads  map[*node]*way          // of the lists, by the nodes from which the ways go on
}

// errLate ends a pass when the time is used up.
var errLate = errors.New("the time for the search is used up")

// Search finds who keeps the objects of the suspects, within a limit of CPU time. It returns a
// result for each suspect, in order. At the limit, and at the deadline of ctx, it returns the
// findings so far. Containers move while they grow: a suspect without a keeper is searched once
// more.
func (h *Heap) Search(
	ctx context.Context, suspects []Suspect, limit time.Duration,
) ([]keeper.Search, error) {
	began := process.OwnCPUTime()
	whole := newBudget(ctx, limit)
	results, err := h.searchOnce(whole, suspects, began)
	if err != nil {
		return nil, err
	}
	var again []Suspect
	var of []int
	for i, r := range results {
		if unexplained(r) > 0 && r.Garbage < r.Samples && r.Reason != keeper.ReasonBudget {
			again, of = append(again, suspects[i]), append(of, i)
		}
	}
	if len(again) == 0 || whole.check() {
		return results, whole.canceled()
	}
	second, err := h.searchOnce(whole, again, began)
	if err != nil {
		return results, whole.canceled() // the first ones stand
	}
	for k, r := range second {
		first := &results[of[k]]
		if first.Took = r.Took; explained(r) > explained(*first) {
			*first = r
		}
	}

	return results, whole.canceled()
}

// explained is the number of samples that a path leads to, or that are garbage.
func explained(r keeper.Search) int { return r.Samples - unexplained(r) + r.Garbage }

// unexplained is the number of samples that no path leads to.
func unexplained(r keeper.Search) int {
	rest := r.Samples
	for _, p := range r.Paths {
		rest -= p.Samples
	}
	return max(0, rest)
}

func (h *Heap) searchOnce(
	whole *budget, suspects []Suspect, began time.Duration,
) ([]keeper.Search, error) {
	if err := h.refresh(); err != nil {
		return nil, err
	}
	return h.searchIn(whole, suspects, began)
}

// searchIn searches the memory of the last refresh.
func (h *Heap) searchIn(
	whole *budget, suspects []Suspect, began time.Duration,
) ([]keeper.Search, error) {
	s := &search{
		heap: h, nodes: make(map[uint64]*node), began: began,
		chains: make(map[string]*linkPattern), heads: make(map[*node]*way),
		filter: make([]uint64, filterBits/64),
	}
	h.memory.budget = whole.most()
	samples := make([][]*node, len(suspects))
	for i, suspect := range suspects {
		samples[i] = s.findSamples(suspect)
		for _, n := range samples[i] {
			n.sample = true
		}
	}
	if err := s.climb(samples); err != nil {
		return nil, err
	}

	h.memory.budget = whole
	results := make([]keeper.Search, len(suspects))
	for i, suspect := range suspects {
		results[i] = s.result(suspect, samples[i])
	}

	return results, nil
}

// findSamples returns the objects of a suspect that are alive.
func (s *search) findSamples(suspect Suspect) (found []*node) {
	for _, address := range suspect.Objects[:min(len(suspect.Objects), maxObjects)] {
		if n := s.nodeAt(address); n != nil && !slices.Contains(found, n) {
			found = append(found, n)
		}
	}
	return found
}

// climb searches level by level until each sample has a root and the levels behind it are searched
// too, or until nothing is left that could lead further.
func (s *search) climb(samples [][]*node) error {
	after := 0
	for range maxLevels {
		frontier, isRooted := s.frontier(samples)
		if s.heap.memory.budget.check() {
			s.late = true
			return nil
		}
		if isRooted {
			after++
		}
		if len(frontier) == 0 || after > levelsAfter {
			return nil
		}
		if err := s.level(frontier); errors.Is(err, errLate) {
			s.late = true
			return nil
		} else if err != nil {
			return err
		}
	}

	return nil
}

// frontier returns the nodes that references are to be searched for next. isRooted is set if each
// sample has a root.
func (s *search) frontier(samples [][]*node) (next []*node, isRooted bool) {
	s.heap.forget()
	isRooted = true
	seen := make(map[*node]bool)
	targets := uint64(0)
	for _, of := range samples {
		for _, n := range of {
			found, open, _ := s.rootsOf(n)
			isRooted = isRooted && len(found) > 0
			for _, w := range open {
				if len(found) == 0 {
					s.noteChain(w)
				}
				if !seen[w.node] && len(next) < maxFrontier && targets < maxTargets {
					seen[w.node] = true
					next = append(next, w.node)
					targets += s.eachTarget(w.node, func(uint64) {})
				}
			}
		}
	}

	return next, isRooted
}

// level searches all memory for references to nodes.
func (s *search) level(frontier []*node) error {
	s.aim(frontier)
	err := s.heap.memory.each(nil, func(p *piece) error {
		s.match(p)
		s.collectLinks(p)
		if s.heap.memory.budget.isOver {
			return errLate
		}
		return nil
	})
	if err == nil {
		s.followChains()
	}
	for _, n := range frontier {
		n.searched = err == nil
	}

	return err
}

// aim sets the targets of match: the addresses that refer to the nodes.
func (s *search) aim(frontier []*node) {
	s.targets = make(map[uint64]*node, len(frontier))
	clear(s.filter)
	s.low, s.high = ^uint64(0), 0
	for _, n := range frontier {
		s.eachTarget(n, func(address uint64) {
			s.targets[address] = n
			s.low, s.high = min(s.low, address), max(s.high, address)
			bit := address / wordSize % filterBits
			s.filter[bit/64] |= 1 << (bit % 64)
		})
	}
}

// eachTarget calls add with each address that refers to a node, and returns how many there are.
func (s *search) eachTarget(n *node, add func(address uint64)) (count uint64) {
	var tags uint64
	isTagged := false
	if s.heap.structures != nil {
		tags, isTagged = s.heap.structures.StackRefTags, s.heap.structures.TagsManagedDict
	}
	if n.typ != nil {
		add(n.address)
		if tags&1 != 0 {
			add(n.address | 1) // in frames
		}
		return 1 + tags&1
	}
	size := n.block.Len()
	if n.block.kind == blockChunk {
		size -= glibc.SharedSize // the lists of malloc refer to the next chunk
	}
	for i := uint64(0); i < min(maxInterior*wordSize, size); i += wordSize {
		add(n.address + i)
		count++
		if isTagged {
			add(n.address + i - 1)
			count++
		}
	}

	return count
}

// match finds the words of a piece that are in targets.
func (s *search) match(p *piece) {
	low, width, filter := s.low, s.high-s.low, s.filter
	content := p.Bytes
	for i := 0; i+wordSize <= len(content); i += wordSize {
		w := binary.LittleEndian.Uint64(content[i:])
		if w-low > width {
			continue
		}
		bit := w / wordSize % filterBits
		if filter[bit/64]>>(bit%64)&1 == 0 {
			continue
		}
		if n := s.targets[w]; n != nil {
			if s.heap.memory.budget.isSpent() {
				return
			}
			s.hit(p, n, p.Start+uint64(i), w)
		}
	}
}

// hit adds a word that refers to a node.
func (s *search) hit(p *piece, n *node, at, value uint64) {
	if at < p.region.Start || at >= p.region.End {
		return
	}
	if len(n.edges) >= maxEdges || s.edges >= maxAllEdges {
		n.more = true
		return
	}
	e := edge{at: at, value: value}
	switch p.region.kind {
	case regionStatic:
		e.root = s.heap.staticRoot(at)
	case regionStack:
		e.root = s.heap.stackRoot(at)
	default:
		if e.root = s.heap.frameRoot(at); e.root != nil {
			break
		}
		e.from = s.holder(p, at)
		if e.from == n {
			return
		}
		if e.from != nil && s.heap.isWeak(e.from, at) {
			return
		}
	}
	if e.from == nil && e.root == nil {
		n.foreign++
		return
	}
	if n.alike(e) >= maxAlike || e.from != nil && !s.keep(e.from) {
		n.more = true
		return
	}
	n.edges = append(n.edges, e)
	s.edges++
}

// keep remembers a node; false: there are too many.
func (s *search) keep(n *node) bool {
	if s.nodes[n.block.Start] == nil && len(s.nodes) >= maxNodes {
		return false
	}
	s.nodes[n.block.Start] = n
	return true
}

// alike counts the references from the same place in objects of the same type, or in blocks of the
// same size: an object often has references from those that it keeps.
func (n *node) alike(e edge) (count int) {
	if e.from == nil {
		return 0
	}
	for _, o := range n.edges {
		if f := o.from; f != nil && f.typ == e.from.typ && f.block.Len() == e.from.block.Len() &&
			o.at-f.block.Start == e.at-e.from.block.Start {
			count++
		}
	}
	return count
}

// holder returns the node of the block that an address is in; nil: there is none that is alive. The
// node may be a new one: see keep.
func (s *search) holder(p *piece, at uint64) *node {
	var poolSize uint64 = pymalloc.MaxPoolSize // without Python nothing looks like a pool
	if s.heap.structures != nil {
		poolSize = s.heap.structures.PoolSize
	}
	b, ok := p.blockAt(at, poolSize)
	if !ok {
		return nil
	}
	if n := s.nodes[b.Start]; n != nil {
		return n
	}
	content := p.At(b.Start, min(b.Len(), nodeContents))
	if content == nil {
		content = s.heap.contentOf(b)
	}

	return s.newNode(b, content)
}

// contentOf returns the first bytes of a block. The program may never have written to them: bytes
// that are not in RAM are zero, as in a piece.
func (h *Heap) contentOf(b block) []byte {
	content := make([]byte, min(b.Len(), nodeContents))
	offset := b.Start % process.PageSize
	first := b.Start - offset
	if page := h.page(first); page != nil {
		copy(content, page[offset:])
	}
	if inFirst := process.PageSize - offset; inFirst < uint64(len(content)) {
		copy(content[inFirst:], h.page(first+process.PageSize))
	}

	return content
}

// newNode returns the node of a block; nil: the block is not in use.
func (s *search) newNode(b block, content []byte) *node {
	n := &node{block: b, address: b.Start}
	if s.heap.structures != nil {
		object, t := s.heap.objectIn(b, content)
		switch {
		case t != nil:
			n.address, n.typ = object, t
			n.refcnt = s.heap.refcntOf(mem.Word(content, object-b.Start))
		case s.heap.isZombieFrame(content):
			return nil
		}
	}

	return n
}

// refcntOf returns the reference count in the first word of an object; 0: it is immortal.
func (h *Heap) refcntOf(ob uint64) uint64 {
	if h.structures.ImmortalRefcnt == cpython.Absent {
		return ob
	}

	low := ob & 0xffffffff
	if low >= h.structures.ImmortalRefcnt {
		return 0
	}
	return low
}

// nodeAt returns the node of an object by its address, or by the address of its block; nil: it is
// not alive, or in no known block.
func (s *search) nodeAt(address uint64) *node {
	h := s.heap
	r, ok := h.memory.regionAt(address)
	for _, heap := range h.heaps.Spans { // large chunks are in no region
		if address >= heap.Start && address < heap.End {
			r, ok = region{heap, regionHeap}, true
		}
	}
	if !ok {
		return nil
	}
	var b block
	switch r.kind {
	case regionHeap:
		b, ok = h.chunkAt(address, r)
	case regionAnonymous:
		b, ok = h.anonymousAt(address, r)
	default:
		return nil
	}
	if !ok {
		return nil
	}
	if n := s.nodes[b.Start]; n != nil {
		return n
	}
	if n := s.newNode(b, h.contentOf(b)); n != nil && s.keep(n) {
		return n
	}

	return nil
}

// chunkAt returns the chunk of a heap whose memory, or whose object, begins at an address.
func (h *Heap) chunkAt(address uint64, r region) (block, bool) {
	for _, head := range h.heads {
		start := address - head - glibc.HeaderSize
		header, ok := h.peek(start, glibc.HeaderSize)
		if !ok {
			continue
		}
		c, ok := glibc.ParseChunk(header, start, r.End)
		if !ok || c.End() == r.End || h.heaps.Cached[start] {
			continue
		}
		next, ok := h.peek(c.End(), glibc.HeaderSize)
		if !ok || !glibc.IsPrevInUse(next) {
			continue
		}
		b := block{c.User(), blockChunk}
		if head == 0 {
			return b, true
		}
		content, ok := h.peek(b.Start, int(min(b.Len(), nodeContents)))
		if ok {
			if object, t := h.objectIn(b, content); t != nil && object == address {
				return b, true
			}
		}
	}

	return block{}, false
}

// anonymousAt returns the block of a pool that an address is in, or the chunk with a mapping of its
// own.
func (h *Heap) anonymousAt(address uint64, r region) (block, bool) {
	if h.structures != nil {
		size := h.structures.PoolSize
		start := address &^ (size - 1)
		if start >= r.Start && start+size <= r.End {
			content := h.memory.readAround(start, size)
			if content != nil {
				if p, isChanging := pymalloc.ParsePool(content, start); p != nil {
					return poolBlock(p, address)
				} else if isChanging {
					return block{}, false
				}
			}
		}
	}

	return h.memory.mmappedAt(address)
}
