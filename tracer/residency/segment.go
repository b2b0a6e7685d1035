package residency

import (
	"slices"
	"sort"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/addrspace"
	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/residency/region"
)

// A Scan is the memory of one process at one moment.
type Scan struct {
	// Segments of the address space, sorted and disjoint.
	Segments []Segment

	runs    mem.Runs
	scanned mem.Spans // the addresses that were scanned

	// Status holds the kernel's counts, read before or after the pages were scanned, whichever RSS
	// is nearer to the pages found.
	Status process.Status

	// Share of the resident memory that was scanned, up to 1. The rest is extrapolated.
	Share float64

	// Unread are mappings that were too large to scan. Their memory is in no row, so that it counts
	// as unexplained.
	Unread mem.Spans

	// CPUTime that scanning the pages took.
	CPUTime time.Duration

	// inSpike is set if RSS was in a spike. Then usual is the private memory of both scans before.
	inSpike bool
	usual   mem.Spans

	// keepFaultsFrom is the time from which on page faults of the heap are kept: a spike may have
	// begun before anybody has noticed. In ns, CLOCK_MONOTONIC.
	keepFaultsFrom uint64
}

// A Segment is a range of addresses of one region and one interval.
type Segment struct {
	region.Region

	// Interval is valid if HasInterval is set. A mapping that the kernel makes by itself has none.
	addrspace.Interval
	HasInterval bool

	// Heap is set if the memory belongs to an allocator.
	Heap bool

	// sharedBytes is the part of its scanned file pages that another row counts already.
	sharedBytes uint64

	// heapIndex is the index into Rows.heaps plus 1; 0: not looked up yet.
	heapIndex int

	// sampled is set if only some of the page groups were scanned. Then factor scales the private
	// memory that was found, and fileFactor the memory of files. Otherwise both are 1.
	sampled            bool
	factor, fileFactor float64

	// factorRelVar is the squared relative error of factor, common to everything scaled by it.
	factorRelVar float64

	// variance of the resident bytes, in bytes²; 0 unless sampled.
	variance float64

	// groupBytes is the size of a page group, and groupShare the probability that one is scanned.
	groupBytes uint64
	groupShare float64
}

// segmentsOf cuts regions where intervals begin and end. Both are sorted and disjoint.
func segmentsOf(regions []region.Region, intervals []addrspace.Interval) []Segment {
	segments := make([]Segment, 0, len(regions)+len(intervals))
	add := func(r region.Region, interval *addrspace.Interval) {
		s := Segment{Region: r, factor: 1, fileFactor: 1}
		if interval != nil {
			s.Interval, s.HasInterval = *interval, true
		}
		s.Heap = s.ByAllocator || slices.Contains(heapClasses, s.Class) && !s.isOldChunk()
		segments = append(segments, s)
	}

	next := 0
	for _, rest := range regions {
		for next < len(intervals) && intervals[next].End <= rest.Start {
			next++
		}

		for i := next; i < len(intervals) && intervals[i].Start < rest.End; i++ {
			interval := &intervals[i]
			if interval.Start > rest.Start {
				add(cutRegion(rest, rest.Start, interval.Start), nil)
				rest = cutRegion(rest, interval.Start, rest.End)
			}

			end := min(rest.End, interval.End)
			add(cutRegion(rest, rest.Start, end), interval)
			rest = cutRegion(rest, end, rest.End)
		}

		if rest.Start < rest.End {
			add(rest, nil)
		}
	}
	return segments
}

// heapClasses are the classes of regions that belong to allocators.
var heapClasses = []region.Class{
	region.MainHeap, region.Arena, region.MmappedChunk, region.Allocator,
}

// cutRegion returns the part of a region between two addresses.
func cutRegion(r region.Region, start, end uint64) region.Region {
	r.Offset += start - r.Start
	r.Start, r.End = start, end
	return r
}

// Span returns the addresses of the segment.
func (s *Segment) Span() mem.Span {
	return mem.Span{Start: s.Region.Start, End: s.Region.End}
}

// hasMapper reports whether tracing has seen the system call that mapped the segment.
func (s *Segment) hasMapper() bool { return s.HasInterval && s.Origin == addrspace.FromCall }

// countsInRSS reports whether the kernel counts the pages of a segment in RSS. It does not count
// pages of device files, nor of hugetlbfs.
func (s *Segment) countsInRSS() bool {
	return s.Class != region.DeviceFile && s.Class != region.Hugetlb
}

// isOldChunk reports whether the segment is a chunk of malloc with a mapping of its own, from
// before tracing. It is in use: free unmaps it. Its touched pages are no memory that malloc keeps.
func (s *Segment) isOldChunk() bool {
	return s.Class == region.MmappedChunk && s.HasInterval && s.Origin == addrspace.BeforeTracing
}

// Bytes returns the memory of a segment, extrapolated if it was sampled.
func (s *Scan) Bytes(segment *Segment) mem.Bytes {
	return s.runs.BytesIn(segment.Region.Start, segment.Region.End).
		Scaled(segment.factor, segment.fileFactor)
}

// segmentAt returns the segment of an address; nil if there is none.
func (s *Scan) segmentAt(address uint64) *Segment {
	i := s.firstSegmentAfter(address)
	if i == len(s.Segments) || s.Segments[i].Region.Start > address {
		return nil
	}
	return &s.Segments[i]
}

// firstSegmentAfter returns the index of the first segment that ends above an address.
func (s *Scan) firstSegmentAfter(address uint64) int {
	return sort.Search(len(s.Segments), func(i int) bool {
		return s.Segments[i].Region.End > address
	})
}

// Resident returns the kernel's counts of the process.
func (s *Scan) Resident(p growth.Process) growth.Resident {
	return growth.Resident{
		PID: p.PID, Parent: p.Parent, Role: p.Role,
		RSS: s.Status.RSS, Peak: s.Status.Peak, Swap: s.Status.Swap, Threads: s.Status.Threads,
		Arenas: s.arenaCount(), Scanned: s.Share,
	}
}

// arenaCount returns the number of arenas of glibc's malloc, the main one included.
func (s *Scan) arenaCount() int {
	names := make(map[string]bool)
	for _, segment := range s.Segments {
		if segment.Class == region.MainHeap || segment.Class == region.Arena {
			names[segment.Name] = true
		}
	}
	return len(names)
}
