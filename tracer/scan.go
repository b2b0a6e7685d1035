package tracer

import (
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/addrspace"
	"github.com/allocscope/allocscope/tracer/estimate"
	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/residency"
	"github.com/allocscope/allocscope/tracer/residency/pages"
	"github.com/allocscope/allocscope/tracer/source"
	"github.com/allocscope/allocscope/tracer/tree"
)

// looker looks at the pages of all processes of the tree.
type scanner struct {
	kernel  *kernel.Kernel
	targets *targetSet
	members func() []*tree.Member
	budget  residency.Budget
	others  residency.Others
	// of the snapshot that is being taken:
	share    float64 // of the pages of the traced processes
	files    residency.CountedFiles
	resident float64 // bytes looked at, of traced processes
	scanning time.Duration
	spent    time.Duration // all of it
}

// addTo adds what the processes of the tree have in memory to a snapshot.
func (k *scanner) addTo(snapshot *growth.Snapshot, held estimate.Holdings, objects estimate.LiveObjects, pins map[uint32][]estimate.Pin) error {
	faults, err := source.ReadFaults(k.kernel)
	if err != nil {
		return err
	}
	members := k.members()
	k.begin(members, func(m *tree.Member) bool { return k.liveTarget(m) != nil })
	for _, m := range members {
		pid := uint32(m.Process.PID)
		if t := k.liveTarget(m); t != nil {
			k.spent += process.MeasureCPUTime(func() { t.addTo(snapshot, held, m.Info, residency.Samples{objects[pid], faults[pid], pins[pid]}) })
			continue
		}
		k.others.AddTo(snapshot, m, k.files, k.trackerOf)
	}
	k.budget.Learn(k.resident, k.scanning, k.spent-k.scanning)
	return nil
}

// living is the target that traces a member; nil: there is none, or it has ended.
func (k *scanner) liveTarget(m *tree.Member) *target {
	if t := k.targets.find(uint32(m.Process.PID)); t != nil && t.err() == nil {
		return t
	}
	return nil
}

// begin finds what share of the pages of traced processes may be looked at, and which of the others.
func (k *scanner) begin(members []*tree.Member, traced func(*tree.Member) bool) {
	var resident int64
	var others []*tree.Member
	for _, m := range members {
		if !traced(m) {
			others = append(others, m)
		} else if status, err := m.Process.Status(); err == nil {
			resident += max(0, status.RSS)
		}
	}
	now, part := time.Now(), 1.0
	if len(others) > 0 {
		part -= residency.OthersShare
	}
	k.share = k.budget.ShareFor(resident, now, part)
	k.others.Begin(others, now)
	k.files, k.resident, k.scanning, k.spent = make(residency.CountedFiles), 0, 0, 0
}

// look looks at the pages of a traced process; nil: it is gone.
func (k *scanner) scan(o *residency.Tracker, maps []process.Mapping, intervals []addrspace.Interval) *residency.Scan {
	found, err := o.Scan(maps, intervals, k.share, nil)
	if err != nil {
		return nil
	}
	k.scanning += found.CPUTime
	k.resident += float64(max(0, found.Status.RSS)) * found.Share
	return found
}

// addTo adds the mappings of a process that lives, and what it has in memory.
func (t *target) addTo(snapshot *growth.Snapshot, held estimate.Holdings, facts growth.Process, known residency.Samples) {
	var maps []process.Mapping
	if t.isAlive() {
		maps = t.reconcile(t.session.events.takeCalls(t.process.PID))
	}
	if !t.isAlive() { // perhaps meanwhile
		return
	}
	snapshot.Alive = append(snapshot.Alive, t.process.PID)
	t.addReleases(snapshot)
	snapshot.Mappings.Vanished += t.vanished
	if t.pages == nil || maps == nil {
		t.addTallies(held, nil)
		return
	}
	t.pages.Forget(pages.MergeSpans(t.released))
	t.released = t.released[:0]
	k := &t.session.scanner
	found := k.scan(t.pages, maps, t.space.Intervals())
	if found == nil {
		return
	}
	l := residency.NewRows(found, t.process.PID, t.stacks.Get, held, k.files)
	l.HeapTraced, l.HeapComplete = t.session.probing.coversHeap(t)
	l.ParentInSnapshot = residency.HasParent(snapshot, t.pages)
	l.Fill(known)
	source.ForgetFaults(t.kernel, uint32(t.process.PID), l.StaleFaults)
	t.addMappings(held, found, &snapshot.Mappings)
	r := found.Resident(facts)
	r.Traced, r.HeapTraced, r.Forked = true, l.HeapTraced, t.pages.Forked
	snapshot.Residents = append(snapshot.Residents, r)
}

// occupancyOf finds what is known of a process; nil: nothing.
func (k *scanner) trackerOf(pid int) *residency.Tracker {
	if t := k.targets.find(uint32(pid)); t != nil {
		return t.pages
	}
	return k.others.TrackerOf(pid)
}
