package objects

import (
	"math"

	"github.com/allocscope/allocscope/growth/keeper"
	"github.com/allocscope/allocscope/tracer/cpython"
	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/numpy"
	"github.com/allocscope/allocscope/tracer/objects/interpreter"
	"github.com/allocscope/allocscope/tracer/torch"
)

// A reference is how an object refers to another one.
type reference struct {
	how  keeper.How
	name string // in Python's notation; empty: there is none
	attr string // of a dict's key that is text, or of an attribute: the text itself
	// key is the address of the dict's key that has the name, until dictReader.named reads it; 0:
	// there is none.
	key uint64
	// isDict is set for the dict that has an object's attributes.
	isDict bool
}

// An objectReader finds how the words of an object refer to others.
type objectReader struct {
	python  *interpreter.Runtime
	version *cpython.Version
	pages   *pageCache
	dicts   *dictReader
	types   *typeTable
}

// entriesAt returns where objects of a type have the number of their entries; false: they are no
// containers.
func (o *objectReader) entriesAt(t *typeInfo) (offset uint64, isContainer bool) {
	switch t.kind {
	case kindList, kindTuple, kindDeque:
		return cpython.ObSize, true
	case kindDict:
		return o.version.DictUsed, true
	case kindSet:
		return o.version.SetUsed, true
	}
	return 0, false
}

// tableAt returns where a list, dict or set has the address of its table.
func (o *objectReader) tableAt(t *typeInfo) (offset uint64) {
	switch t.kind {
	case kindDict:
		return o.version.DictKeys
	case kindSet:
		return o.version.SetTable
	}
	return o.version.ListItem
}

// length returns the number of entries of a container; -1: it is none.
func (o *objectReader) length(object uint64, t *typeInfo) int64 {
	if t == nil {
		return -1
	}
	offset, isContainer := o.entriesAt(t)
	if !isContainer {
		return -1
	}

	n, ok := o.pages.word(object + offset)
	if !ok || n > maxItems {
		return -1
	}
	return int64(n)
}

// tableReference returns how a container refers to an object by its table. e refers to the table,
// and at is where in the table the object is referred to. isTable is false if e leads to no table
// of the container. ok is false if no entry is at that place any more.
func (o *objectReader) tableReference(e edge, at uint64) (r reference, isTable, ok bool) {
	p, s := e.from, o.version
	if p.typ == nil {
		return reference{}, false, false
	}

	offset, index := e.at-p.address, (at-e.value)/wordSize
	switch {
	case p.typ.kind == kindList && offset == s.ListItem:
		ok = at >= e.value && int64(index) < o.length(p.address, p.typ)
		return reference{how: keeper.HowItem}, true, ok

	case p.typ.kind == kindDict && offset == s.DictKeys:
		r, ok = o.dicts.keysReference(e.value, at)
		return r, true, ok
	case p.typ.kind == kindDict && offset == s.DictValues:
		keys, isRead := o.pages.word(p.address + s.DictKeys)
		r, ok = o.dicts.valuesReference(e.value, keys, at)
		return r, true, ok && isRead

	case p.typ.kind == kindSet && offset == s.SetTable:
		mask, isRead := o.pages.word(p.address + s.SetMask)
		ok = isRead && at >= e.value && (at-e.value)/s.SetEntrySize <= mask &&
			(at-e.value)%s.SetEntrySize == 0
		return reference{how: keeper.HowElement}, true, ok

	case p.typ.kind == kindDeque && (offset == s.DequeLeftblock || offset == s.DequeRightblock):
		return reference{how: keeper.HowItem}, true, o.isInDeque(p, e.value, at)

	case p.typ.flags&cpython.FlagManagedDict != 0 && e.at == o.managedValues(p):
		values := e.value
		if s.TagsManagedDict {
			values += cpython.ManagedValuesTag
		}
		r, ok = o.dicts.valuesReference(values, p.typ.cachedKeys, at)
		r.how = keeper.HowAttribute
		return r, true, ok

	case p.typ.isArray && offset == numpy.ArrayData:
		descr, _ := o.pages.word(p.address + numpy.ArrayDescr)
		kind, isRead := o.pages.peek(descr+numpy.DescrKind, 1)
		return reference{how: keeper.HowItem}, true, isRead && kind[0] == numpy.KindObject
	}
	return reference{}, false, false
}

