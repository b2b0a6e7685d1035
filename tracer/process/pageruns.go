package process

import (
	"encoding/binary"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/tracer/mem"
)

// maxRuns bounds the result of one call, 24 bytes a run. That many runs cover at least 32 GiB.
const maxRuns = 4 << 20

// ErrTooManyRuns means that a range holds more runs than one call returns.
var ErrTooManyRuns = errors.New("too fragmented: more than 4 Mi runs of pages in one call")

// Runs appends the pages between start and end that hold memory, in address order. Adjacent pages
// that are alike form one run; the first and the last run are cut at start and end. With an error
// it returns the runs found before. Origin is not set, and Huge never before Linux 6.7.
//
// Zero pages are left out where the kernel reports them (6.7; huge zero pages 6.17), and so are
// guard regions (6.15). Unlike the kernel's RSS, Runs includes device mappings and hugetlbfs pages.
// A page under migration reads as swapped out, and so does one that userfaultfd has marked. Shared
// memory that is swapped out is not found: no page table holds it.
//
// Without PAGEMAP_SCAN (Linux 6.7) Runs reads the entries of the whole range, and returns
// ErrTooLarge for more than 64 GiB.
func (m *Pagemap) Runs(to []mem.Run, start, end uint64) ([]mem.Run, error) {
	return m.find(to, start, end, query{
		scan: func(start, end uint64, to *runMerger) error {
			return m.scan(start, end, inPageTables|pageIsFile, to)
		},
		decode: decodeEntry,
	})
}

// AnonymousRuns is Runs at a fifth of its cost, with File always false. Use it for mappings that
// show by themselves whether their pages are a file's: a private anonymous mapping has no file
// pages, a shared one has nothing else.
func (m *Pagemap) AnonymousRuns(to []mem.Run, start, end uint64) ([]mem.Run, error) {
	return m.find(to, start, end, query{
		scan: func(start, end uint64, to *runMerger) error {
			return m.scan(start, end, inPageTables, to)
		},
		decode: decodeAnonymous,
	})
}

// SharedRuns appends the pages between start and end that are in memory and mapped more than once,
// in address order: by another process as well, or twice by this one. PAGEMAP_SCAN does not report
// that, so SharedRuns reads the entries of the pages that it finds, at the cost of Runs. File,
// Huge, errors and limits are as for Runs.
//
// The kernel reports it since 4.2. Before 6.11 a huge page counts as its first page does, and never
// as a file's. A kernel with CONFIG_NO_PAGE_MAPCOUNT (6.15) reports all pages of a large folio as
// shared if one may be. Pages outside RSS read as shared: device mappings and, without
// PAGEMAP_SCAN, zero pages.
func (m *Pagemap) SharedRuns(to []mem.Run, start, end uint64) ([]mem.Run, error) {
	return m.find(to, start, end, query{scan: m.scanShared, decode: decodeShared})
}

// A query is one question to the page map, with and without PAGEMAP_SCAN.
type query struct {
	scan   func(start, end uint64, to *runMerger) error
	decode entryDecoder
}

// find appends the runs between start and end that answer a query.
func (m *Pagemap) find(to []mem.Run, start, end uint64, q query) ([]mem.Run, error) {
	first, last := wholePages(start, end)
	merger := &runMerger{each: appendClipped(&to, start, end)}

	err := error(unix.ENOTTY)
	if m.canScan {
		err = q.scan(first, last, merger)
	}
	if errors.Is(err, unix.ENOTTY) {
		m.canScan = false
		err = m.read(first, last, merger, q.decode)
	}

	if err == nil {
		err = merger.flush()
	}
	return to, err
}

// wholePages widens a range to whole pages.
func wholePages(start, end uint64) (first, limit uint64) {
	first, limit = start&^(PageSize-1), ^uint64(0)&^(PageSize-1)
	if end <= limit {
		limit = (end + PageSize - 1) &^ (PageSize - 1)
	}
	return first, max(first, limit)
}

// appendClipped returns a function that appends the part of a run between start and end.
func appendClipped(to *[]mem.Run, start, end uint64) func(mem.Run) error {
	limit := len(*to) + maxRuns
	return func(r mem.Run) error {
		r.Start, r.End = max(r.Start, start), min(r.End, end)
		switch {
		case r.Start >= r.End: // start and end lie within one page, with nothing between them
			return nil
		case len(*to) == limit:
			return ErrTooManyRuns
		}
		*to = append(*to, r)
		return nil
	}
}

// A runMerger merges adjacent runs that are alike.
type runMerger struct {
	last mem.Run // may still grow; zero: none
	each func(mem.Run) error
}

// add adds the next run in address order.
func (g *runMerger) add(r mem.Run) error {
	alike := r.Swapped == g.last.Swapped && r.File == g.last.File && r.Huge == g.last.Huge
	if alike && r.Start == g.last.End {
		g.last.End = r.End
		return nil
	}

	err := g.flush()
	g.last = r
	return err
}

// flush passes the last run on.
func (g *runMerger) flush() error {
	last := g.last
	g.last = mem.Run{}
	if last.Len() == 0 {
		return nil
	}
	return g.each(last)
}

// maxGapPages is the largest gap between two runs that is read rather than skipped by another call.
const maxGapPages = 128

// scanShared scans for pages and reads their entries only.
func (m *Pagemap) scanShared(start, end uint64, to *runMerger) error {
	reader := sharedReader{pagemap: m, merger: to}
	found := runMerger{each: reader.add}
	if err := m.scan(start, end, inPageTables, &found); err != nil {
		return err
	}

	if err := found.flush(); err != nil {
		return err
	}
	return reader.flush()
}

// A sharedReader reads the entries of runs, of several close ones in one call.
type sharedReader struct {
	pagemap *Pagemap
	merger  *runMerger
	pending []mem.Run // to be read
}

// add adds the next run in address order.
func (s *sharedReader) add(r mem.Run) error {
	if n := len(s.pending); n > 0 {
		gap, span := r.Start-s.pending[n-1].End, r.End-s.pending[0].Start
		if gap > maxGapPages*PageSize || span > maxEntries*PageSize {
			if err := s.flush(); err != nil {
				return err
			}
		}
	}
	s.pending = append(s.pending, r)
	return nil
}

// flush reads the entries of all pending runs.
func (s *sharedReader) flush() error {
	pending := s.pending
	s.pending = s.pending[:0]

	for len(pending) > 0 {
		start := pending[0].Start
		entries, err := s.pagemap.readEntries(start, pending[len(pending)-1].End)
		if err != nil {
			return err
		}

		limit := start + uint64(len(entries))/entrySize*PageSize
		for len(pending) > 0 && pending[0].Start < limit {
			if err := s.merge(pending[0], start, limit, entries); err != nil {
				return err
			}
			if pending[0].End > limit { // the rest needs another read
				pending[0].Start = limit
				break
			}
			pending = pending[1:]
		}
	}
	return nil
}

// merge adds the shared pages of a run. entries covers the addresses from start to limit.
func (s *sharedReader) merge(r mem.Run, start, limit uint64, entries []byte) error {
	for a := r.Start; a < min(r.End, limit); a += PageSize {
		entry := binary.LittleEndian.Uint64(entries[(a-start)/PageSize*entrySize:])
		page, ok := decodeShared(entry)
		if !ok {
			continue
		}

		page.Start, page.End, page.Huge = a, a+PageSize, r.Huge
		if err := s.merger.add(page); err != nil {
			return err
		}
	}
	return nil
}
