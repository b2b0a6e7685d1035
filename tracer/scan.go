package tracer

import (
	"errors"
	"math"
	"slices"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/addrspace"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/residency"
)

// A scan is the pages of a process as they were found.
type scan struct {
	runs    residency.Runs
	shared  residency.Spans // private memory that another process has too, where that was asked for
	looked  residency.Spans
	next    stretch           // to be looked at
	found   []process.PageRun // in the stretch that is being looked at
	sampled []sampled         // mappings of which only blocks were looked at, in order
	unread  residency.Spans   // mappings that were not looked at, because there is too much of them, in order
	// cut: there are more runs than maxRuns, and what lies above the last of them was not looked at.
	cut bool
}

// A stretch is of several mappings, all of files or none.
type stretch struct {
	residency.Span
	file bool
}

// Mappings are sampled by blocks of 2 MiB, a page table each, or of as much more as makes 4,096 of them. Small mappings
// are looked at as a whole.
const (
	smallestBlock = 2 << 20
	mostBlocks    = 4096
	smallMapping  = 64 << 20
	// nearMappings are looked at by one call, as one stretch.
	nearMappings = 1 << 20
)

// maxRuns bounds what is kept of one process, some 100 bytes each while it is looked at. A test makes it smaller.
var maxRuns = 1 << 20

// scan looks at the pages of all mappings; of large ones at a share, always the same blocks where it is the same share, so
// that two looks can be compared. Where a process has more runs than can be kept, less is looked at, now and later.
func (o *occupancy) scan(maps []process.Mapping, share float64) (*scan, error) {
	for {
		share = min(share, o.most)
		s := &scan{runs: make(residency.Runs, 0, o.runs)}
		err := s.lookAt(o, maps, share)
		o.runs = len(s.runs)
		switch {
		case err != nil:
			return nil, err
		case s.cut && share > leastShare:
			o.most, o.runs = max(leastShare, share/4), 0
			continue
		case o.forked:
			return s, s.findShared(o)
		}
		return s, nil
	}
}

// lookAt looks at all mappings, or at a share of the large ones.
func (s *scan) lookAt(o *occupancy, maps []process.Mapping, share float64) error {
	longest := o.longest(maps)
	for _, m := range maps {
		var err error
		switch {
		case !isCounted(m):
			err = s.flush(o)
		case m.Len() > longest:
			s.unread = append(s.unread, residency.Span{Start: m.Start, End: m.End})
		case share >= 1 || m.Len() < smallMapping:
			err = s.add(o, stretch{residency.Span{Start: m.Start, End: m.End}, m.IsFile()})
		default:
			err = s.sample(o, m, share)
		}
		if err != nil {
			return err
		}
	}
	err := s.flush(o)
	s.looked = residency.SpansOf(s.looked)
	return err
}

// add takes what is to be looked at, in the order of addresses.
func (s *scan) add(o *occupancy, next stretch) error {
	if s.next.file == next.file && s.next.Len() > 0 && next.Start-s.next.End <= nearMappings {
		s.next.End = next.End
		return nil
	}
	err := s.flush(o)
	s.next = next
	return err
}

// longest is the size of the longest mapping that is looked at. Where the kernel has no PAGEMAP_SCAN, untouched memory costs
// as much as any other; then all mappings together may be as large as what one call may read, and the shortest go first.
func (o *occupancy) longest(maps []process.Mapping) uint64 {
	if o.pages.Scans() {
		return math.MaxUint64
	}
	var sizes []uint64
	for _, m := range maps {
		if isCounted(m) {
			sizes = append(sizes, m.Len())
		}
	}
	slices.Sort(sizes)
	room := uint64(process.MaxRead)
	for _, size := range sizes {
		if size > room {
			return size - 1
		}
		room -= size
	}
	return math.MaxUint64
}

// isCounted tells whether RSS has a mapping in it: not those of devices, nor what the kernel shows of itself.
func isCounted(m process.Mapping) bool {
	switch m.Path {
	case "[vsyscall]", "[vvar]", "[vvar_vclock]":
		return false
	}
	return addrspace.KindOf(m) != growth.KindDevice
}

// flush looks at what has been taken. Where it is of no file, it need not be asked which pages are a file's, which would
// be most of the price.
func (s *scan) flush(o *occupancy) error {
	at := s.next
	s.next = stretch{}
	if at.Len() == 0 || s.cut {
		return nil
	}
	find := o.pages.AnonymousRuns
	if at.file {
		find = o.pages.Runs
	}
	var err error
	s.found, err = find(s.found[:0], at.Start, at.End)
	if err != nil && !errors.Is(err, process.ErrTooManyRuns) {
		return err
	}
	if room := maxRuns - len(s.runs); err != nil || len(s.found) > room {
		s.cut = true
		s.found = s.found[:min(room, len(s.found))]
		if len(s.found) == 0 {
			return nil
		}
		at.End = s.found[len(s.found)-1].End
	}
	s.looked = append(s.looked, at.Span)
	for _, r := range s.found {
		s.runs = append(s.runs, residency.Run{
			Span: residency.Span{Start: r.Start, End: r.End}, Swapped: r.Swapped, File: r.File, Huge: r.Huge,
		})
	}
	return nil
}

// nearer gives which of two of the kernel's counts comes nearer to the pages found; the first where not all were looked at.
func (s *scan) nearer(one, other process.Status) process.Status {
	found := s.runs.InMemory()
	off, otherOff := one.RSS-found, other.RSS-found
	if s.cut || len(s.sampled) > 0 || max(off, -off) <= max(otherOff, -otherOff) {
		return one
	}
	return other
}

// findShared finds what of the private memory in memory another process has too: at the first look of all of it, then of
// what was inherited, since nothing else is of interest.
func (s *scan) findShared(o *occupancy) error {
	wanted := s.runs.Private()
	if o.begun {
		wanted = wanted.And(o.inherited)
	}
	var found []process.PageRun
	for i := 0; i < len(wanted); {
		at := wanted[i]
		for i++; i < len(wanted) && wanted[i].Start-at.End <= nearMappings; i++ {
			at.End = wanted[i].End
		}
		var err error
		found, err = o.pages.Shared(found, at.Start, at.End)
		if err != nil && !errors.Is(err, process.ErrTooManyRuns) { // of those the rest counts as the process's own
			return err
		}
	}
	spans := make([]residency.Span, len(found))
	for i, r := range found {
		spans[i] = residency.Span{Start: r.Start, End: r.End}
	}
	s.shared = residency.SpansOf(spans).And(wanted)
	return nil
}
