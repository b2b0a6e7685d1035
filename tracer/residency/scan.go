package residency

import (
	"errors"
	"iter"
	"math"
	"slices"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/addrspace"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/residency/pages"
)

// sampled is a mapping of which blocks of one size were looked at, each with the same probability.
type sampled struct {
	pages.Span
	// shift makes an address a place: for files where it is in the file, else the address itself.
	shift uint64
	block uint64 // bytes; its places are multiples
	share float64
}

// sample looks at some blocks of a mapping.
func (s *pageScan) sample(o *Tracker, m process.Mapping, share float64) error {
	block := uint64(minGroupBytes)
	for m.Len()/block > maxGroups {
		block *= 2
	}
	if err := s.flush(o); err != nil {
		return err
	}
	from := sampled{pages.Span{Start: m.Start, End: m.End}, 0, block, share}
	if m.IsFile() {
		from.shift = m.Offset - m.Start
	}
	s.sampled = append(s.sampled, from)
	for piece, place := range from.pieces(from.Span) {
		if !isTaken(m, place, share) {
			continue
		}
		if err := s.add(o, pendingSpan{piece, m.IsFile()}); err != nil {
			return err
		}
	}
	return s.flush(o)
}

// pieces gives what lies in each block of a part of the mapping, and the block's place.
func (s *sampled) pieces(of pages.Span) iter.Seq2[pages.Span, uint64] {
	return func(yield func(pages.Span, uint64) bool) {
		for at := of.Start; at < of.End; {
			place := (at + s.shift) &^ (s.block - 1)
			end := min(of.End, at+(place+s.block-(at+s.shift)))
			if !yield(pages.Span{Start: at, End: end}, place) {
				return
			}
			at = end
		}
	}
}

// isTaken tells by a hash whether a block is looked at: of a file the same one in all processes.
func isTaken(m process.Mapping, place uint64, share float64) bool {
	if m.IsFile() {
		place ^= mix(m.Inode)
	}
	return float64(mix(place))/math.MaxUint64 < share
}

// mix spreads a number over all of its range (the finalizer of splitmix64).
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// weigh gives areas of sampled mappings their factors, and tells what share of the memory found was looked at. As the kernel
// tells how much there is of private memory and of files, what was not looked at is known in sum: that is exact, and what it
// is made of is estimated.
//
// What lies beyond a cut is in no row: it is left unexplained.
func (s *pageScan) extrapolate(areas []Segment, status process.Status) (share float64) {
	if s.cut {
		return min(1, float64(s.runs.InMemory())/float64(max(status.RSS, 1)))
	}
	var whole, part pages.Bytes // what was found in mappings of both sorts
	var variance float64
	next := 0
	for i := range areas {
		a := &areas[i]
		for next < len(s.sampled) && s.sampled[next].End <= a.Region.Start {
			next++
		}
		bytes := s.runs.BytesIn(a.Region.Start, a.Region.End)
		if !a.isResidentKind() { // RSS has none of it
			continue
		}
		if a.sampled = next < len(s.sampled) && s.sampled[next].Start <= a.Region.Start; !a.sampled {
			whole.Add(bytes)
			continue
		}
		part.Add(bytes)
		from := s.sampled[next]
		a.groupSize, a.share = from.block, from.share
		a.variance = a.blockVariance(s.squares(a.Span(), from))
		variance += a.variance
	}
	private := factor(status.Anonymous, whole.Private(), part.Private())
	file := factor(status.File+status.Shared, whole.File, part.File)
	scaled := private*float64(part.Private()) + file*float64(part.File)
	for i := range areas {
		if a := &areas[i]; a.sampled {
			a.factor, a.fileFactor, a.factorRelVar = private, file, variance/max(1, scaled*scaled)
			bytes := float64(s.runs.BytesIn(a.Region.Start, a.Region.End).Scaled(private, file).InMemory())
			a.variance += bytes * bytes * a.factorRelVar
		}
	}
	all := whole.InMemory() + int64(scaled)
	if len(s.unread) > 0 {
		all = max(all, status.RSS)
	}
	if all > 0 {
		return float64(whole.InMemory()+part.InMemory()) / float64(all)
	}
	return 1
}

// blockVariance is the variance of an estimate from the blocks of an area, of what they hold; squares sums the squares of
// that over the blocks that were looked at.
func (a *Segment) blockVariance(squares float64) float64 { return (1/a.share - 1) / a.share * squares }

// factor makes of what was seen of some mappings what there is, which is all but the rest.
func factor(all, rest, seen int64) float64 {
	if seen == 0 {
		return 1
	}
	return max(1, float64(all-rest)/float64(seen))
}

// squares sums the squares of what blocks hold.
func (s *pageScan) squares(of pages.Span, from sampled) (sum float64) {
	for piece := range from.pieces(of) {
		bytes := float64(s.runs.BytesIn(piece.Start, piece.End).InMemory())
		sum += bytes * bytes
	}
	return sum
}

// A scan is the pages of a process as they were found.
type pageScan struct {
	runs    pages.Runs
	shared  pages.Spans // private memory that another process has too, where that was asked for
	scanned pages.Spans
	pending pendingSpan       // to be looked at
	found   []process.PageRun // in the stretch that is being looked at
	sampled []sampled         // mappings of which only blocks were looked at, in order
	unread  pages.Spans       // mappings that were not looked at, because there is too much of them, in order
	// cut: there are more runs than MaxRuns, and what lies above the last of them was not looked at.
	cut bool
}

// A stretch is of several mappings, all of files or none.
type pendingSpan struct {
	pages.Span
	file bool
}

