package residency

import (
	"errors"
	"math"
	"slices"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/addrspace"
	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/process"
)

// mergeGapBytes is the largest gap between two ranges that one query of the page map covers.
const mergeGapBytes = 1 << 20

// MaxRuns bounds how many runs are kept of one process. Each takes some 100 bytes during a scan. A
// test makes it smaller.
var MaxRuns = 1 << 20

// A pageScan is the pages of a process as one scan has found them.
type pageScan struct {
	pagemap *process.Pagemap

	runs    mem.Runs
	scanned mem.Spans // the addresses that were scanned

	// shared is private memory that another process maps as well, as far as that was asked for.
	shared mem.Spans

	// samples are the mappings of which only some page groups were scanned, in address order.
	samples []mappingSample

	// unread are mappings that were too large to scan, in address order.
	unread mem.Spans

	// truncated is set if there are more runs than MaxRuns. Addresses above the last run were not
	// scanned.
	truncated bool

	pending pendingSpan // to be scanned by the next query
}

// A pendingSpan covers one or more mappings, all of files or none.
type pendingSpan struct {
	mem.Span
	file bool
}

// pendingMapping returns the whole of a mapping.
func pendingMapping(m process.Mapping) pendingSpan {
	return pendingSpan{Span: mem.Span{Start: m.Start, End: m.End}, file: m.IsFile()}
}

// scanPages scans the pages of all mappings, or a share of the pages of large ones. Equal shares
// select the same pages, so that two scans can be compared. If the process has more than MaxRuns
// runs, scanPages reads a smaller share, and so do all later scans.
func (t *Tracker) scanPages(maps []process.Mapping, share float64) (*pageScan, error) {
	t.Pagemap.SetMappings(maps)
	for {
		share = min(share, t.maxShare)
		s := &pageScan{pagemap: t.Pagemap, runs: make(mem.Runs, 0, t.lastRuns)}

		err := s.scan(maps, share)
		t.lastRuns = len(s.runs)
		if err != nil {
			return nil, err
		}

		if s.truncated && share > minScanShare {
			t.maxShare, t.lastRuns = max(minScanShare, share/4), 0
			continue
		}

		if t.Forked {
			return s, t.findShared(s)
		}
		return s, nil
	}
}

// scan scans all mappings, or a share of the large ones.
func (s *pageScan) scan(maps []process.Mapping, share float64) error {
	maxBytes := longestScanned(s.pagemap, maps)
	for _, m := range maps {
		var err error
		switch {
		case !mayCountInRSS(m):
			err = s.flush()
		case m.Len() > maxBytes:
			s.unread = append(s.unread, mem.Span{Start: m.Start, End: m.End})
		case share >= 1 || m.Len() < minSampledBytes:
			err = s.add(pendingMapping(m))
		default:
			err = s.sample(m, share)
		}
		if err != nil {
			return err
		}
	}

	err := s.flush()
	s.scanned = mem.MergeSpans(s.scanned)
	return err
}

// longestScanned returns the size of the longest mapping that is scanned. Without PAGEMAP_SCAN
// (Linux 6.7) untouched memory costs as much as any other. Then the shortest mappings are scanned,
// as many as one query may read.
func longestScanned(pagemap *process.Pagemap, maps []process.Mapping) uint64 {
	if pagemap.SupportsScan() {
		return math.MaxUint64
	}

	var sizes []uint64
	for _, m := range maps {
		if mayCountInRSS(m) {
			sizes = append(sizes, m.Len())
		}
	}
	slices.Sort(sizes)

	left := uint64(process.MaxReadBytes)
	for _, size := range sizes {
		if size > left {
			return size - 1
		}
		left -= size
	}
	return math.MaxUint64
}

// mayCountInRSS reports whether RSS counts the pages of a mapping. It does not count mappings of
// device files, nor the kernel's own pages in vvar and vsyscall.
func mayCountInRSS(m process.Mapping) bool {
	switch m.Path {
	case "[vsyscall]", "[vvar]", "[vvar_vclock]":
		return false
	}
	return addrspace.KindOf(m) != growth.KindDeviceFile
}

// add adds a range to those that are to be scanned. Ranges come in address order.
func (s *pageScan) add(next pendingSpan) error {
	isNear := s.pending.Len() > 0 && next.Start-s.pending.End <= mergeGapBytes
	if isNear && s.pending.file == next.file {
		s.pending.End = next.End
		return nil
	}

	err := s.flush()
	s.pending = next
	return err
}

// flush scans the pending range. Most of the cost of a query is to find out which pages are a
// file's, so flush does not ask for that where there is no file.
func (s *pageScan) flush() error {
	pending := s.pending
	s.pending = pendingSpan{}
	if pending.Len() == 0 || s.truncated {
		return nil
	}

	query := s.pagemap.AnonymousRuns
	if pending.file {
		query = s.pagemap.Runs
	}
	runs, err := query(s.runs, pending.Start, pending.End)
	if err != nil && !errors.Is(err, process.ErrTooManyRuns) {
		return err
	}

	before := len(s.runs)
	s.runs = runs[:min(MaxRuns, len(runs))]
	if err != nil || len(runs) > MaxRuns {
		s.truncated = true
		if len(s.runs) == before {
			return nil
		}
		pending.End = s.runs[len(s.runs)-1].End
	}

	s.scanned = append(s.scanned, pending.Span)
	return nil
}

// nearest returns the status whose RSS is nearer to the pages found. It returns the first if only
// some pages were scanned.
func (s *pageScan) nearest(first, second process.Status) process.Status {
	if s.truncated || len(s.samples) > 0 {
		return first
	}

	found := s.runs.InMemory()
	distance, secondDistance := first.RSS-found, second.RSS-found
	if max(distance, -distance) <= max(secondDistance, -secondDistance) {
		return first
	}
	return second
}

// findShared sets which private pages of a scan another process maps as well. The first scan asks
// for all of them, later ones only for those that the process has inherited.
func (t *Tracker) findShared(s *pageScan) error {
	wanted := s.runs.PrivateSpans()
	if t.hasFirst {
		wanted = wanted.Intersect(t.inherited)
	}

	var found []mem.Run
	for i := 0; i < len(wanted); {
		query := wanted[i]
		for i++; i < len(wanted) && wanted[i].Start-query.End <= mergeGapBytes; i++ {
			query.End = wanted[i].End
		}

		// Pages beyond a limit of runs count as the process's own.
		var err error
		found, err = t.Pagemap.SharedRuns(found, query.Start, query.End)
		if err != nil && !errors.Is(err, process.ErrTooManyRuns) {
			return err
		}
	}

	spans := make([]mem.Span, len(found))
	for i, r := range found {
		spans[i] = r.Span
	}
	s.shared = mem.MergeSpans(spans).Intersect(wanted)
	return nil
}
