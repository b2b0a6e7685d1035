package objects

import (
	"slices"

	"github.com/allocscope/allocscope/growth/keeper"
	"github.com/allocscope/allocscope/tracer/heap/glibc"
	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/torch"
)

// A node is a block that was found on a way, or an object in it.
type node struct {
	block   block
	typ     *typeInfo // nil: memory without an object
	address uint64    // of the object, or of the block
	refcnt  uint64
	edges   []edge // references to it
	// first is the first word of memory without an object: it may be a vtable. second is the word
	// behind it: it may be the counts of a TensorImpl.
	first, second uint64
	// more is set if there are more than maxEdges. foreign counts references from memory that
	// nothing is known of: free blocks, blocks of unknown allocators, CPython's own variables.
	more    bool
	foreign int
	// isBuffer: it is the buffer of a FILE, which is data.
	isBuffer bool
	// isMoving: a word led to it that has changed meanwhile.
	isMoving bool
	// isFollowed is set once the references to it were looked up, and searched if all memory was
	// read for these.
	isFollowed, searched bool

	sample bool
	asked  uint64 // the address of a sample, as its suspect has it
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

// typ returns the type of the object that refers; nil: it is none.
func (e edge) typ() *typeInfo {
	if e.from == nil {
		return nil
	}
	return e.from.typ
}

// countAlike counts the references from the same place in objects of the same type, or in blocks of
// the same size. The children of a node all refer to it by one field: a few of them are as good as
// a thousand, and leave room for the reference that keeps it.
func (n *node) countAlike(e edge) (count int) {
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

// isOwned reports whether all that refers to memory without an object is objects.
func (n *node) isOwned() bool {
	isOther := func(e edge) bool { return e.from == nil || e.from.typ == nil }
	return len(n.edges) > 0 && n.foreign == 0 && !n.more && !slices.ContainsFunc(n.edges, isOther)
}

// hasAllOwners reports whether as many references to a tensor were found as it counts.
func (n *node) hasAllOwners() bool {
	owners := uint64(0)
	for _, e := range n.edges {
		if e.root != nil || e.from.typ != nil || e.isOfImpl() {
			owners++
		}
	}
	return owners >= n.refcnt
}

// isOfImpl reports whether memory of C refers to a tensor as its TensorImpl, where that counts.
func (e edge) isOfImpl() bool {
	if e.from == nil || e.from.typ != nil {
		return false
	}
	return e.value&torch.OwnsObject != 0 ||
		torch.SharesObject(e.at-e.from.address, e.from.second)
}

// isObject reports whether a node is an object of Python.
func (n *node) isObject() bool { return n.typ != nil }

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

// A nodeTable has the nodes that a search has found.
type nodeTable struct {
	heap    *Heap
	byBlock map[uint64]*node // by the address of their block
}

// keep remembers a node; false: there are too many.
func (nodes *nodeTable) keep(n *node) bool {
	if nodes.byBlock[n.block.Start] == nil && len(nodes.byBlock) >= maxNodes {
		return false
	}
	nodes.byBlock[n.block.Start] = n
	return true
}

// holder returns the node of the block that an address is in; nil: there is none that is alive. The
// node may be a new one: see keep.
func (nodes *nodeTable) holder(x *index, at uint64, r region) *node {
	var b block
	ok := false
	switch r.kind {
	case regionHeap:
		b, ok = nodes.chunkFrom(x.chunkStart(at), r)
		ok = ok && at >= b.Start && at < b.End
	case regionAnonymous:
		b, ok = nodes.anonymousAt(at, r)
	}
	if !ok {
		return nil
	}
	n := nodes.byBlock[b.Start]
	if n == nil {
		n = nodes.newNode(b, nodes.heap.pages.contentOf(b))
	}
	isLast := b.kind == blockChunk && at+wordSize >= b.End
	if n != nil && n.typ == nil && isLast && nodes.heap.types != nil && !nodes.hasVtable(n) {
		return nil
	}
	return n
}

// hasVtable reports whether memory without an object begins with a pointer into a file: it is an
// object of C++, all of which is in use. Other memory may have been asked for without its last
// word, which then has a value of before.
func (nodes *nodeTable) hasVtable(n *node) bool {
	m, ok := process.FindMapping(nodes.heap.memory.maps, n.first)
	return ok && m.IsFile()
}

// holderNow returns the node of the block that a pointer of a live object leads to. A chunk may
// have come since the index was made, or have left a cache.
func (nodes *nodeTable) holderNow(x *index, at uint64, r region) *node {
	if n := nodes.holder(x, at, r); n != nil || r.kind != regionHeap {
		return n
	}
	for _, head := range []uint64{glibc.HeaderSize, 2 * glibc.HeaderSize} { // behind counts of references
		c, isPrevInUse, ok := nodes.readChunk(at-head, r)
		if !ok || !isPrevInUse {
			continue
		}
		b := block{c.User(), blockChunk}
		if n := nodes.byBlock[b.Start]; n != nil && n.block == b {
			return n
		}
		return nodes.newNode(b, nodes.heap.pages.contentOf(b))
	}
	return nil
}

// newNode returns the node of a block; nil: the block is not in use.
func (nodes *nodeTable) newNode(b block, content []byte) *node {
	n := &node{block: b, address: b.Start}
	if len(content) >= wordSize {
		n.first = mem.Word(content, 0)
	}
	if len(content) >= 2*wordSize {
		n.second = mem.Word(content, wordSize)
	}
	if nodes.heap.types == nil {
		return n
	}

	object, t := nodes.heap.types.objectIn(b, content)
	switch {
	case t != nil:
		n.address, n.typ = object, t
		n.refcnt = nodes.heap.version.Refcnt(mem.Word(content, object-b.Start))
	case nodes.heap.types.isZombieFrame(content):
		return nil
	}
	return n
}

// at returns the node of an object by its address, or by the address of its block; nil: it is
// not alive, or in no known block.
func (nodes *nodeTable) at(address uint64) *node {
	h := nodes.heap
	r, ok := h.memory.regionAt(address)
	if !ok {
		return nil
	}

	var b block
	switch r.kind {
	case regionHeap:
		b, ok = nodes.chunkAt(address, r)
	case regionAnonymous:
		b, ok = nodes.anonymousAt(address, r)
	default:
		return nil
	}
	if !ok {
		return nil
	}

	if n := nodes.byBlock[b.Start]; n != nil {
		return n
	}
	if n := nodes.newNode(b, h.pages.contentOf(b)); n != nil && nodes.keep(n) {
		return n
	}
	return nil
}

// chunkAt returns the chunk of a heap whose memory, or whose object, begins at an address. No chain
// of chunks leads here, so that the header of the chunk and of the next one have to fit.
func (nodes *nodeTable) chunkAt(address uint64, r region) (block, bool) {
	h := nodes.heap
	for _, head := range h.heads {
		b, ok := nodes.chunkFrom(address-head-glibc.HeaderSize, r)
		if !ok || head == 0 {
			if ok {
				return b, true
			}
			continue
		}
		content, ok := h.pages.peek(b.Start, int(min(b.Len(), nodeContents)))
		if ok {
			if object, t := h.types.objectIn(b, content); t != nil && object == address {
				return b, true
			}
		}
	}

	return block{}, false
}

// chunkFrom returns the chunk in use that begins at an address.
func (nodes *nodeTable) chunkFrom(start uint64, r region) (block, bool) {
	c, isInUse, ok := nodes.parseChunk(start, r)
	return block{c.User(), blockChunk}, ok && isInUse
}

// isFree reports whether a chunk that begins at an address is not in use.
func (nodes *nodeTable) isFree(start uint64, r region) bool {
	_, isInUse, ok := nodes.parseChunk(start, r)
	return ok && !isInUse
}

// parseChunk returns the chunk that begins at an address, and whether it is in use; ok is false if
// the headers do not fit.
func (nodes *nodeTable) parseChunk(start uint64, r region) (c glibc.Chunk, isInUse, ok bool) {
	c, isInUse, ok = nodes.readChunk(start, r)
	return c, isInUse && !nodes.heap.heaps.Cached[start], ok
}

// readChunk is parseChunk by the headers alone: a chunk in a cache looks like one in use.
func (nodes *nodeTable) readChunk(start uint64, r region) (c glibc.Chunk, isInUse, ok bool) {
	header, ok := nodes.heap.pages.peek(start, glibc.HeaderSize)
	if !ok {
		return c, false, false
	}
	c, ok = glibc.ParseChunk(header, start, r.End)
	if !ok || c.End() == r.End {
		return c, false, ok
	}
	next, ok := nodes.heap.pages.peek(c.End(), glibc.HeaderSize)
	return c, ok && glibc.IsPrevInUse(next), ok
}

// anonymousAt returns the block of a pool that an address is in, or the chunk with a mapping of its
// own.
func (nodes *nodeTable) anonymousAt(address uint64, r region) (block, bool) {
	h := nodes.heap
	size := h.memory.poolSize
	start := address &^ (size - 1)
	if h.types == nil || start < r.Start || start+size > r.End {
		return h.memory.mmappedAt(address)
	}

	p, isChanging := h.pages.pool(start, size)
	switch {
	case p != nil:
		return poolBlock(p, address)
	case isChanging:
		return block{}, false
	}
	return h.memory.mmappedAt(address)
}