// isInDeque reports whether a word of the first or last block of a deque is an item of it, or leads
// to another block. Items taken out stay in the block: the indices tell them from the others.
func (o *objectReader) isInDeque(deque *node, block, at uint64) bool {
	s := o.version
	var ends [2]uint64 // blocks
	var indices [2]uint64
	for i, offset := range []uint64{s.DequeLeftblock, s.DequeRightblock} {
		ends[i], _ = o.pages.word(deque.address + offset)
	}
	for i, offset := range []uint64{s.DequeLeftindex, s.DequeRightindex} {
		var ok bool
		if indices[i], ok = o.pages.word(deque.address + offset); !ok {
			return false
		}
	}

	if at < block || o.length(deque.address, deque.typ) < 1 {
		return false
	}
	switch offset := at - block; {
	case offset == s.BlockLeftlink:
		return block != ends[0]
	case offset == s.BlockRightlink:
		return block != ends[1]
	case offset >= s.BlockData && offset < s.BlockRightlink:
		i := (offset - s.BlockData) / wordSize
		return (block != ends[0] || i >= indices[0]) && (block != ends[1] || i <= indices[1])
	}
	return false
}

// managedValues returns where an object has the pointer to the values of its attributes.
func (o *objectReader) managedValues(n *node) uint64 {
	if o.version.TagsManagedDict {
		return n.address + uint64(o.version.ManagedDict)
	}
	return n.address + uint64(o.version.ManagedValues)
}

// objectReference returns how an object refers to another one by a word of its own. ok is false for
// a word that keeps nothing: a cache, or memory that is reserved for later.
func (o *objectReader) objectReference(e edge) (r reference, ok bool) {
	p, s := e.from, o.version
	if p.typ == nil {
		return reference{how: keeper.HowField}, true
	}

	offset := e.at - p.address
	isDict := reference{how: keeper.HowAttribute, attr: "__dict__", isDict: true}
	if o.isDictAt(p, e.at) {
		return isDict, true
	}

	switch p.typ.kind {
	case kindDeque:
		if offset < o.types.baseSize(p.typ, "collections.deque") { // blocks for the next items
			return reference{}, false
		}

	case kindDict: // ma_version_tag counts changes, up to the addresses of a heap below 4 GiB
		if offset <= s.DictValues {
			return reference{how: keeper.HowField}, offset == s.DictKeys || offset == s.DictValues
		}

	case kindTuple:
		index := (offset - s.TupleItem) / wordSize
		if offset >= s.TupleItem && int64(index) < o.length(p.address, p.typ) {
			name := o.types.memberNames(p.typ)[offset]
			return reference{how: keeper.HowItem, attr: name}, true
		}

	case kindSet:
		table, ok := o.pages.word(p.address + s.SetTable)
		isSmall := ok && table == p.address+s.SetSmalltable
		if offset >= s.SetSmalltable && offset < s.SetSmalltable+cpython.SetMinsize*s.SetEntrySize {
			isKey := (offset-s.SetSmalltable)%s.SetEntrySize == 0
			return reference{how: keeper.HowElement}, isSmall && isKey
		}

	case kindFunction:
		switch offset {
		case s.FuncClosure:
			return reference{how: keeper.HowClosure}, true
		case s.FuncDefaults, s.FuncKwdefaults:
			return reference{how: keeper.HowDefault}, true
		case s.FuncDict:
			return isDict, true
		case s.FuncGlobals: // each function of a module refers to its dict
			return reference{}, false
		}

	case kindModule:
		if offset == s.ModuleDict {
			return isDict, true
		}

	case kindType:
		if s.HTCachedKeys != 0 && offset == s.HTCachedKeys { // the names that its instances share
			return reference{how: keeper.HowField}, true
		}
		return isDict, offset == s.TypeDict

	case kindFrame, kindGenerator:
		f, ok := o.python.FrameOf(p.address, p.typ.name)
		if ok && f.Locals >= p.address && f.Locals <= e.at {
			return reference{how: keeper.HowLocal, attr: variableAt(f, e.at)}, e.at < f.End
		}
		if offset >= o.localsplus(p.typ.kind) { // it is executing: see frameRoot
			return reference{}, false
		}
	}

	if s.InlineValues && p.typ.flags&cpython.FlagInlineValues != 0 && offset >= p.typ.basicsize {
		r, ok = o.dicts.valuesReference(p.address+p.typ.basicsize, p.typ.cachedKeys, e.at)
		r.how = keeper.HowAttribute
		return r, ok
	}
	return o.memberReference(p, offset)
}

