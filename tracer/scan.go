package tracer

import (
	"slices"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/claim"
	"github.com/allocscope/allocscope/tracer/addrspace"
	"github.com/allocscope/allocscope/tracer/estimate"
	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/residency"
	"github.com/allocscope/allocscope/tracer/source"
	"github.com/allocscope/allocscope/tracer/tree"
)

// scanner scans the pages of all processes of the tree for a snapshot: the targets' pages each
// time, the others' by turns.
type scanner struct {
	kernel  *kernel.Kernel
	events  *eventReader
	probing *probing
	targets *targetSet
	members func() []*tree.Member
	budget  residency.Budget
	others  residency.Others
	faults  source.FaultThinner
	moment  Moment

	// The rest is of the snapshot that is being taken.
	estimator *estimate.Estimator
	share     float64 // of the targets' pages that may be scanned
	files     residency.CountedFiles
	resident  float64       // bytes that were scanned, of targets
	scanTime  time.Duration // of targets
	walkTime  time.Duration // of their heaps, which have a limit of their own
	cpuTime   time.Duration // of all that is done for targets
}

// addTo adds the resident memory of all processes of the tree to a snapshot.
func (s *scanner) addTo(
	snapshot *growth.Snapshot, held estimate.Holdings, objects estimate.LiveObjects,
	pins map[uint32][]estimate.Pin,
) error {
	faults, err := source.ReadFaults(s.kernel)
	if err != nil {
		return err
	}
	members := s.members()
	s.begin(members)

	for _, m := range members {
		t := s.targets.traced(m.Process.PID)
		if t == nil {
			s.others.AddTo(snapshot, m, s.files, s.trackerOf)
			continue
		}
		pid := uint32(m.Process.PID)
		known := residency.Samples{Objects: objects[pid], Faults: faults[pid], Pins: pins[pid]}
		s.cpuTime += process.MeasureCPUTime(func() { s.addTarget(t, snapshot, held, m.Info, known) })
	}
	s.budget.Learn(s.resident, s.scanTime, s.cpuTime-s.scanTime-s.walkTime)
	return nil
}

// begin finds the share of the targets' pages that the budget allows, and the other members whose
// turn it is.
func (s *scanner) begin(members []*tree.Member) {
	var resident int64
	var others []*tree.Member
	for _, m := range members {
		if s.targets.traced(m.Process.PID) == nil {
			others = append(others, m)
		} else if status, err := m.Process.Status(); err == nil {
			resident += max(0, status.RSS)
		}
	}

	now := time.Now()
	s.share = s.budget.ShareFor(resident, now, s.moment.AtEnd)
	s.others.Begin(others, now)
	s.files, s.resident = make(residency.CountedFiles), 0
	s.scanTime, s.walkTime, s.cpuTime = 0, 0, 0
}

// trackerOf returns the page tracker of a process; nil: there is none.
func (s *scanner) trackerOf(pid int) *residency.Tracker {
	if t := s.targets.find(uint32(pid)); t != nil {
		return t.pages
	}
	return s.others.TrackerOf(pid)
}

// makeRoom applies mapping calls and thins the page faults where too many would wait for the next
// snapshot.
func (s *scanner) makeRoom() {
	for _, t := range s.targets.list() {
		if !s.events.journal.IsHalfFull(uint32(t.process.PID)) || !t.isAlive() {
			continue
		}
		_, released := t.reconcile(s.events)
		if len(released) > 0 {
			faults, _ := source.ReadFaults(s.kernel) // an error leaves them to the next scan
			t.forgetReleased(faults[uint32(t.process.PID)], released)
		}
	}
	_ = s.faults.Thin() // faults that cannot be thinned are counted once the map is full
}

// scan scans the pages of a target; nil: its process is gone.
func (s *scanner) scan(
	tracker *residency.Tracker, maps []process.Mapping, intervals []addrspace.Interval,
) *residency.Scan {
	tracker.InSpike = s.moment.InSpike
	scan, err := tracker.Scan(maps, intervals, s.share, nil)
	if err != nil {
		return nil
	}
	s.scanTime += scan.CPUTime
	s.resident += float64(max(0, scan.Status.RSS)) * scan.Share
	return scan
}

// addTarget adds the mappings and the resident memory of a target that is alive.
func (s *scanner) addTarget(
	t *target, snapshot *growth.Snapshot, held estimate.Holdings, info growth.Process,
	known residency.Samples,
) {
	var maps []process.Mapping
	if t.isAlive() {
		var released []addrspace.Release
		maps, released = t.reconcile(s.events)
		known.Faults = t.forgetReleased(known.Faults, released)
	}
	if !t.isAlive() { // it may have ended meanwhile
		return
	}

	snapshot.Alive = append(snapshot.Alive, t.process.PID)
	residency.AddReleases(&snapshot.Mappings, t.space)
	snapshot.Mappings.Vanished += t.vanished
	if t.pages == nil || maps == nil {
		residency.AddTallies(held, t.space, t.stacks.Get, t.stacks.GetCheap, nil)
		return
	}

	scan := s.scan(t.pages, maps, t.space.Intervals())
	if scan == nil {
		return
	}

	rows := residency.NewRows(scan, t.process.PID, t.stacks.Get, held, s.files)
	rows.HeapTraced, rows.HeapComplete = s.probing.coversHeap(t)
	if _, ok := claim.May(claim.FreeMemory, t.process.PID, snapshot.Losses); !ok {
		rows.HeapComplete = false
	}
	rows.FromStart = t.fromStart
	allocator := s.probing.allocatorOf(t, maps)
	walk, cost := t.pages.WalkHeaps(scan, allocator, snapshot.Elapsed, s.moment.AtEnd)
	s.walkTime += cost
	_, isKnown := claim.May(claim.LiveObjects, t.process.PID, snapshot.Losses)
	rows.Older, rows.SizeClass = t.pages.Older(known.Objects, isKnown), allocator.Rounding()
	if rows.HeapTraced {
		mapped := s.probing.unprobed(t, scan.MappedObjects())
		known.Objects = slices.Concat(known.Objects,
			s.estimator.AddMapped(held, mapped, t.stacks.Get))
	}
	if s.moment.InSpike {
		known.Extents = t.breaks.Extents()
	}
	rows.ParentInSnapshot = residency.HasParent(snapshot, t.pages)
	rows.Fill(known)
	for _, touch := range rows.Touches {
		snapshot.Touched = append(snapshot.Touched, growth.Holding{
			Stack: t.stacks.Get(touch.Stack), Kind: growth.KindHeap, ResidentBytes: touch.Bytes,
		})
	}
	source.ForgetFaults(t.kernel, uint32(t.process.PID), rows.StaleFaults)
	kinds := rows.AddMappings(&snapshot.Mappings)
	residency.AddTallies(held, t.space, t.stacks.Get, t.stacks.GetCheap, kinds)

	resident := scan.Resident(info)
	resident.Traced, resident.HeapTraced, resident.Forked = true, rows.HeapTraced, t.pages.Forked
	resident.CodeFiles = t.unwinder.Space.CodeFiles()
	resident.Walk, resident.Blocks = walk, t.pages.Blocks(rows)
	snapshot.Residents = append(snapshot.Residents, resident)
}
