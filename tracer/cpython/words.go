package cpython

import "github.com/allocscope/allocscope/tracer/mem"

// Tags of pointers: they are in the lowest bits, which are 0 in an address.
const (
	// StackRefTag is Py_TAG_REFCNT: a frame of 3.14 has borrowed the reference.
	StackRefTag = 1
	// ManagedValuesTag is what 3.12 subtracts from a pointer to managed values: _PyDictOrValues.
	ManagedValuesTag = 1
)

// maxRefcnt bounds the reference counts that are believed. Above it are addresses of programs and
// heaps.
const maxRefcnt = 1 << 24

// IsRefcnt reports whether the first word of an object may be a reference count. From 3.12 on
// immortal objects have one of 2^30 and more, and in 3.14 the highest 16 bits are flags.
func (s *Structures) IsRefcnt(ob uint64) bool {
	low := uint64(uint32(ob))
	isImmortal := low >= s.ImmortalRefcnt
	return low != 0 && uint16(ob>>32) == 0 && (low < maxRefcnt || isImmortal)
}

// Refcnt returns the reference count in the first word of an object; 0: it is immortal.
func (s *Structures) Refcnt(ob uint64) uint64 {
	if s.ImmortalRefcnt == Absent {
		return ob
	}

	low := uint64(uint32(ob))
	if low >= s.ImmortalRefcnt {
		return 0
	}
	return low
}

// Heads returns how many bytes may lie before an object in its block: none, the links of the garbage
// collector, and the pointers to its dict and weak references, in 3.11 and later.
func (s *Structures) Heads() []uint64 {
	heads := []uint64{0, s.GCHead}
	if s.PreHeader > 0 {
		heads = append(heads, s.PreHeader, s.GCHead+s.PreHeader)
	}
	return heads
}

// LongDigitBits are the bits of a digit of an int: PyLong_SHIFT.
const LongDigitBits = 30

// LongSize returns how many digits an int has, by the word at ObSize, and whether it is negative.
// https://github.com/python/cpython/blob/v3.12.0/Include/cpython/longintrepr.h
func (s *Structures) LongSize(word uint64) (digits uint64, isNegative bool) {
	if s.HasLongTag { // lv_tag
		const signMask, signNegative, nonSizeBits = 3, 2, 3
		return word >> nonSizeBits, word&signMask == signNegative
	}
	if int64(word) < 0 { // ob_size
		return -word, true
	}
	return word, false
}

// IsFirstGeneration reports whether the pointer generation0 leads to the first list of a struct
// _gc_runtime_state. Later releases of 3.13 align PyGC_Head to 4 bytes, so that the lists begin 4
// bytes earlier.
func (s *Structures) IsFirstGeneration(generation0, state uint64) bool {
	first := state + s.GCGenerations
	return generation0 == first || generation0 == first-4
}

// PermanentGeneration is where a struct _gc_runtime_state has the list of the objects that
// gc.freeze() has taken from the collector.
func (s *Structures) PermanentGeneration() uint64 { return s.GCGenerationStats - GCGenerationSize }

// A StatsForm is the form of the statistics of the garbage collector.
type StatsForm uint8

// Forms of statistics. Since 3.15 the state has a pointer to a struct gc_stats. That has the last
// ones of each generation in a ring, and behind the ring the index of the newest, a byte in a word.
// https://github.com/python/cpython/blob/v3.15.0/Include/internal/pycore_interp_structs.h
const (
	StatsPlain StatsForm = iota + 1
	StatsRings
)

// Of struct gc_generation_stats and struct gc_stats.
const (
	plainStatSize, plainCollections, plainCollected = 24, 0, 8
	ringStatSize, ringCollections, ringCollected    = 64, 16, 24

	youngRing, oldRing = 11, 3 // GC_YOUNG_STATS_SIZE, GC_OLD_STATS_SIZE
	ringIndexSize      = 8
)

// A GenerationStats has numbers of a struct gc_generation_stats, since the interpreter began.
type GenerationStats struct{ Collections, Collected int64 }

// Size is how many bytes have the statistics of all generations. Later releases of 3.15 have more
// behind them.
func (f StatsForm) Size() uint64 {
	if f == StatsRings {
		return (youngRing+2*oldRing)*ringStatSize + GCNumGenerations*ringIndexSize
	}
	return GCNumGenerations * plainStatSize
}

// sizeInState is how many of these bytes a struct _gc_runtime_state has, or its pointer to them.
func (f StatsForm) sizeInState() uint64 {
	if f == StatsRings {
		return 8
	}
	return f.Size()
}

// Newest returns the numbers of each generation, the youngest first, of Size bytes. ok is false if
// they cannot be statistics.
func (f StatsForm) Newest(memory []byte) (newest [GCNumGenerations]GenerationStats, ok bool) {
	if uint64(len(memory)) < f.Size() {
		return newest, false
	}

	for i := range newest {
		if f == StatsPlain {
			stat := memory[i*plainStatSize:]
			newest[i] = GenerationStats{
				int64(mem.Word(stat, plainCollections)), int64(mem.Word(stat, plainCollected)),
			}
			continue
		}

		ring := youngRing
		if i > 0 {
			ring = oldRing
		}
		index := int(memory[ring*ringStatSize])
		if index >= ring {
			return newest, false
		}
		stat := memory[index*ringStatSize:]
		newest[i] = GenerationStats{
			int64(mem.Word(stat, ringCollections)), int64(mem.Word(stat, ringCollected)),
		}
		memory = memory[ring*ringStatSize+ringIndexSize:]
	}
	return newest, true
}

// dequeBlockItems is BLOCKLEN: a block of a deque has as many items, and two links.
// https://github.com/python/cpython/blob/v3.14.0/Modules/_collectionsmodule.c
const dequeBlockItems = 64

// DequeSize returns the bytes of the blocks of a deque with a number of items.
func DequeSize(items uint64) uint64 {
	return (items/dequeBlockItems + 1) * (dequeBlockItems + 2) * 8
}

// SetSize returns the bytes of the table of a set outside of the object, by its mask.
func (s *Structures) SetSize(mask uint64) uint64 {
	if mask < SetMinsize {
		return 0 // smalltable
	}
	return (mask + 1) * s.SetEntrySize
}

// DictSize returns the bytes of the table of a dict with a number of entries, at its smallest.
func DictSize(used uint64) uint64 {
	if used == 0 {
		return 0
	}
	log2 := uint64(3) // PyDict_LOG_MINSIZE
	for uint64(usableFraction(log2)) < used {
		log2++
	}

	const header = 32 // of PyDictKeysObject
	return header + indexSize(log2)<<log2 + uint64(usableFraction(log2))*keyEntrySize
}
