package tracer

import (
	"errors"
	"slices"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/addrspace"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/region"
	"github.com/allocscope/allocscope/tracer/residency"
)

// An occupancy is what a process has in memory, from look to look.
type occupancy struct {
	process *process.Process
	pages   *process.Pages
	image   process.Image
	// most is the largest share of its pages that is looked at; runs is how many were found the last time.
	most float64
	runs int
	// parent at the first look; forked: it executes what the parent does, so that it began with the parent's memory.
	parent int
	forked bool
	// begun: there has been a look. Later ones compare with it.
	begun bool
	// old is private memory that was there at the first look and has been ever since.
	old residency.Spans
	// inherited is private memory that was shared with the parent at first.
	inherited residency.Spans
	// private memory at the last two looks, the last one first.
	private [2]residency.Spans
}

// newOccupancy looks at nothing yet. Never more than a share of the pages will be looked at.
func newOccupancy(p *process.Process, most float64) (*occupancy, error) {
	stat, err := p.Stat()
	if err != nil {
		return nil, err
	}
	pages, err := p.Pages()
	if err != nil {
		return nil, err
	}
	o := &occupancy{process: p, pages: pages, image: stat.Image, parent: stat.Parent, most: most}
	if above, err := process.ReadStat(stat.Parent); err == nil {
		o.forked = above.Image == stat.Image
	}
	return o, nil
}

// attachOccupancy takes the first look at all pages of a process.
func attachOccupancy(p *process.Process, maps []process.Mapping, parent *occupancy) (*occupancy, error) {
	o, err := newOccupancy(p, 1)
	if err != nil {
		return nil, err
	}
	first, err := o.scan(maps, 1)
	if err != nil {
		return nil, errors.Join(err, o.close())
	}
	o.begin(first, parent)
	return o, nil
}

// begin takes the first look. parent is what is known of the parent of a process that has begun since; nil: nothing.
func (o *occupancy) begin(first *scan, parent *occupancy) {
	o.begun = true
	o.old, o.inherited = first.runs.Private(), first.shared
	if o.forked && parent != nil { // what it has copied already was in the parent all the time
		o.inherited = o.inherited.Or(o.old.And(parent.private[0]).And(parent.private[1]))
	}
}

// isOf tells whether the process still executes what was looked at.
func (o *occupancy) isOf(p *process.Process) bool {
	stat, err := p.Stat()
	return err == nil && o.process == p && stat.Image == o.image
}

func (o *occupancy) close() error { return o.pages.Close() }

// A look is one reading of what a process has in memory.
type look struct {
	areas []area // sorted, disjoint
	runs  residency.Runs
	// status is the kernel's count, of the moment before or after the pages were looked at: what comes nearer to them.
	status process.Status
	// share of the address space with memory in it that was looked at.
	share float64
	// unread are mappings that were not looked at, because there is too much of them. What they hold is unexplained.
	unread residency.Spans
	// scanning is the processor time that looking at the pages took.
	scanning time.Duration
}

// An area is a stretch of the address space of which everything is known alike.
type area struct {
	region.Region
	addrspace.Interval      // the zero one for what the kernel maps by itself
	known              bool // there is an interval
	heap               bool // belongs to an allocator
	// shared is what of its files is counted elsewhere, in bytes, of those pages that were looked at.
	shared uint64
	heapIn int // its place in ledger.heaps, from 1; 0: not asked for yet
	// sampled: only some of its pages were looked at, because all would cost too much. Then the private memory and that of
	// files are multiplied by factors, and variance is what that adds. Else the factors are 1.
	sampled            bool
	factor, fileFactor float64
	// doubt is the variance of the factors in parts of their squares: all that is multiplied by them is wrong alike.
	doubt    float64
	variance float64
	block    uint64  // bytes
	share    float64 // of the blocks
}

// span of the area.
func (a *area) span() residency.Span {
	return residency.Span{Start: a.Region.Start, End: a.Region.End}
}

// bytes that it holds.
func (l *look) bytes(a *area) residency.Bytes {
	return l.runs.In(a.Region.Start, a.Region.End).Scaled(a.factor, a.fileFactor)
}

// seen tells that the call that made the mapping is known.
func (a *area) seen() bool { return a.known && a.Origin == addrspace.Seen }

