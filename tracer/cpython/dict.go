package cpython

import "github.com/allocscope/allocscope/tracer/mem"

// A KeysShape is where the entries of a PyDictKeysObject are, in bytes from its beginning on.
type KeysShape struct {
	Entries   int64  // dk_nentries: those that were used, deleted ones among them
	EntriesAt uint64 // of the first entry
	EntrySize uint64
	// KeyAt and ValueAt are the offsets of the pointers within an entry.
	KeyAt, ValueAt uint64
	Usable         int64  // entries that may still be added: dk_usable
	Capacity       int64  // entries that there is memory for
	Size           uint64 // of the whole
	// Split is set for the keys of a split table, whose values lie elsewhere. Before 3.11 the keys
	// do not say so: there the ma_values of the dict does.
	Split bool
}

// Of PyDictKeysObject before 3.11.
// https://github.com/python/cpython/blob/v3.9.0/Objects/dict-common.h
const (
	oldKeysSize     = 8  // dk_size: a word
	oldKeysUsable   = 24 // dk_usable: a word
	oldKeysNentries = 32 // dk_nentries: a word
)

// Of PyDictKeysObject since 3.11.
// https://github.com/python/cpython/blob/v3.11.0/Include/internal/pycore_dict.h
const (
	keysLog2Size       = 8  // dk_log2_size: a byte
	keysLog2IndexBytes = 9  // dk_log2_index_bytes: a byte
	keysKind           = 10 // dk_kind: a byte
	keysUsable         = 16 // dk_usable: a word
	keysNentries       = 24 // dk_nentries: a word

	keysGeneral, keysUnicode, keysSplit = 0, 1, 2 // enum DictKeysKind
)

// Sizes of PyDictKeyEntry (me_hash, me_key, me_value) and PyDictUnicodeEntry (me_key, me_value), in
// bytes.
const (
	keyEntrySize     = 24
	unicodeEntrySize = 16
)

// maxKeysLog2 bounds dk_size: a table of 2^40 indices has 16 TiB.
const maxKeysLog2 = 40

// Keys decodes the beginning of a PyDictKeysObject, KeysHeader bytes. ok is false if it cannot be
// one.
func (s *Structures) Keys(header []byte) (shape KeysShape, ok bool) {
	if uint64(len(header)) < s.KeysHeader {
		return KeysShape{}, false
	}

	var log2, indexBytes uint64
	var usable, entries int64
	shape.EntrySize, shape.KeyAt, shape.ValueAt = keyEntrySize, 8, 16
	if !s.HasKeysKind {
		size := mem.Word(header, oldKeysSize)
		for log2 = 0; log2 <= maxKeysLog2 && 1<<log2 < size; log2++ {
		}
		if 1<<log2 != size {
			return KeysShape{}, false
		}
		indexBytes = size * indexSize(log2)
		usable, entries = int64(mem.Word(header, oldKeysUsable)), int64(mem.Word(header, oldKeysNentries))
	} else {
		log2 = uint64(header[keysLog2Size])
		log2Bytes := uint64(header[keysLog2IndexBytes])
		empty := log2 == 0 && log2Bytes == 3 // empty_keys_struct
		if log2 > maxKeysLog2 || log2Bytes != log2+log2IndexSize(log2) && !empty {
			return KeysShape{}, false
		}
		indexBytes = 1 << log2Bytes
		switch header[keysKind] {
		case keysGeneral:
		case keysSplit:
			shape.Split = true
			fallthrough
		case keysUnicode:
			shape.EntrySize, shape.KeyAt, shape.ValueAt = unicodeEntrySize, 0, 8
		default:
			return KeysShape{}, false
		}
		usable, entries = int64(mem.Word(header, keysUsable)), int64(mem.Word(header, keysNentries))
	}
	return shape.withEntries(s.KeysHeader+indexBytes, usableFraction(log2), usable, entries)
}

// withEntries completes a shape whose entries begin at an offset. capacity is the capacity of the
// table.
func (k KeysShape) withEntries(at uint64, capacity, usable, entries int64) (KeysShape, bool) {
	if entries < 0 || usable < 0 || entries > capacity || usable > capacity-entries {
		return KeysShape{}, false
	}
	k.Entries, k.Usable, k.Capacity, k.EntriesAt = entries, usable, capacity, at
	k.Size = at + uint64(capacity)*k.EntrySize
	return k, true
}

