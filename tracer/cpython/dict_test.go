package cpython

import (
	"bytes"
	"testing"
)

// FuzzKeys: entries lie within the table, and values within theirs.
func FuzzKeys(f *testing.F) {
	f.Add(12, []byte{
		1, 0, 0, 0, 0, 0, 0, 0, 6, 6, 2, 0, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0, 0, 0, 20, 0, 0, 0, 0, 0, 0, 0,
	}, []byte{0, 0, 0, 0, 0, 0, 20, 32})
	f.Add(8, bytes.Repeat([]byte{0x80}, 40), []byte{})
	f.Add(14, bytes.Repeat([]byte{0xff}, 40), []byte{30, 30, 1, 1, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, minor int, header, values []byte) {
		s, err := Find(minor)
		if err != nil {
			return
		}
		keys, ok := s.Keys(header)
		if !ok {
			return
		}
		end := keys.EntriesAt + uint64(keys.Entries)*keys.EntrySize
		if keys.Entries < 0 || keys.Entries+keys.Usable > keys.Capacity || end > keys.Size ||
			keys.Size > 1<<46 || keys.EntriesAt < s.KeysHeader ||
			max(keys.KeyAt, keys.ValueAt)+8 > keys.EntrySize {
			t.Errorf("keys %+v", keys)
		}
		shape, ok := s.ValuesItems(values, keys)
		if !ok {
			return
		}
		last := int64(shape.ItemsAt) + 8*shape.Items
		if shape.Items < 0 || shape.BlockAt > 0 || last > shape.BlockAt+int64(shape.Size) {
			t.Errorf("values %+v of keys %+v", shape, keys)
		}
	})
}
