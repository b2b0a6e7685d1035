package objects

import (
	"slices"
	"strconv"

	"github.com/allocscope/allocscope/growth/keeper"
	"github.com/allocscope/allocscope/tracer/cpython"
	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/objects/interpreter"
	"github.com/allocscope/allocscope/tracer/process"
)

// readContainer returns the entries of a container, and some of them by their place.
func (o *objectReader) readContainer(n *node) keeper.Reading {
	reading := keeper.Reading{
		Address: n.address, Entries: keeper.Entries(o.length(n.address, n.typ)),
	}

	start, distance, length := o.ordered(n)
	for _, place := range keeper.MarkPlaces(length) {
		value, ok := o.pages.word(start + uint64(place)*distance)
		if !ok {
			break
		}
		reading.Marks = append(reading.Marks, keeper.Mark{Place: place, Value: value})
	}
	return reading
}

// Reread returns the searches of which it can read all containers once more, as they are now.
func Reread(h *Heap, searches []keeper.Search) (again []keeper.Search, err error) {
	if h.python == nil {
		return nil, nil
	}
	if err := h.refreshBy((*memory).findBlocks); err != nil {
		return nil, err
	}
	for _, s := range searches {
		s.Paths = slices.Clone(s.Paths)
		if h.objects.rereadPaths(s.Paths) {
			s.Elapsed = process.Monotonic()
			again = append(again, s)
		}
	}
	return again, nil
}

// rereadPaths reads the containers on paths once more. It returns false where there are none, or
// where one of them may be another one by now.
func (o *objectReader) rereadPaths(paths []keeper.Path) (hasAny bool) {
	for i := range paths {
		paths[i].Links = slices.Clone(paths[i].Links)
		for k := range paths[i].Links {
			l := &paths[i].Links[k]
			if len(l.Readings) == 0 {
				continue
			}
			hasAny, l.Readings, l.Entries = true, slices.Clone(l.Readings), 0
			for n, was := range l.Readings {
				now, ok := o.reread(was, l.Type)
				if !ok {
					return false
				}
				l.Readings[n], l.Entries = now, l.Entries+now.Entries
			}
		}
	}
	return hasAny
}

// reread reads a container once more. It is the same one if all entries that were noted are in
// place.
func (o *objectReader) reread(was keeper.Reading, name string) (now keeper.Reading, ok bool) {
	head, ok := o.pages.peek(was.Address, cpython.ObjectHead)
	if !ok || o.version.Refcnt(mem.Word(head, cpython.ObRefcnt)) == 0 { // it was freed
		return now, false
	}
	n := &node{address: was.Address, typ: o.types.at(mem.Word(head, cpython.ObType))}
	if n.typ == nil || n.typ.name != name {
		return now, false
	}
	now = o.readContainer(n)
	isGone := func(m keeper.Mark) bool { return !slices.Contains(now.Marks, m) }
	isSame := len(was.Marks) > 0 && !slices.ContainsFunc(was.Marks, isGone)
	return now, now.Entries >= 0 && isSame
}

// limitOf returns the most entries that a deque can have; 0: it has no limit.
func (o *objectReader) limitOf(n *node) int64 {
	if n.typ == nil || n.typ.kind != kindDeque {
		return 0
	}
	maxlen, _ := o.pages.word(n.address + o.version.DequeMaxlen)
	return limitBy(maxlen)
}

// ownerNames are the attributes by which an object that limits its container is known, whatever its
// class is called: the limit, and the state that it keeps for the limit. Queues count tasks or have
// a semaphore, caches count their entries.
var ownerNames = []struct{ limit, state, size string }{
	{limit: "maxsize", state: "unfinished_tasks"},                                // queue.Queue
	{limit: "_maxsize", state: "_unfinished_tasks"},                              // asyncio.Queue
	{limit: "_maxsize", state: "_sem"},                                           // multiprocessing.Queue
	{limit: "_Cache__maxsize", size: "_Cache__currsize"},                         // cachetools
	{limit: "maxsize", size: "currsize"}, {limit: "_maxsize", size: "_currsize"}, // caches like it
}

// semValueMax is SEM_VALUE_MAX, which a multiprocessing.Queue without a limit has.
const semValueMax = 1<<31 - 1

