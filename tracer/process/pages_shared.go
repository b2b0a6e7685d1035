package process

import "encoding/binary"

// maxGap is how many pages between two runs are rather read than passed over by one more call.
const maxGap = 128

// Shared appends the stretches between start and end that are in memory and mapped more than once, in the order of
// addresses: by another process as well, or twice by this one. PAGEMAP_SCAN does not tell, so the page map is read where
// there are pages, at the price of Runs. File, Huge, errors and limits are as those of Runs.
//
// The kernel tells since 4.2. Before 6.11 all of a huge page is taken for what its first page is, and for of no file. A
// kernel that does not count the mappings of each page of a large folio (CONFIG_NO_PAGE_MAPCOUNT, 6.15) takes all of them
// for shared where one may be. Pages that the kernel does not count, and that are no part of RSS, read as shared: mappings
// of devices and, without PAGEMAP_SCAN, pages that only read zeros.
func (g *Pages) Shared(to []PageRun, start, end uint64) ([]PageRun, error) {
	first, last := g.whole(start, end)
	j := joiner{each: collect(&to, start, end)}
	err := g.either(func() error {
		return g.scanShared(first, last, &j)
	}, func() error {
		return g.readRuns(first, last, &j, sharedOf)
	})
	if err == nil {
		err = j.flush()
	}
	return to, err
}

// scanShared reads the page map only where the kernel finds pages.
func (g *Pages) scanShared(start, end uint64, j *joiner) error {
	reader := sharedReader{pages: g, joiner: j}
	found := joiner{each: reader.add}
	if err := g.scanRuns(start, end, inPageTables, &found); err != nil {
		return err
	}
	if err := found.flush(); err != nil {
		return err
	}
	return reader.flush()
}

// sharedOf is what an entry of the page map says of a page that is shared; false: it is not.
func sharedOf(entry uint64) (PageRun, bool) {
	run, _ := runOf(entry)
	return run, entry&(entryPresent|entryAlone) == entryPresent
}

// A sharedReader reads the page map of runs, of several that are near each other in one go.
type sharedReader struct {
	pages  *Pages
	joiner *joiner
	near   []PageRun // to be read
}

// add takes the next run, in the order of addresses.
func (s *sharedReader) add(r PageRun) error {
	if n := len(s.near); n > 0 {
		size := s.pages.size
		if r.Start-s.near[n-1].End > maxGap*size || r.End-s.near[0].Start > maxEntries*size {
			if err := s.flush(); err != nil {
				return err
			}
		}
	}
	s.near = append(s.near, r)
	return nil
}

// flush reads what has been taken.
func (s *sharedReader) flush() error {
	near := s.near
	s.near = s.near[:0]
	for len(near) > 0 {
		at := near[0].Start
		entries, err := s.pages.entries(at, near[len(near)-1].End)
		if err != nil {
			return err
		}
		limit := at + uint64(len(entries))/entrySize*s.pages.size
		for len(near) > 0 && near[0].Start < limit {
			if err := s.join(near[0], at, limit, entries); err != nil {
				return err
			}
			if near[0].End > limit {
				near[0].Start = limit
				break
			}
			near = near[1:]
		}
	}
	return nil
}

// join takes the shared pages of a run that lie in the entries from at to limit.
func (s *sharedReader) join(r PageRun, at, limit uint64, entries []byte) error {
	size := s.pages.size
	for a := r.Start; a < min(r.End, limit); a += size {
		if page, ok := sharedOf(binary.LittleEndian.Uint64(entries[(a-at)/size*entrySize:])); ok {
			page.Start, page.End, page.Huge = a, a+size, r.Huge
			if err := s.joiner.add(page); err != nil {
				return err
			}
		}
	}
	return nil
}
