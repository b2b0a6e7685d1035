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
