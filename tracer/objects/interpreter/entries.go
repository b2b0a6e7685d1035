package interpreter

import "unicode/utf8"

// maxGlobals bounds the entries of a dict in which a name is looked up.
const maxGlobals = 1 << 14

// entries calls visit with the key and the value of each entry of a dict, in their order, until it
// returns false. It is false if the dict is none. It visits at most limit entries.
func (r *reader) entries(dict uint64, limit int64, visit func(key, value uint64) bool) bool {
	s := r.version
	if !r.isSubtype(dict, "PyDict_Type") {
		return false
	}
	keys, ok := r.pointer(dict + s.DictKeys)
	if !ok {
		return false
	}

	header := r.bytes(keys, int(s.KeysHeader))
	shape, ok := s.Keys(header)
	if !ok {
		return false
	}
	values, ok := r.word(dict + s.DictValues)
	if !ok {
		return false
	}

	items := shape.Entries
	if values != 0 {
		valuesShape, ok := s.ValuesItems(r.bytes(values+uint64(s.ValuesHeaderAt), int(s.ValuesHeader)),
			shape)
		if !ok {
			return false
		}
		items, values = valuesShape.Items, values+valuesShape.ItemsAt
	}

	for i := range uint64(min(items, limit)) {
		entry := keys + shape.EntriesAt + i*shape.EntrySize
		at := entry + shape.ValueAt
		if values != 0 {
			at = values + i*8
		}
		key, _ := r.word(entry + shape.KeyAt)
		value, ok := r.word(at)
		if !ok {
			return true
		}
		if isPointer(key) && isPointer(value) && !visit(key, value) {
			return true
		}
	}

	return true
}

// Lookup returns the value of a str key of a dict, among its first entries up to a limit.
func (r *Runtime) Lookup(dict uint64, name string, limit int64) (value uint64, ok bool) {
	return r.newReader().lookup(dict, name, limit)
}

func (r *reader) lookup(dict uint64, name string, limit int64) (value uint64, ok bool) {
	length := r.interpreter.CodeLayout.UnicodeLength
	characters := utf8.RuneCountInString(name)
	r.entries(dict, limit, func(key, item uint64) bool {
		// Most keys are of another length: only the others are read. A longer name was cut.
		n, isRead := r.word(key + length)
		if !isRead || characters <= maxText && n != uint64(characters) {
			return true
		}
		if text, isText := r.text(key, maxText); isText && text == name {
			value, ok = item, true
		}
		return !ok
	})
	return value, ok
}
