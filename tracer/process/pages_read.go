package process

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// An entry of pagemap has 8 bytes (Documentation/admin-guide/mm/pagemap.rst).
const (
	entrySize    = 8
	entryPresent = 1 << 63
	entrySwapped = 1 << 62
	entryFile    = 1 << 61
	entryGuard   = 1 << 58 // 6.15; 0 before
	entryAlone   = 1 << 56 // mapped once
	maxEntries   = 32 << 10
)

// runOf is what an entry of pagemap says of its page; false: it holds no memory.
func runOf(entry uint64) (PageRun, bool) {
	ok := entry&(entryPresent|entrySwapped) != 0 && entry&entryGuard == 0
	return PageRun{Swapped: entry&entryPresent == 0, File: entry&entryFile != 0}, ok
}

// anonymousOf is runOf of a page that is of no file, whatever the kernel says.
func anonymousOf(entry uint64) (PageRun, bool) { return runOf(entry &^ entryFile) }

// readRuns reads the runs between start and end, whole pages, from entries of which of says what they are.
func (g *Pages) readRuns(start, end uint64, j *joiner, of func(entry uint64) (PageRun, bool)) error {
	if end-start > MaxRead {
		return fmt.Errorf("read pagemap: %w", ErrTooLarge)
	}
	for start < end {
		entries, err := g.entries(start, end)
		if err != nil {
			return err
		}
		for ; len(entries) > 0; entries = entries[entrySize:] {
			if run, ok := of(binary.LittleEndian.Uint64(entries)); ok {
				run.Start, run.End = start, start+g.size
				if err := j.add(run); err != nil {
					return err
				}
			}
			start += g.size
		}
	}
	return nil
}

// entries reads entries from start on, at least one, valid until the next call.
func (g *Pages) entries(start, end uint64) ([]byte, error) {
	if g.buffer == nil {
		g.buffer = make([]byte, maxEntries*entrySize)
	}
	want := min((end-start)/g.size, maxEntries) * entrySize
	n, err := g.file.ReadAt(g.buffer[:want], int64(start/g.size*entrySize))
	if n < entrySize {
		if errors.Is(err, io.EOF) {
			if err = g.gone(); err == nil {
				err = errOutside
			}
		}
		return nil, fmt.Errorf("read pagemap: %w", err)
	}
	return g.buffer[:n-n%entrySize], nil
}
