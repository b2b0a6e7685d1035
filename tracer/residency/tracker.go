package residency

import (
	"errors"
	"os"
	"slices"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/addrspace"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/residency/pages"
	"github.com/allocscope/allocscope/tracer/residency/region"
)

// Remedy is what to do where the page map cannot be had; empty: that is not known.
func Remedy(err error) string {
	switch {
	case errors.Is(err, os.ErrPermission):
		return "run as root or grant CAP_SYS_PTRACE"
	case errors.Is(err, os.ErrNotExist):
		return "use a kernel built with CONFIG_PROC_PAGE_MONITOR, as distributions' are"
	}
	return ""
}

// An occupancy is what a process has in memory, from look to look.
type Tracker struct {
	process *process.Process
	Pages   *process.Pagemap
	image   process.Image
	// most is the largest share of its pages that is looked at; runs is how many were found the last time.
	maxShare float64
	runs     int
	// parent at the first look; forked: it executes what the parent does, so that it began with the parent's memory.
	parent int
	Forked bool
	// begun: there has been a look. Later ones compare with it.
	hasFirst bool
	// old is private memory that was there at the first look and has been ever since.
	old pages.Spans
	// inherited is private memory that was shared with the parent at first.
	inherited pages.Spans
	// private memory at the last two looks, the last one first.
	private [2]pages.Spans
}

// NewTracker looks at nothing yet. Never more than a share of the pages will be looked at.
func NewTracker(p *process.Process, most float64) (*Tracker, error) {
	stat, err := p.Stat()
	if err != nil {
		return nil, err
	}
	pages, err := p.OpenPagemap()
	if err != nil {
		return nil, err
	}
	o := &Tracker{process: p, Pages: pages, image: stat.Image, parent: stat.Parent, maxShare: most}
	if above, err := process.ReadStat(stat.Parent); err == nil {
		o.Forked = above.Image == stat.Image
	}
	return o, nil
}

// Start takes the first look at all pages of a process.
func Start(p *process.Process, maps []process.Mapping, parent *Tracker) (*Tracker, error) {
	o, err := NewTracker(p, 1)
	if err != nil {
		return nil, err
	}
	first, err := o.readPages(maps, 1)
	if err != nil {
		return nil, errors.Join(err, o.Close())
	}
	o.begin(first, parent)
	return o, nil
}

// begin takes the first look. parent is what is known of the parent of a process that has begun since; nil: nothing.
func (o *Tracker) begin(first *pageScan, parent *Tracker) {
	o.hasFirst = true
	o.old, o.inherited = first.runs.PrivateSpans(), first.shared
	if o.Forked && parent != nil { // what it has copied already was in the parent all the time
		o.inherited = o.inherited.Union(o.old.Intersect(parent.private[0]).Intersect(parent.private[1]))
	}
}

// isOf tells whether the process still executes what was looked at.
func (o *Tracker) isOf(p *process.Process) bool {
	stat, err := p.Stat()
	return err == nil && o.process == p && stat.Image == o.image
}

func (o *Tracker) Close() error { return o.Pages.Close() }

// A look is one reading of what a process has in memory.
type Scan struct {
	Segments []Segment // sorted, disjoint
	runs     pages.Runs
	// status is the kernel's count, of the moment before or after the pages were looked at: what comes nearer to them.
	Status process.Status
	// share of the address space with memory in it that was looked at.
	Share float64
	// unread are mappings that were not looked at, because there is too much of them. What they hold is unexplained.
	Unread pages.Spans
	// scanning is the processor time that looking at the pages took.
	Took time.Duration
}

// An area is a stretch of the address space of which everything is known alike.
type Segment struct {
	region.Region
	addrspace.Interval      // the zero one for what the kernel maps by itself
	Known              bool // there is an interval
	Heap               bool // belongs to an allocator
	// shared is what of its files is counted elsewhere, in bytes, of those pages that were looked at.
	shared uint64
	heapIn int // its place in ledger.heaps, from 1; 0: not asked for yet
	// sampled: only some of its pages were looked at, because all would cost too much. Then the private memory and that of
	// files are multiplied by factors, and variance is what that adds. Else the factors are 1.
	sampled            bool
	factor, fileFactor float64
	// doubt is the variance of the factors in parts of their squares: all that is multiplied by them is wrong alike.
	factorRelVar float64
	variance     float64
	groupSize    uint64  // bytes
	share        float64 // of the blocks
}

// span of the area.
func (a *Segment) Span() pages.Span {
	return pages.Span{Start: a.Region.Start, End: a.Region.End}
}

// bytes that it holds.
func (l *Scan) Bytes(a *Segment) pages.Bytes {
	return l.runs.BytesIn(a.Region.Start, a.Region.End).Scaled(a.factor, a.fileFactor)
}

// seen tells that the call that made the mapping is known.
func (a *Segment) seen() bool { return a.Known && a.Origin == addrspace.FromCall }

