package residency

import (
	"math"

	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/source"
)

// minSmallFaults is how many sampled faults a segment must be able to show if its huge pages came
// small. With fewer, one that happens to be sampled decides. The smaller segments of a row are taken
// together.
const minSmallFaults = 16

// A pageSizes has the sizes that follow from the kernel's page size, in bytes.
type pageSizes struct{ small uint64 }

// sizes are the sizes of this machine.
var sizes = pageSizes{process.PageSize}

// pagesOfHuge returns the small pages of a huge one: as many as a page table has entries, of 8 bytes
// each. They are 512, or on arm64 with pages of 16 and 64 KiB 2048 and 8192.
func (p pageSizes) pagesOfHuge() uint64 { return p.small / 8 }

// huge returns the size of a huge page: 2 MiB, or on arm64 with pages of 16 and 64 KiB 32 and 512 MiB.
func (p pageSizes) huge() uint64 { return p.pagesOfHuge() * p.small }

// smallFaultsFrom returns the number of page faults a huge page from which on its memory is taken to
// have come in small pages, of which khugepaged has made huge ones later. A page that came huge has
// had 1 fault, the other n = 512 or more. If k faults are sampled of h huge pages and represent W, the
// likelihood ratio of the two Poisson distributions is 1 at W/h = (n-1)/ln n, which is 82 for 512.
func (p pageSizes) smallFaultsFrom() float64 {
	n := float64(p.pagesOfHuge())
	return (n - 1) / math.Log(n)
}

// A hugePlace is the huge pages of a row in a segment. If segment is nil, they are the huge pages
// of all segments that are too small to be told apart.
type hugePlace struct {
	row     firstTouchRow
	segment *Segment
}

// hugePages are the huge pages of a place and the faults that are sampled there.
type hugePages struct {
	pages  float64
	faults float64 // that the sampled ones represent
}

// bytesPerFault returns the bytes that a page fault has brought into memory on average.
func (h hugePages) bytesPerFault(p pageSizes) float64 {
	if h.faults <= p.smallFaultsFrom()*h.pages {
		return float64(p.huge())
	}
	return max(float64(p.small), float64(p.huge())*h.pages/h.faults)
}

// hugePlaces are all huge pages of a process that count by first touch.
type hugePlaces struct {
	places map[hugePlace]hugePages
	// minPages is the number of huge pages from which on a segment is a place of its own.
	minPages float64
}

// hugePlaces returns the huge pages of all rows, with their sampled faults.
func (r *Rows) hugePlaces(faults []source.Fault) hugePlaces {
	found := make(map[hugePlace]hugePages)
	for _, run := range r.runs {
		if !run.Huge {
			continue
		}
		for i := r.firstSegmentAfter(run.Start); i < len(r.Segments); i++ {
			segment := &r.Segments[i]
			if segment.Region.Start >= run.End {
				break
			}
			if row, ok := firstTouchRowOf(run, segment); ok {
				inside := min(run.End, segment.Region.End) - max(run.Start, segment.Region.Start)
				sum := found[hugePlace{row, segment}]
				sum.pages += float64(inside) / float64(sizes.huge())
				found[hugePlace{row, segment}] = sum
			}
		}
	}
	if len(found) == 0 {
		return hugePlaces{}
	}

	all := 0.0
	for _, f := range faults {
		all += f.Weight
		if row, run, segment, ok := r.firstTouchRowAt(f); ok && run.Huge {
			sum := found[hugePlace{row, segment}]
			sum.faults += f.Weight
			found[hugePlace{row, segment}] = sum
		}
	}

	h := hugePlaces{places: make(map[hugePlace]hugePages)}
	if len(faults) > 0 {
		h.minPages = minSmallFaults * all / float64(len(faults)) / float64(sizes.pagesOfHuge())
	}
	for place, sum := range found {
		h.places[place] = sum
	}
	for place, sum := range found {
		if sum.pages < h.minPages {
			place.segment = nil
			together := h.places[place]
			together.pages += sum.pages
			together.faults += sum.faults
			h.places[place] = together
		}
	}
	return h
}

// bytesPerFault returns the bytes that a page fault in a run has brought into memory on average.
func (h hugePlaces) bytesPerFault(row firstTouchRow, run mem.Run, segment *Segment) float64 {
	if !run.Huge {
		return float64(sizes.small)
	}
	place := hugePlace{row, segment}
	if h.places[place].pages < h.minPages {
		place.segment = nil
	}
	return h.places[place].bytesPerFault(sizes)
}