// isDictAt reports whether an object has the pointer to the dict of its attributes at an address.
func (o *objectReader) isDictAt(p *node, at uint64) bool {
	t := p.typ
	switch {
	case t.flags&cpython.FlagManagedDict != 0:
		return at == p.address+uint64(o.version.ManagedDict)
	case t.dictoffset > 0:
		return at == p.address+uint64(t.dictoffset)
	case t.dictoffset < 0 && t.itemsize > 0: // from the end, of bytes, int and tuple before 3.12
		n, _ := o.pages.word(p.address + cpython.ObSize)
		n = min(n, -n) // of a negative int
		return n < maxItems &&
			at == p.address+mem.AlignUp(t.basicsize+n*t.itemsize, wordSize)+uint64(t.dictoffset)
	}
	return false
}

// bufferReference returns how an object refers to the buffer with its data: that has no object, and
// is kept as the object is. ok is false if the word is none, or if the object does not own the
// data.
func (o *objectReader) bufferReference(e edge) (r reference, ok bool) {
	p := e.from
	if p.typ == nil {
		return reference{}, false
	}

	isSet := func(offset, mask uint64) bool {
		w, ok := o.pages.word(p.address + offset)
		return ok && w&mask != 0
	}
	switch offset := e.at - p.address; {
	case p.typ.isArray && offset == numpy.ArrayData:
		ok = isSet(numpy.ArrayFlags, numpy.ArrayOwnData) || isSet(numpy.ArrayBase, math.MaxUint64)
	case p.typ.isCtypes && offset == cpython.CDataPtr:
		ok = isSet(cpython.CDataNeedsfree, math.MaxUint32) ||
			isSet(cpython.CDataBase, math.MaxUint64) ||
			isSet(cpython.CDataObjects, math.MaxUint64)
	}
	return reference{how: keeper.HowField}, ok
}

// localsplus returns where the variables of a frame object or generator begin, in bytes from its
// start; the largest number: they lie elsewhere.
func (o *objectReader) localsplus(kind typeKind) uint64 {
	s := o.version
	switch {
	case kind == kindFrame && s.HasFrameObjects():
		return s.FrameLocalsplus
	case kind == kindGenerator && s.GenIframe != cpython.Absent:
		return s.GenIframe + s.FrameLocalsplus
	}
	return math.MaxUint64
}

// memberReference returns how an object refers to another one by a field of its structure.
func (o *objectReader) memberReference(p *node, offset uint64) (reference, bool) {
	size := p.typ.basicsize
	if p.typ.itemsize > 0 {
		n, _ := o.pages.word(p.address + cpython.ObSize)
		if n < maxItems {
			size += n * p.typ.itemsize
		}
	}

	isInside := offset >= cpython.ObjectHead && offset+wordSize > offset &&
		offset+wordSize <= max(size, p.typ.basicsize)
	if !isInside {
		return reference{}, false
	}
	if name := o.types.memberNames(p.typ)[offset]; name != "" {
		return reference{how: keeper.HowAttribute, name: name, attr: name}, true
	}

	if p.typ.isTensor {
		first, ok := o.pages.word(p.address + torch.FirstField)
		if name := torch.HooksAt(offset, first); ok && name != "" {
			return reference{how: keeper.HowAttribute, name: name, attr: name}, true
		}
	}

	if p.typ.isInline || p.typ.isArray && offset == numpy.ArrayData ||
		p.typ.isCtypes && isCtypesData(offset) {
		return reference{}, false
	}
	// The other fields of a code object are caches, which keep nothing: co_zombieframe.
	return reference{how: keeper.HowField}, p.typ.kind != kindCode
}

