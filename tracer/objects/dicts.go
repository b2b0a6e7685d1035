package objects

import (
	"github.com/allocscope/allocscope/growth/keeper"
	"github.com/allocscope/allocscope/tracer/cpython"
	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/objects/interpreter"
)

// A dictReader reads dicts, and finds the keys and values that their tables refer to.
type dictReader struct {
	python  *interpreter.Runtime
	version *cpython.Version
	pages   *pageCache
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
		r := d.keyReference(mem.Word(content, shape.KeyAt))
		r.how = keeper.HowValue
		return r, mem.Word(content, shape.KeyAt) != 0
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
	r := d.keyReference(key)
	r.how = keeper.HowValue
	return r, ok
}

// keyReference returns the name of a key.
func (d *dictReader) keyReference(key uint64) (r reference) {
	r.name, _ = d.python.Repr(key)
	r.attr, _ = d.python.Text(key)
	return r
}