// Mappings are sampled by blocks of 2 MiB, a page table each, or of as much more as makes 4,096 of them. Small mappings
// are looked at as a whole.
const (
	minGroupBytes       = 2 << 20
	maxGroups           = 4096
	sampledMappingBytes = 64 << 20
	// mergeGapBytes are looked at by one call, as one stretch.
	mergeGapBytes = 1 << 20
)

// MaxRuns bounds what is kept of one process, some 100 bytes each while it is looked at. A test makes it smaller.
var MaxRuns = 1 << 20

// scan looks at the pages of all mappings; of large ones at a share, always the same blocks where it is the same share, so
// that two looks can be compared. Where a process has more runs than can be kept, less is looked at, now and later.
func (o *Tracker) readPages(maps []process.Mapping, share float64) (*pageScan, error) {
	for {
		share = min(share, o.maxShare)
		s := &pageScan{runs: make(pages.Runs, 0, o.runs)}
		err := s.run(o, maps, share)
		o.runs = len(s.runs)
		switch {
		case err != nil:
			return nil, err
		case s.cut && share > minScanShare:
			o.maxShare, o.runs = max(minScanShare, share/4), 0
			continue
		case o.Forked:
			return s, s.findShared(o)
		}
		return s, nil
	}
}

// lookAt looks at all mappings, or at a share of the large ones.
func (s *pageScan) run(o *Tracker, maps []process.Mapping, share float64) error {
	longest := o.longest(maps)
	for _, m := range maps {
		var err error
		switch {
		case !isCounted(m):
			err = s.flush(o)
		case m.Len() > longest:
			s.unread = append(s.unread, pages.Span{Start: m.Start, End: m.End})
		case share >= 1 || m.Len() < sampledMappingBytes:
			err = s.add(o, pendingSpan{pages.Span{Start: m.Start, End: m.End}, m.IsFile()})
		default:
			err = s.sample(o, m, share)
		}
		if err != nil {
			return err
		}
	}
	err := s.flush(o)
	s.scanned = pages.MergeSpans(s.scanned)
	return err
}

// add takes what is to be looked at, in the order of addresses.
func (s *pageScan) add(o *Tracker, next pendingSpan) error {
	if s.pending.file == next.file && s.pending.Len() > 0 && next.Start-s.pending.End <= mergeGapBytes {
		s.pending.End = next.End
		return nil
	}
	err := s.flush(o)
	s.pending = next
	return err
}

// longest is the size of the longest mapping that is looked at. Where the kernel has no PAGEMAP_SCAN, untouched memory costs
// as much as any other; then all mappings together may be as large as what one call may read, and the shortest go first.
func (o *Tracker) longest(maps []process.Mapping) uint64 {
	if o.Pages.SupportsScan() {
		return math.MaxUint64
	}
	var sizes []uint64
	for _, m := range maps {
		if isCounted(m) {
			sizes = append(sizes, m.Len())
		}
	}
	slices.Sort(sizes)
	room := uint64(process.MaxReadBytes)
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
	return addrspace.KindOf(m) != growth.KindDeviceFile
}

// flush looks at what has been taken. Where it is of no file, it need not be asked which pages are a file's, which would
// be most of the price.
func (s *pageScan) flush(o *Tracker) error {
	at := s.pending
	s.pending = pendingSpan{}
	if at.Len() == 0 || s.cut {
		return nil
	}
	find := o.Pages.AnonymousRuns
	if at.file {
		find = o.Pages.Runs
	}
	var err error
	s.found, err = find(s.found[:0], at.Start, at.End)
	if err != nil && !errors.Is(err, process.ErrTooManyRuns) {
		return err
	}
	if room := MaxRuns - len(s.runs); err != nil || len(s.found) > room {
		s.cut = true
		s.found = s.found[:min(room, len(s.found))]
		if len(s.found) == 0 {
			return nil
		}
		at.End = s.found[len(s.found)-1].End
	}
	s.scanned = append(s.scanned, at.Span)
	for _, r := range s.found {
		s.runs = append(s.runs, pages.Run{
			Span: pages.Span{Start: r.Start, End: r.End}, Swapped: r.Swapped, File: r.File, Huge: r.Huge,
		})
	}
	return nil
}

// nearer gives which of two of the kernel's counts comes nearer to the pages found; the first where not all were looked at.
func (s *pageScan) nearer(one, other process.Status) process.Status {
	found := s.runs.InMemory()
	off, otherOff := one.RSS-found, other.RSS-found
	if s.cut || len(s.sampled) > 0 || max(off, -off) <= max(otherOff, -otherOff) {
		return one
	}
	return other
}

// findShared finds what of the private memory in memory another process has too: at the first look of all of it, then of
// what was inherited, since nothing else is of interest.
func (s *pageScan) findShared(o *Tracker) error {
	wanted := s.runs.PrivateSpans()
	if o.hasFirst {
		wanted = wanted.Intersect(o.inherited)
	}
	var found []process.PageRun
	for i := 0; i < len(wanted); {
		at := wanted[i]
		for i++; i < len(wanted) && wanted[i].Start-at.End <= mergeGapBytes; i++ {
			at.End = wanted[i].End
		}
		var err error
		found, err = o.Pages.SharedRuns(found, at.Start, at.End)
		if err != nil && !errors.Is(err, process.ErrTooManyRuns) { // of those the rest counts as the process's own
			return err
		}
	}
	spans := make([]pages.Span, len(found))
	for i, r := range found {
		spans[i] = pages.Span{Start: r.Start, End: r.End}
	}
	s.shared = pages.MergeSpans(spans).Intersect(wanted)
	return nil
}