// look looks at all pages of the process, or at a share of those of its large mappings. parent is what is known of the
// parent, for the first look.
func (o *occupancy) look(maps []process.Mapping, intervals []addrspace.Interval, share float64, parent *occupancy) (*look, error) {
	before, err := o.process.Status()
	if err != nil {
		return nil, err
	}
	var scan *scan
	scanning := process.ProcessorTime(func() { scan, err = o.scan(maps, share) })
	if err != nil {
		return nil, err
	}
	if !o.begun {
		o.begin(scan, parent)
	}
	after, err := o.process.Status()
	if err != nil {
		return nil, err
	}
	l := &look{status: scan.nearer(after, before), scanning: scanning}
	if l.status.RSS == process.Unknown || !o.isOf(o.process) { // that is not of what was looked at
		return nil, errExecuted
	}
	o.remember(scan, intervals, l.status.Parent != o.parent)
	l.runs = scan.runs.Mark(o.old, residency.Old)
	if o.forked {
		l.runs = l.runs.Mark(o.inherited, residency.Copied).Mark(o.inherited.And(scan.shared), residency.Inherited)
	}
	var starts []uint64
	for _, i := range intervals {
		starts = append(starts, i.Start)
	}
	l.areas = areasOf(region.Classify(maps, starts, &memory{o.process, scan.runs}), intervals)
	l.share, l.unread = scan.weigh(l.areas, l.status), scan.unread
	return l, nil
}

// remember brings up to date what has been in memory all the time. alone tells that the parent from which memory was
// inherited is gone.
func (o *occupancy) remember(scan *scan, intervals []addrspace.Interval, alone bool) {
	private := scan.runs.Private()
	o.private = [2]residency.Spans{private, o.private[0]}
	var mapped residency.Spans
	for _, i := range intervals {
		if i.Origin == addrspace.Seen {
			mapped = append(mapped, residency.Span{Start: i.Start, End: i.End})
		}
	}
	o.forget(scan.looked.Without(private))
	o.forget(residency.SpansOf(mapped))
	if alone { // what was shared is the process's own by now, without a copy
		o.inherited = nil
	}
}

// forget takes in that memory has been given back, whatever is there by now.
func (o *occupancy) forget(gone residency.Spans) {
	o.old, o.inherited = o.old.Without(gone), o.inherited.Without(gone)
}

// memory is what region looks into: pages that are in memory alone.
type memory struct {
	process *process.Process
	runs    residency.Runs
}

// Resident implements region.Memory.
func (m *memory) Resident(address uint64) bool {
	run, ok := m.runs.At(address)
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

// areasOf lays regions and intervals over each other.
func areasOf(regions []region.Region, intervals []addrspace.Interval) []area {
	areas := make([]area, 0, len(regions)+len(intervals))
	next := 0
	for _, r := range regions {
		for next < len(intervals) && intervals[next].End <= r.Start {
			next++
		}
		for i := next; i < len(intervals) && intervals[i].Start < r.End; i++ {
			if start := max(r.Start, intervals[i].Start); start > r.Start {
				areas = append(areas, area{Region: part(r, r.Start, start), factor: 1, fileFactor: 1})
				r = part(r, start, r.End)
			}
			piece := part(r, r.Start, min(r.End, intervals[i].End))
			areas = append(areas, area{Region: piece, Interval: intervals[i], known: true, factor: 1, fileFactor: 1})
			r = part(r, piece.End, r.End)
		}
		if r.Start < r.End {
			areas = append(areas, area{Region: r, factor: 1, fileFactor: 1})
		}
	}
	for i := range areas {
		areas[i].heap = areas[i].ByAllocator || slices.Contains(heapClasses, areas[i].Class)
	}
	return areas
}

// heapClasses belong to allocators.
var heapClasses = []region.Class{region.MainHeap, region.Arena, region.Chunk, region.Allocator}

// part of a region.
func part(r region.Region, start, end uint64) region.Region {
	r.Offset += start - r.Start
	r.Start, r.End = start, end
	return r
}

// resident is the process as the kernel counts it.
func (l *look) resident(p growth.Process) growth.Resident {
	return growth.Resident{
		PID: p.PID, Parent: p.Parent, Role: p.Role, RSS: l.status.RSS, Swap: l.status.Swap, Threads: l.status.Threads,
		Arenas: l.arenas(), Looked: l.share,
	}
}

// arenas counts those of the C library, the main heap included.
func (l *look) arenas() int {
	names := make(map[string]bool)
	for _, a := range l.areas {
		if a.Class == region.MainHeap || a.Class == region.Arena {
			names[a.Name] = true
		}
	}
	return len(names)
}
