package objects

import (
	"slices"

	"github.com/allocscope/allocscope/tracer/cpython"
	"github.com/allocscope/allocscope/tracer/mem"
)

const (
	maxGlobals = 1 << 14 // entries of the dict of a module that are read
	// containerHead is how many bytes of a container are read to find its table.
	containerHead = 64
)

// owned returns the words that lead to nodes of a level from variables, and to the tables of large
// containers and of modules. For the other nodes, all memory has to be read.
func (s *search) owned(level []*node) (others []*node, hits []hit) {
	if s.owners == nil {
		s.findOwners()
	}
	for _, n := range level {
		at := s.owners[n.address]
		if at == 0 || n.sample {
			others = append(others, n)
			continue
		}
		n.isFollowed, n.searched = true, true
		n.more = n.more || n.typ != nil // a variable may be one of several
		hits = append(hits, hit{at, n.address, n})
	}
	return others, hits
}

// findOwners finds the variables of modules and of running functions, and the words that lead to
// the tables of modules, of large containers and of the containers in variables.
func (s *search) findOwners() {
	s.owners = make(map[uint64]uint64)
	h := s.heap
	if h.objects == nil {
		return
	}
	for _, c := range s.index.growing {
		s.owners[c.table] = c.field
	}

	var values []uint64
	note := func(at, word uint64) bool {
		if r, ok := h.memory.regionAt(word); ok && word%wordSize == 0 &&
			(r.kind == regionAnonymous || r.kind == regionHeap) {
			s.owners[word] = at
			values = append(values, word)
		}
		return !h.memory.budget.isSpent()
	}

	for dict := range h.roots.modules {
		field := dict + h.version.DictKeys
		table, _ := h.pages.word(field)
		if shape, ok := h.objects.dicts.keysAt(table); ok {
			start := table + shape.EntriesAt
			size := min(uint64(shape.Entries), maxGlobals) * shape.EntrySize
			h.memory.eachWord(mem.Span{Start: start, End: start + size}, note)
		}
		s.owners[table] = field
	}

	for _, span := range h.roots.frameSpans() {
		h.memory.eachWord(span, note)
	}

	slices.Sort(values)
	heads, err := h.memory.reader.Peek(values, containerHead)
	if err != nil {
		return
	}
	h.types.learn(heads)
	for i, head := range heads {
		if head == nil {
			continue
		}
		t := h.types.at(mem.Word(head, cpython.ObType))
		if t == nil || t.kind != kindList && t.kind != kindDict && t.kind != kindSet {
			continue
		}
		field, count := h.objects.tableAt(t), uint64(0)
		if at, _ := h.objects.entriesAt(t); max(at, field)+wordSize <= containerHead {
			s.owners[mem.Word(head, field)] = values[i] + field
			count = mem.Word(head, at)
		}
		if s.index.isUnmarked && count >= minGrowing && count <= maxItems {
			c := sizedContainer{address: values[i], entries: count}
			s.index.growing = append(s.index.growing, c)
		}
	}
	s.index.sortGrowing()
}

// isErased reports whether a word is one that an index of all references has not: it is data, or in
// the head of an object.
func (s *search) isErased(e edge) bool {
	if s.index.only == nil || e.typ() == nil {
		return false
	}
	head := e.from.address
	if e.from.typ.flags&cpython.FlagHaveGC != 0 {
		head -= s.heap.version.GCHead
	}
	return e.from.typ.isLeaf() || e.at >= head && e.at < e.from.address+cpython.ObjectHead
}