// isWeak reports whether a word of an object refers to another object without keeping it.
func (o *objectReader) isWeak(p *node, at uint64) bool {
	if p.typ == nil {
		return false
	}

	s := o.version
	offset := at - p.address
	switch {
	case at < p.address: // the collector's lists lead to all objects
		isDict := at == p.address+uint64(s.ManagedDict) || at == p.address+uint64(s.ManagedValues)
		return p.typ.flags&cpython.FlagManagedDict == 0 || !isDict
	case offset < cpython.ObjectHead:
		return true
	case p.typ.weaklistoffset > 0 && offset == uint64(p.typ.weaklistoffset):
		return true
	case p.typ.name == "_contextvars.ContextVar" || p.typ.name == "ContextVar":
		return offset >= cpython.ContextVarCached
	case p.typ.kind == kindFrame && offset == s.FrameGen:
		return true
	case p.typ.kind == kindWeakref:
		return offset < s.WeakrefSize && offset != cpython.WeakrefCallback
	case p.typ.kind == kindType: // caches of methods, and lists of derived types
		return offset != s.TypeDict && (s.HTCachedKeys == 0 || offset != s.HTCachedKeys)
	}
	return false
}

// A table is the memory of a container's entries, which moves while the container grows.
type table struct {
	field, start uint64 // where the container refers to it, and the address there
	entries      mem.Span
}

// table returns the table of a container; its entries are empty if it has none.
func (o *objectReader) table(n *node) (t table) {
	if n.typ == nil {
		return t
	}

	s, first, size := o.version, uint64(0), uint64(0)
	switch n.typ.kind {
	case kindList:
		t.field = n.address + s.ListItem
		size = uint64(max(0, o.length(n.address, n.typ))) * wordSize
	case kindDict:
		t.field = n.address + s.DictKeys
		keys, _ := o.pages.word(t.field)
		if shape, ok := o.dicts.keysAt(keys); ok {
			first, size = shape.EntriesAt, uint64(shape.Entries)*shape.EntrySize
		}
	case kindSet:
		t.field = n.address + s.SetTable
		mask, _ := o.pages.word(n.address + s.SetMask)
		size = (mask + 1) * s.SetEntrySize
	default:
		return t
	}

	start, isRead := o.pages.word(t.field)
	if !isRead || start == 0 || size > maxItems {
		return table{}
	}
	t.start, t.entries = start, mem.Span{Start: start + first, End: start + first + size}
	return t
}

// isCtypesData reports whether an object of ctypes has data at an offset, or the pointer to them.
func isCtypesData(offset uint64) bool {
	return offset == cpython.CDataPtr ||
		offset >= cpython.CDataValue && offset < cpython.CDataValueEnd
}

// isCollectorLink reports whether a word is a link of the garbage collector's lists: they lead to
// the head of each object that it tracks, and keep none.
func (p *proof) isCollectorLink(m *member, at, word uint64) bool {
	if m.typ == nil || m.typ.flags&cpython.FlagHaveGC == 0 ||
		word&^cpython.GCFlags != m.address-p.heap.version.GCHead || at%wordSize != 0 {
		return false
	}

	// The word is _gc_next or _gc_prev of a head, whose neighbours lead back to it.
	pages := p.heap.pages
	for _, head := range []uint64{at, at - cpython.GCPrev} {
		next, hasNext := pages.word(head)
		previous, hasPrevious := pages.word(head + cpython.GCPrev)
		if !hasNext || !hasPrevious {
			continue
		}
		back, _ := pages.word(next&^cpython.GCFlags + cpython.GCPrev)
		forth, _ := pages.word(previous &^ cpython.GCFlags)
		if back&^cpython.GCFlags == head && forth&^cpython.GCFlags == head {
			return true
		}
	}
	return false
}