// ownerLimit returns the most entries of the container of an object that limits it; 0: there is no
// limit, or it is not known.
func (o *objectReader) ownerLimit(n *node, entries int64) int64 {
	if n.typ == nil || n.typ.kind != kindOther || entries <= 0 {
		return 0
	}
	for _, names := range ownerNames {
		limit, ok := o.number(n, names.limit)
		if !ok || limit <= 0 || limit >= semValueMax {
			continue
		}
		if names.size == "" {
			if _, ok := o.attribute(n, names.state); ok && entries <= limit {
				return limit
			}
			continue
		}
		// A size may be in other units than entries: of bytes, for which the entries stand.
		size, ok := o.number(n, names.size)
		if ok && size > 0 && size <= limit {
			return int64(float64(entries) * float64(limit) / float64(size))
		}
	}
	return 0
}

// number returns an attribute that is an int.
func (o *objectReader) number(n *node, name string) (int64, bool) {
	value, ok := o.attribute(n, name)
	if !ok {
		return 0, false
	}
	text, _ := o.python.Repr(value)
	number, err := strconv.ParseInt(text, 10, 64)
	return number, err == nil
}

// maxAttributes bounds the attributes of an object that are read.
const maxAttributes = 64

// attribute returns an attribute of an instance, by its own dict or values.
func (o *objectReader) attribute(n *node, name string) (value uint64, ok bool) {
	dict, values := o.attributesOf(n)
	if dict != 0 {
		return o.python.Lookup(dict, name, maxAttributes)
	}
	shape, ok := o.dicts.keysAt(n.typ.cachedKeys)
	if !ok || values == 0 {
		return 0, false
	}
	items, ok := o.dicts.valuesAt(values, shape)
	if !ok {
		return 0, false
	}

	for i := range uint64(max(0, min(items.Items, shape.Entries, maxAttributes))) {
		key, _ := o.pages.word(n.typ.cachedKeys + shape.EntriesAt + i*shape.EntrySize + shape.KeyAt)
		if text, isText := o.python.Text(key); isText && text == name {
			value, ok = o.pages.word(values + items.ItemsAt + i*wordSize)
			return value, ok && value != 0
		}
	}
	return 0, false
}

// attributesOf returns where an instance has its attributes: in a dict, or in values of its own; 0:
// there are none.
func (o *objectReader) attributesOf(n *node) (dict, values uint64) {
	s, t := o.version, n.typ
	if t.flags&cpython.FlagManagedDict == 0 {
		if t.dictoffset > 0 {
			dict, _ = o.pages.word(n.address + uint64(t.dictoffset))
		}
		return dict, 0
	}

	dict, _ = o.pages.word(n.address + uint64(s.ManagedDict))
	switch {
	case s.TagsManagedDict && dict&cpython.ManagedValuesTag != 0:
		return 0, dict + cpython.ManagedValuesTag
	case dict != 0 || s.TagsManagedDict:
	case s.InlineValues && t.flags&cpython.FlagInlineValues != 0:
		values = n.address + t.basicsize
	case !s.InlineValues:
		values, _ = o.pages.word(n.address + uint64(s.ManagedValues))
	}
	return dict, values
}

// limitBy is a limit as CPython has it: -1 where there is none.
func limitBy(word uint64) int64 {
	if word > maxItems {
		return 0
	}
	return int64(word)
}

// cacheLink returns the link to the entries of a functools.lru_cache. One with a limit has them in
// a list of its own, too, by which the samples may be found.
func (o *objectReader) cacheLink(n *node) (keeper.Link, bool) {
	dict, _ := o.pages.word(n.address + o.version.LRUCache)
	maxsize, ok := o.pages.word(n.address + o.version.LRUMaxsize)
	if !ok || dict == 0 {
		return keeper.Link{}, false
	}

	typ, _ := o.pages.word(dict + cpython.ObType)
	entries := &node{address: dict, typ: o.types.at(typ)}
	if entries.typ == nil || entries.typ.kind != kindDict {
		return keeper.Link{}, false
	}
	reading := o.readContainer(entries)
	return keeper.Link{
		How: keeper.HowVariable, Type: entries.typ.name, Entries: reading.Entries,
		Readings: []keeper.Reading{reading}, Limit: limitBy(maxsize),
	}, reading.Entries >= 0
}

