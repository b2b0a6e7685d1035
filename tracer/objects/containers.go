package objects

import (
	"github.com/allocscope/allocscope/growth/keeper"
	"github.com/allocscope/allocscope/tracer/cpython"
	"github.com/allocscope/allocscope/tracer/mem"
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

// limitOf returns the most entries that a deque can have; 0: it has no limit.
func (o *objectReader) limitOf(n *node) int64 {
	if n.typ == nil || n.typ.kind != kindDeque {
		return 0
	}
	maxlen, _ := o.pages.word(n.address + o.version.DequeMaxlen)
	return limitBy(maxlen)
}

// limitBy is a limit as CPython has it: -1 where there is none.
func limitBy(word uint64) int64 {
	if word > maxItems {
		return 0
	}
	return int64(word)
}

// cacheLink returns the link to the entries of a functools.lru_cache. One with a limit has them in a
// list of its own, too, by which the samples may be found.
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
