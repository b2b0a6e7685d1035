package process

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Pages looks at which pages of a process hold memory, through /proc/PID/pagemap. It is not for concurrent use. The pages
// are those of the program that ran when it was opened: once the process has ended or has executed another, all that it is
// asked gives an error that wraps os.ErrNotExist.
type Pages struct {
	file *os.File
	size uint64 // bytes of a page
	scan bool   // the kernel has PAGEMAP_SCAN (6.7)
	// unwanted are the categories that hold no memory, as far as the kernel knows them.
	unwanted uint64
	// Where the kernel writes; on the heap, which does not move.
	regions []pageRegion
	buffer  []byte
}

// A PageRun is a stretch of pages of a process that hold memory, all alike.
type PageRun struct {
	// Start and End bound the addresses, End excluded.
	Start, End uint64
	// Swapped out; else in memory.
	Swapped bool
	// File: of a file or shared memory, not private to the process. Huge: mapped as one huge page each; false where the
	// kernel does not tell (before 6.7).
	File, Huge bool
}

// Len is the size in bytes.
func (r PageRun) Len() uint64 { return r.End - r.Start }

// MaxRead bounds the address space of which the page map is read in one call, in bytes: that costs 5 ms a GiB.
const MaxRead = 64 << 30

const (
	// maxRuns bounds what one call gives, 24 bytes each. So many runs are at least 32 GiB.
	maxRuns = 4 << 20
)

// Too much to look at in one call.
var (
	ErrTooLarge    = errors.New("more than 64 GiB in one call, where the kernel has no PAGEMAP_SCAN (Linux 6.7 has)")
	ErrTooManyRuns = errors.New("too fragmented: more than 4 Mi runs of pages in one call")
)

var errOutside = errors.New("beyond the address space of a process")

// Pages opens the page map of the process. A process that is gone gives an error that wraps os.ErrNotExist.
func (p *Process) Pages() (*Pages, error) {
	f, err := os.Open(p.path("pagemap"))
	if errors.Is(err, unix.ESRCH) {
		return nil, fmt.Errorf("open pagemap: %w", os.ErrNotExist)
	}
	if err != nil {
		return nil, fmt.Errorf("open pagemap: %w", errors.Unwrap(err))
	}
	return &Pages{
		file: f, scan: true, size: uint64(os.Getpagesize()), unwanted: pageIsZero | pageIsGuard,
		regions: make([]pageRegion, maxRegions),
	}, nil
}

// Close lets go of the page map.
func (g *Pages) Close() error { return g.file.Close() }

// Scans reports whether the kernel skips untouched memory by itself, so that large reservations cost nothing.
func (g *Pages) Scans() bool {
	if g.scan {
		_, _, err := g.scanSome(0, 0, inPageTables)
		g.scan = !errors.Is(err, unix.ENOTTY)
	}
	return g.scan
}

// Runs appends the pages between start and end that hold memory, in the order of addresses; neighbours that are alike are
// one run, and the first and the last end at start and end. On an error it gives what was found before.
//
// Pages that only read zeros are left out where the kernel tells them apart (6.7; huge pages of zeros 6.17), and so are
// guard regions (6.15). What the kernel's RSS leaves out and this does not: mappings of devices and huge pages of hugetlbfs.
// A page that the kernel is moving at that moment reads as swapped out, and so does what userfaultfd has marked. Shared
// memory that is swapped out is not found: it is in no page table.
//
// Without PAGEMAP_SCAN (Linux 6.7) all of the page map is read, and more than 64 GiB give ErrTooLarge.
func (g *Pages) Runs(to []PageRun, start, end uint64) ([]PageRun, error) {
	return g.walk(to, start, end, inPageTables|pageIsFile)
}

// AnonymousRuns is Runs at a fifth of its price, for memory of which the mapping tells whether it is of a file: File is false
// throughout. Nothing of a private anonymous mapping is of a file, and all of a shared one is.
func (g *Pages) AnonymousRuns(to []PageRun, start, end uint64) ([]PageRun, error) {
	return g.walk(to, start, end, inPageTables)
}

// collect appends the part of runs that lies between start and end.
func collect(to *[]PageRun, start, end uint64) func(PageRun) error {
	limit := len(*to) + maxRuns
	return func(r PageRun) error {
		r.Start, r.End = max(r.Start, start), min(r.End, end)
		switch {
		case r.Start >= r.End: // start and end lie within one page, and nothing between them
			return nil
		case len(*to) == limit:
			return ErrTooManyRuns
		}
		*to = append(*to, r)
		return nil
	}
}

// walk appends the runs of the pages between start and end, alike in the categories.
func (g *Pages) walk(to []PageRun, start, end, categories uint64) ([]PageRun, error) {
	first, last := g.whole(start, end)
	j, of := joiner{each: collect(&to, start, end)}, runOf
	if categories&pageIsFile == 0 {
		of = anonymousOf
	}
	err := g.either(func() error {
		return g.scanRuns(first, last, categories, &j)
	}, func() error {
		return g.readRuns(first, last, &j, of)
	})
	if err == nil {
		err = j.flush()
	}
	return to, err
}

// either looks by scanning, or by reading where the kernel cannot scan.
func (g *Pages) either(scan, read func() error) error {
	if g.scan {
		if err := scan(); !errors.Is(err, unix.ENOTTY) {
			return err
		}
		g.scan = false
	}
	return read()
}

// whole widens a range to whole pages.
func (g *Pages) whole(start, end uint64) (first, limit uint64) {
	first, limit = start&^(g.size-1), ^uint64(0)&^(g.size-1)
	if end <= limit {
		limit = (end + g.size - 1) &^ (g.size - 1)
	}
	return first, max(first, limit)
}

// gone says why the page map reads empty.
func (g *Pages) gone() error {
	var entry [entrySize]byte
	if n, err := g.file.ReadAt(entry[:], 0); n == 0 && errors.Is(err, io.EOF) {
		return os.ErrNotExist
	}
	return nil
}

// A joiner makes one run of neighbours that are alike.
type joiner struct {
	last PageRun // the one that may go on; empty: none
	each func(PageRun) error
}

// add takes the next run, in the order of addresses.
func (j *joiner) add(r PageRun) error {
	alike := r.Start == j.last.End && r.Swapped == j.last.Swapped && r.File == j.last.File && r.Huge == j.last.Huge
	if alike {
		j.last.End = r.End
		return nil
	}
	err := j.flush()
	j.last = r
	return err
}

// flush gives the last run.
func (j *joiner) flush() error {
	last := j.last
	j.last = PageRun{}
	if last.Len() == 0 {
		return nil
	}
	return j.each(last)
}