// ordered returns where a list, dict or deque has its first item or key, how far the next one is,
// and how many follow each other there; 0: the container has no order.
func (o *objectReader) ordered(n *node) (start, distance uint64, length int64) {
	s := o.version
	switch n.typ.kind {
	case kindList:
		start, _ = o.pages.word(n.address + s.ListItem)
		return start, wordSize, max(0, o.length(n.address, n.typ))

	case kindDict:
		keys, _ := o.pages.word(n.address + s.DictKeys)
		shape, ok := o.dicts.keysAt(keys)
		if !ok || shape.Split {
			return 0, 0, 0
		}
		return keys + shape.EntriesAt + shape.KeyAt, shape.EntrySize, shape.Entries

	case kindDeque: // the first block alone: an entry taken from the left moves its start
		head, ok := o.pages.peek(n.address+s.DequeLeftblock, int(s.DequeRightindex-s.DequeLeftblock))
		if !ok {
			return 0, 0, 0
		}
		block := mem.Word(head, 0)
		index := mem.Word(head, s.DequeLeftindex-s.DequeLeftblock)
		items := (s.BlockRightlink - s.BlockData) / wordSize
		if index >= items {
			return 0, 0, 0
		}
		rest := min(int64(items-index), max(0, o.length(n.address, n.typ)))
		return block + s.BlockData + index*wordSize, wordSize, rest
	}
	return 0, 0, 0
}

// A dictReader reads dicts, and finds the keys and values that their tables refer to.
type dictReader struct {
	python  *interpreter.Runtime
	version *cpython.Version
	pages   *pageCache
	names   map[uint64]keyName // by the address of the key
}

// keysAt returns the shape of the PyDictKeysObject at an address.
func (d *dictReader) keysAt(keys uint64) (cpython.KeysShape, bool) {
	header, ok := d.pages.peek(keys, int(d.version.KeysHeader))
	if !ok {
		return cpython.KeysShape{}, false
	}
	return d.version.Keys(header)
}

// valuesAt returns the shape of the values of a split table.
func (d *dictReader) valuesAt(values uint64, keys cpython.KeysShape) (cpython.ValuesShape, bool) {
	s := d.version
	var header []byte
	if s.ValuesHeader > 0 {
		var ok bool
		header, ok = d.pages.peek(values+uint64(s.ValuesHeaderAt), int(s.ValuesHeader))
		if !ok {
			return cpython.ValuesShape{}, false
		}
	}
	return s.ValuesItems(header, keys)
}

// keysReference returns the role of a word in a PyDictKeysObject: a key or a value.
func (d *dictReader) keysReference(keys, at uint64) (reference, bool) {
	shape, ok := d.keysAt(keys)
	first := keys + shape.EntriesAt
	if !ok || at < first || int64((at-first)/shape.EntrySize) >= shape.Entries {
		return reference{}, false
	}

	index, within := (at-first)/shape.EntrySize, (at-first)%shape.EntrySize
	content, ok := d.pages.peek(first+index*shape.EntrySize, int(shape.EntrySize))
	switch {
	case !ok || shape.Split:
		return reference{}, false
	case within == shape.KeyAt:
		return reference{how: keeper.HowKey}, mem.Word(content, shape.ValueAt) != 0
	case within == shape.ValueAt:
		key := mem.Word(content, shape.KeyAt)
		return reference{how: keeper.HowValue, key: key}, key != 0
	}
	return reference{}, false
}

// valuesReference returns the role of a word in the values of a split table.
func (d *dictReader) valuesReference(values, keys, at uint64) (reference, bool) {
	shape, ok := d.keysAt(keys)
	if !ok {
		return reference{}, false
	}

	items, ok := d.valuesAt(values, shape)
	first := values + items.ItemsAt
	if !ok || at < first || int64((at-first)/wordSize) >= items.Items {
		return reference{}, false
	}

	index := (at - first) / wordSize
	key, ok := d.pages.word(keys + shape.EntriesAt + index*shape.EntrySize + shape.KeyAt)
	return reference{how: keeper.HowValue, key: key}, ok
}

// A keyName is the name of a key: in Python's notation, and the text itself if it is text.
type keyName struct{ repr, text string }

// maxNames is how many names of keys are remembered.
const maxNames = 1 << 12

// named returns a reference by a dict's key with the name of the key. Most references are found on
// ways that lead nowhere, and need no name.
func (d *dictReader) named(r reference) reference {
	if r.key == 0 {
		return r
	}

	name, isKnown := d.names[r.key]
	if !isKnown {
		name.repr, _ = d.python.Repr(r.key)
		name.text, _ = d.python.Text(r.key)
		if len(d.names) < maxNames {
			d.names[r.key] = name
		}
	}
	r.key, r.name, r.attr = 0, name.repr, name.text
	if r.how == keeper.HowAttribute {
		r.name = r.attr
	}
	return r
}
