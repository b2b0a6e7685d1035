package interpreter

// maxGlobals bounds the entries of a dict in which a name is looked up.
const maxGlobals = 1 << 14

// entries calls visit with the key and the value of each entry of a dict, in their order, until it
// returns false. It is false if the dict is none. It visits at most limit entries.
func (r *Runtime) entries(v *view, dict uint64, limit int64, visit func(key, value uint64) bool,
) bool {
	s := r.version
	if !r.isSubtype(v, dict, "PyDict_Type") {
		return false
	}
	keys, ok := v.pointer(dict + s.DictKeys)
	if !ok {
		return false
	}

	header := v.bytes(keys, int(s.KeysHeader))
	shape, ok := s.Keys(header)
	if !ok {
		return false
	}
	values, ok := v.word(dict + s.DictValues)
	if !ok {
		return false
	}

	items := shape.Entries
	if values != 0 {
		valuesShape, ok := s.ValuesItems(v.bytes(values+uint64(s.ValuesHeaderAt), int(s.ValuesHeader)),
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
		key, _ := v.word(entry + shape.KeyAt)
		value, ok := v.word(at)
		if !ok {
			return true
		}
		if isPointer(key) && isPointer(value) && !visit(key, value) {
			return true
		}
	}

	return true
}

// lookup returns the value of a str key of a dict.
func (r *Runtime) lookup(v *view, dict uint64, name string) (value uint64, ok bool) {
	length := r.interpreter.CodeLayout.UnicodeLength
	r.entries(v, dict, maxGlobals, func(key, of uint64) bool {
		if n, readable := v.word(key + length); !readable || n != uint64(len(name)) {
			return true
		}
		if text, isText := r.text(v, key, maxText); isText && text == name {
			value, ok = of, true
		}
		return !ok
	})
	return value, ok
}
