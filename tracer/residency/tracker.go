// Package residency attributes the memory of the processes of a traced tree. A Tracker scans the
// pages of one process for each snapshot. Rows attributes the pages that a scan has found to
// allocation sites, or to kinds of memory where no site is known; its rows sum to RSS.
//
// A Budget and Others bound the CPU time of the scans.
package residency

import (
	"errors"
	"os"
	"time"

	"github.com/allocscope/allocscope/tracer/addrspace"
	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/overhead/duty"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/residency/region"
)

// Remedy returns the remedy for an error of NewTracker or Start: "" if none is known.
func Remedy(err error) string {
	switch {
	case errors.Is(err, os.ErrPermission):
		return "run as root or grant CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH"
	case errors.Is(err, os.ErrNotExist):
		return "use a kernel built with CONFIG_PROC_PAGE_MONITOR, as distributions' are"
	}
	return ""
}

// A Tracker scans the pages of one process for each snapshot. It keeps which private pages have
// been in memory since the first scan, and which the process has inherited from its parent by fork.
type Tracker struct {
	process *process.Process
	image   process.Image // the program that the process executes

	// Pagemap of the process. Close closes it.
	Pagemap *process.Pagemap

	// maxShare is the largest share of the pages that a scan reads, at most 1.
	maxShare float64

	// walks limits the walks of malloc's heaps. There is none before nextWalk, since tracing started.
	walks    duty.Account
	nextWalk time.Duration

	// older are large blocks of malloc that are older than the trace, as far as it is known. It is
	// nil before the first walk.
	older []mem.Span

	// partial are blocks that were not in memory as a whole at a scan, see Blocks.
	partial map[mem.Span]bool

	// lastRuns is how many runs the last scan has found.
	lastRuns int

	// parent is the parent's PID when the Tracker was made.
	parent int

	// Forked is set if the process executes the same program as its parent, so that it began with a
	// copy of the parent's memory.
	Forked bool

	// hasFirst is set once the first scan has been made. Later ones are compared with it.
	hasFirst bool

	// beforeTracing is private memory that has been in memory since the first scan.
	beforeTracing mem.Spans

	// inherited is private memory that was shared with the parent at the first scan.
	inherited mem.Spans

	// lastPrivate is the private memory of the last two scans, the last one first.
	lastPrivate [2]mem.Spans

	// InSpike is set while RSS is in a spike. Scans meanwhile are compared with those before it.
	InSpike bool

	// usual is the private memory of the last two scans outside spikes, the last one first, and
	// usualAt is when they were made, in ns, CLOCK_MONOTONIC.
	usual   [2]mem.Spans
	usualAt [2]uint64
}

// NewTracker opens the page map of a process. It scans nothing yet. A scan never reads more than
// maxShare of the pages. own may be nil.
func NewTracker(
	p *process.Process, maxShare float64, own *duty.Budget,
) (*Tracker, error) {
	stat, err := p.Stat()
	if err != nil {
		return nil, err
	}
	pagemap, err := p.OpenPagemap()
	if err != nil {
		return nil, err
	}

	t := &Tracker{
		process: p, Pagemap: pagemap, image: stat.Image, parent: stat.Parent, maxShare: maxShare,
		walks: own.Account(duty.Walks),
	}
	if parent, err := process.ReadStat(stat.Parent); err == nil {
		t.Forked = parent.Image == stat.Image
	}
	return t, nil
}

// Start makes the Tracker of a process and its first scan, of all pages. parent is the Tracker of
// the parent; nil: there is none.
func Start(
	p *process.Process, maps []process.Mapping, parent *Tracker, own *duty.Budget,
) (*Tracker, error) {
	t, err := NewTracker(p, 1, own)
	if err != nil {
		return nil, err
	}

	first, err := t.scanPages(maps, 1)
	if err != nil {
		return nil, errors.Join(err, t.Close())
	}

	t.setFirst(first, parent)
	return t, nil
}

// setFirst keeps the findings of the first scan. parent is the Tracker of the parent; nil: there is
// none.
func (t *Tracker) setFirst(first *pageScan, parent *Tracker) {
	t.hasFirst = true
	t.beforeTracing, t.inherited = first.runs.PrivateSpans(), first.shared
	t.usual = [2]mem.Spans{t.beforeTracing, t.beforeTracing}

	// Pages that the process has copied before the first scan are not shared any more. They have
	// been in the parent's memory all the time.
	if t.Forked && parent != nil {
		copied := t.beforeTracing
		for _, private := range parent.lastPrivate {
			copied = copied.Intersect(private)
		}
		t.inherited = t.inherited.Union(copied)
	}
}

