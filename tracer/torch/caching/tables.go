package caching

import (
	"math/bits"
	"slices"

	"github.com/allocscope/allocscope/tracer/mem"
)

// A table is a ska::flat_hash_map or flat_hash_set, which is one with other entries:
// https://github.com/pytorch/pytorch/blob/main/c10/util/flat_hash_map.h
type table struct {
	offset  int    // in the memory that has the table
	entries uint64 // address
	slots   uint64 // number of them
	size    int    // of an entry, in bytes
}

// Fields of a flat_hash_map, and of its entries: the distance from the wanted slot, then the value.
const (
	tableBytes  = 32
	minSlots    = 2
	maxSlots    = 1 << 20
	maxDistance = 64        // max_lookups
	noDistance  = -1        // of an entry that is not in use
	setEntry    = 8 + 8     // Block*
	blockEntry  = 8 + 2*8   // void* to Block*
	poolEntry   = 8 + 3*8   // MempoolId_t to PrivatePool*
	chunkBytes  = 256 << 10 // are read at a time
	mutexShards = 67        // kNumMutexShard: so many tables follow each other
)

// tableAt returns the table that may be at an offset of some memory.
func tableAt(content []byte, at, entrySize int) (table, bool) {
	entries, mask := mem.Word(content, at), mem.Word(content, at+8)
	lookups, elements := int8(content[at+17]), mem.Word(content, at+24)
	isTable := entries != 0 && entries%8 == 0 && mask+1 >= minSlots && mask < maxSlots &&
		bits.OnesCount64(mask+1) == 1 && lookups > 0 && lookups <= maxDistance &&
		elements > 0 && elements <= mask+1
	// Its last entry is a sentinel without value.
	return table{entries: entries, slots: mask + uint64(max(lookups, 0)), size: entrySize}, isTable
}

// tablesIn returns the tables with entries of a size that may be in some memory: those that end
// with a sentinel, whose distance is 0.
func (l *limited) tablesIn(content []byte, entrySize int) (tables []table, err error) {
	for at := 0; at+tableBytes <= len(content) && len(tables) < maxTables; at += 8 {
		if t, ok := tableAt(content, at, entrySize); ok {
			t.offset = at
			tables = append(tables, t)
		}
	}

	ends := make([]uint64, len(tables))
	for i, t := range tables {
		ends[i] = t.entries + t.slots*uint64(t.size)
	}

	sentinels, err := l.Peek(ends, 1)
	if err != nil {
		return nil, err
	}

	kept := tables[:0]
	for i, t := range tables {
		if sentinels[i] != nil && sentinels[i][0] == 0 {
			kept = append(kept, t)
		}
	}

	return kept, nil
}

// values returns the values of the entries of tables that are in use, one after the other for each
// table; nil: it is no table.
func (l *limited) values(tables []table) ([][]byte, error) {
	values := make([][]byte, len(tables))
	isNone := make([]bool, len(tables))
	var spans []mem.Span
	var indexes []int // of the spans' tables
	total, entries := uint64(0), 0
	flush := func() error {
		contents, err := mem.ReadRanges(l, spans...)
		for n, content := range contents {
			i := indexes[n]
			if isNone[i] {
				continue
			}
			before := len(values[i])
			values[i], isNone[i] = appendValues(values[i], content, tables[i].size)
			if entries += (len(values[i]) - before) / (tables[i].size - 8); entries > maxBlocks {
				return errTooMany
			}
		}
		spans, indexes, total = spans[:0], indexes[:0], 0
		return err
	}

	for i, t := range tables {
		chunk := uint64(chunkBytes / t.size * t.size)
		end := t.entries + t.slots*uint64(t.size)
		for start := t.entries; start < end && !isNone[i]; start += chunk {
			s := mem.Span{Start: start, End: min(start+chunk, end)}
			if total += s.Len(); total > chunkBytes {
				if err := flush(); err != nil {
					return nil, err
				}
				total = s.Len()
			}
			spans, indexes = append(spans, s), append(indexes, i)
		}
	}

	return values, flush()
}

// appendValues appends the values of the entries that are in use. It returns nil and true if it is
// no table that has them.
func appendValues(values, content []byte, size int) ([]byte, bool) {
	for entry := range slices.Chunk(content, size) {
		distance := int8(entry[0])
		if distance < noDistance || distance > maxDistance {
			return nil, true
		}
		if distance != noDistance {
			values = append(values, entry[8:]...)
		}
	}

	return values, false
}

// A pair is an entry of a table of allocated blocks.
type pair struct{ address, block uint64 }

// pairsOf returns the pairs among the values of a table.
func pairsOf(values []byte) []pair {
	found := make([]pair, 0, len(values)/(blockEntry-8))
	for value := range slices.Chunk(values, blockEntry-8) {
		if p := (pair{mem.Word(value, 0), mem.Word(value, 8)}); p.address != 0 && isPointer(p.block) {
			found = append(found, p)
		}
	}

	return found
}

func isPointer(word uint64) bool { return word != 0 && word%8 == 0 }