// usableFraction is USABLE_FRACTION: how many entries a table of 2^log2 indices has.
func usableFraction(log2 uint64) int64 { return int64(1<<log2) << 1 / 3 }

// log2IndexSize is the logarithm of the bytes of an index in a table of 2^log2.
func log2IndexSize(log2 uint64) uint64 {
	switch {
	case log2 < 8:
		return 0
	case log2 < 16:
		return 1
	case log2 < 32:
		return 2
	}

	return 3
}

func indexSize(log2 uint64) uint64 { return 1 << log2IndexSize(log2) }

// A ValuesForm is the form of the values of a split table.
type ValuesForm uint8

// Forms of values. Before 3.11 they are nothing but pointers. In 3.11 and 3.12 their sizes are in
// the bytes before them, since then in the header of a struct _dictvalues.
const (
	ValuesPlain ValuesForm = iota + 1
	ValuesPrefixed
	ValuesSized
)

// A ValuesShape is where the values of a split table are, in bytes from the pointer to them on.
type ValuesShape struct {
	Items   int64  // how many values may be set
	ItemsAt uint64 // of the first value; each is a pointer
	// BlockAt is where the memory of the values begins: 0 or negative. Size is its size, in 3.11
	// and 3.12 at most. Embedded values lie in their object.
	BlockAt  int64
	Size     uint64
	Embedded bool
}

// Bounds of the values of a split table: SHARED_KEYS_MAX_SIZE since 3.11, and one of our own
// before.
const (
	maxSharedKeys    = 30
	maxOldSharedKeys = 1 << 20
)

// ValuesItems decodes the values of a split table with these keys. header is the ValuesHeader bytes
// at ValuesHeaderAt from the pointer on. ok is false if they cannot be such values.
func (s *Structures) ValuesItems(header []byte, keys KeysShape) (shape ValuesShape, ok bool) {
	if uint64(len(header)) < s.ValuesHeader {
		return ValuesShape{}, false
	}
	switch s.ValuesForm {
	case ValuesPlain:
		// https://github.com/python/cpython/blob/v3.10.0/Objects/dictobject.c, new_values
		shape = ValuesShape{Items: keys.Entries, Size: uint64(keys.Capacity) * 8}
		return shape, keys.Capacity >= 0 && keys.Entries <= keys.Capacity &&
			keys.Capacity <= maxOldSharedKeys

	case ValuesPrefixed:
		// The byte before the values is the size of the prefix that has the order of insertion: 2
		// more than the values, rounded up to words. The byte before that says how much of it is
		// used. The keys may have had more usable entries when the values were made.
		// https://github.com/python/cpython/blob/v3.12.0/Objects/dictobject.c, new_values
		prefix, used := int64(header[7]), int64(header[6])
		capacity := min(prefix-2, maxSharedKeys)
		if !keys.Split || prefix%8 != 0 || prefix == 0 || prefix > maxSharedKeys+2 ||
			used > capacity || keys.Entries > capacity {
			return ValuesShape{}, false
		}
		shape = ValuesShape{Items: keys.Entries, BlockAt: -prefix, Size: uint64(prefix + capacity*8)}
		return shape, true
	}

	// https://github.com/python/cpython/blob/v3.13.0/Include/internal/pycore_dict.h, struct _dictvalues
	// Embedded values that are not valid have moved to the dict; others do not initialise valid.
	capacity, size, embedded, valid := int64(header[0]), int64(header[1]), header[2], header[3]
	if !keys.Split || capacity > maxSharedKeys || size > capacity || embedded > 1 ||
		embedded == 1 && valid != 1 {
		return ValuesShape{}, false
	}
	const values = 8
	shape = ValuesShape{
		Items: min(keys.Entries, capacity), ItemsAt: values,
		Size: uint64(values + capacity*8 + (capacity+7)/8*8), Embedded: embedded == 1,
	}
	return shape, true
}