// executes reports whether p is the process of the Tracker and executes the same program still.
func (t *Tracker) executes(p *process.Process) bool {
	stat, err := p.Stat()
	return err == nil && t.process == p && stat.Image == t.image
}

// Close closes the page map.
func (t *Tracker) Close() error { return t.Pagemap.Close() }

// Scan scans all pages of the process, or a share of the pages of its large mappings. intervals are
// the address ranges of which tracing knows who mapped them. parent is the Tracker of the parent,
// needed for a first scan; nil: there is none. The error wraps process.ErrExecuted if the process
// executes another program by now.
func (t *Tracker) Scan(
	maps []process.Mapping, intervals []addrspace.Interval, share float64, parent *Tracker,
) (*Scan, error) {
	before, err := t.process.Status()
	if err != nil {
		return nil, err
	}

	var found *pageScan
	cpuTime := process.MeasureCPUTime(func() { found, err = t.scanPages(maps, share) })
	if err != nil {
		return nil, err
	}
	if !t.hasFirst {
		t.setFirst(found, parent)
	}

	after, err := t.process.Status()
	if err != nil {
		return nil, err
	}
	s := &Scan{Status: found.nearest(after, before), CPUTime: cpuTime}

	// After an execve, the status and the pages are of different programs.
	if s.Status.RSS == process.Unknown || !t.executes(t.process) {
		return nil, process.ErrExecuted
	}

	t.update(found, intervals, s.Status.Parent != t.parent)
	s.runs, s.scanned = t.withOrigins(found), found.scanned
	s.keepFaultsFrom = t.usualAt[1]
	if t.InSpike {
		s.inSpike, s.usual = true, t.usual[0].Intersect(t.usual[1])
	} else {
		t.usual = [2]mem.Spans{t.lastPrivate[0], t.usual[0]}
		t.usualAt = [2]uint64{kernel.Monotonic(), t.usualAt[0]}
	}

	starts := make([]uint64, len(intervals))
	for i, interval := range intervals {
		starts[i] = interval.Start
	}
	regions := region.Classify(maps, starts, &memory{process: t.process, runs: found.runs})

	s.Segments = segmentsOf(regions, intervals)
	s.Share, s.Unread = found.extrapolate(s.Segments, s.Status), found.unread
	return s, nil
}

// withOrigins returns the runs of a scan with the origins of their pages.
func (t *Tracker) withOrigins(found *pageScan) mem.Runs {
	runs := found.runs.WithOrigin(t.beforeTracing, mem.BeforeTracing)
	if t.Forked {
		stillShared := t.inherited.Intersect(found.shared)
		runs = runs.WithOrigin(t.inherited, mem.CopiedOnWrite)
		runs = runs.WithOrigin(stillShared, mem.Inherited)
	}
	return runs
}

// update takes from beforeTracing and inherited the ranges that a scan did not find in memory, and
// the ranges mapped since. orphaned is set if the parent is another one than at first.
func (t *Tracker) update(found *pageScan, intervals []addrspace.Interval, orphaned bool) {
	private := found.runs.PrivateSpans()
	t.lastPrivate = [2]mem.Spans{private, t.lastPrivate[0]}

	var mapped mem.Spans
	for _, i := range intervals {
		if i.Origin == addrspace.FromCall {
			mapped = append(mapped, mem.Span{Start: i.Start, End: i.End})
		}
	}

	t.Forget(found.scanned.Subtract(private))
	t.Forget(mem.MergeSpans(mapped))

	if orphaned { // pages shared with its parent are its own now, without a copy
		t.inherited = nil
	}
}

// Forget records that the process has released memory. Memory that is there later is not the same.
func (t *Tracker) Forget(released mem.Spans) {
	t.beforeTracing = t.beforeTracing.Subtract(released)
	t.inherited = t.inherited.Subtract(released)
}

// memory reads the pages that a scan found in memory. It implements mem.Reader.
type memory struct {
	process *process.Process
	runs    mem.Runs
}

func (m *memory) Peek(addresses []uint64, size int) ([][]byte, error) {
	var resident []uint64
	var indices []int
	for i, address := range addresses {
		if run, ok := m.runs.Find(address); ok && !run.Swapped {
			resident, indices = append(resident, address), append(indices, i)
		}
	}

	contents := make([][]byte, len(addresses))
	if len(resident) == 0 {
		return contents, nil
	}
	read, err := m.process.Peek(resident, size)
	for i, content := range read {
		contents[indices[i]] = content
	}
	return contents, err
}
