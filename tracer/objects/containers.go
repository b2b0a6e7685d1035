package objects

import (
	"github.com/allocscope/allocscope/tracer/objects/cpython"
)

// An entry is a key of a dict with its value: addresses of objects. value is 0 where there is none.
type entry struct{ key, value uint64 }

// namespace returns the entries of a dict in the order in which they were put in, up to a limit. It returns
// nothing of what does not check.
func (h *Heap) namespace(dict uint64, limit int) []entry {
	s := h.structures
	keys, ok := h.word(dict + s.DictKeys)
	if !ok {
		return nil
	}
	values, ok := h.word(dict + s.DictValues)
	shape, isTable := h.keysAt(keys)
	if !ok || !isTable {
		return nil
	}
	n := uint64(min(int64(limit), shape.Entries))
	content := make([]byte, n*shape.EntrySize)
	if n == 0 || h.process.ReadMemory(keys+shape.EntriesAt, content) != nil {
		return nil
	}
	var items []byte
	if values != 0 {
		items = make([]byte, n*wordSize)
		start, ok := h.valuesStart(values)
		if !ok || h.process.ReadMemory(start, items) != nil {
			return nil
		}
	}
	entries := make([]entry, 0, n)
	for i := range n {
		e := entry{key: word(content, i*shape.EntrySize+shape.KeyAt)}
		if items != nil {
			e.value = word(items, i*wordSize)
		} else {
			e.value = word(content, i*shape.EntrySize+shape.ValueAt)
		}
		if e.key != 0 {
			entries = append(entries, e)
		}
	}
	return entries
}

// keysAt returns the shape of the PyDictKeysObject at an address.
func (h *Heap) keysAt(keys uint64) (cpython.KeysShape, bool) {
	header, ok := h.peek(keys, int(h.structures.KeysHeader))
	if !ok {
		return cpython.KeysShape{}, false
	}
	return h.structures.Keys(header)
}