// look looks at all pages of the process, or at a share of those of its large mappings. parent is what is known of the
// parent, for the first look.
func (o *Tracker) Scan(maps []process.Mapping, intervals []addrspace.Interval, share float64, parent *Tracker) (*Scan, error) {
	before, err := o.process.Status()
	if err != nil {
		return nil, err
	}
	var scan *pageScan
	scanning := process.MeasureCPUTime(func() { scan, err = o.readPages(maps, share) })
	if err != nil {
		return nil, err
	}
	if !o.hasFirst {
		o.begin(scan, parent)
	}
	after, err := o.process.Status()
	if err != nil {
		return nil, err
	}
	l := &Scan{Status: scan.nearer(after, before), Took: scanning}
	if l.Status.RSS == process.Unknown || !o.isOf(o.process) { // that is not of what was looked at
		return nil, process.ErrExecuted
	}
	o.remember(scan, intervals, l.Status.Parent != o.parent)
	l.runs = scan.runs.WithOrigin(o.old, pages.BeforeTracing)
	if o.Forked {
		l.runs = l.runs.WithOrigin(o.inherited, pages.CopiedOnWrite).WithOrigin(o.inherited.Intersect(scan.shared), pages.Inherited)
	}
	var starts []uint64
	for _, i := range intervals {
		starts = append(starts, i.Start)
	}
	l.Segments = segmentsOf(region.Classify(maps, starts, &memory{o.process, scan.runs}), intervals)
	l.Share, l.Unread = scan.extrapolate(l.Segments, l.Status), scan.unread
	return l, nil
}

// remember brings up to date what has been in memory all the time. alone tells that the parent from which memory was
// inherited is gone.
func (o *Tracker) remember(scan *pageScan, intervals []addrspace.Interval, alone bool) {
	private := scan.runs.PrivateSpans()
	o.private = [2]pages.Spans{private, o.private[0]}
	var mapped pages.Spans
	for _, i := range intervals {
		if i.Origin == addrspace.FromCall {
			mapped = append(mapped, pages.Span{Start: i.Start, End: i.End})
		}
	}
	o.Forget(scan.scanned.Subtract(private))
	o.Forget(pages.MergeSpans(mapped))
	if alone { // what was shared is the process's own by now, without a copy
		o.inherited = nil
	}
}

// forget takes in that memory has been given back, whatever is there by now.
func (o *Tracker) Forget(gone pages.Spans) {
	o.old, o.inherited = o.old.Subtract(gone), o.inherited.Subtract(gone)
}

// memory is what region looks into: pages that are in memory alone.
type memory struct {
	process *process.Process
	runs    pages.Runs
}

// Resident implements region.Memory.
func (m *memory) Resident(address uint64) bool {
	run, ok := m.runs.Find(address)
	return ok && !run.Swapped
}

// Peek implements region.Memory.
func (m *memory) Peek(addresses []uint64, size int) [][]byte {
	found, err := m.process.Peek(addresses, size)
	if err != nil {
		return make([][]byte, len(addresses))
	}
	return found
}

// segmentsOf lays regions and intervals over each other.
func segmentsOf(regions []region.Region, intervals []addrspace.Interval) []Segment {
	areas := make([]Segment, 0, len(regions)+len(intervals))
	next := 0
	for _, r := range regions {
		for next < len(intervals) && intervals[next].End <= r.Start {
			next++
		}
		for i := next; i < len(intervals) && intervals[i].Start < r.End; i++ {
			if start := max(r.Start, intervals[i].Start); start > r.Start {
				areas = append(areas, Segment{Region: part(r, r.Start, start), factor: 1, fileFactor: 1})
				r = part(r, start, r.End)
			}
			piece := part(r, r.Start, min(r.End, intervals[i].End))
			areas = append(areas, Segment{Region: piece, Interval: intervals[i], Known: true, factor: 1, fileFactor: 1})
			r = part(r, piece.End, r.End)
		}
		if r.Start < r.End {
			areas = append(areas, Segment{Region: r, factor: 1, fileFactor: 1})
		}
	}
	for i := range areas {
		areas[i].Heap = areas[i].ByAllocator || slices.Contains(heapClasses, areas[i].Class)
	}
	return areas
}

// heapClasses belong to allocators.
var heapClasses = []region.Class{region.MainHeap, region.Arena, region.MmappedChunk, region.Allocator}

// part of a region.
func part(r region.Region, start, end uint64) region.Region {
	r.Offset += start - r.Start
	r.Start, r.End = start, end
	return r
}

// resident is the process as the kernel counts it.
func (l *Scan) Resident(p growth.Process) growth.Resident {
	return growth.Resident{
		PID: p.PID, Parent: p.Parent, Role: p.Role, RSS: l.Status.RSS, Swap: l.Status.Swap, Threads: l.Status.Threads,
		Arenas: l.arenas(), Scanned: l.Share,
	}
}

// arenas counts those of the C library, the main heap included.
func (l *Scan) arenas() int {
	names := make(map[string]bool)
	for _, a := range l.Segments {
		if a.Class == region.MainHeap || a.Class == region.Arena {
			names[a.Name] = true
		}
	}
	return len(names)
}
