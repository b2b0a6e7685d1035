package tracer

import (
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/addrspace"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/residency"
	"github.com/allocscope/allocscope/tracer/tree"
)

// looker looks at the pages of all processes of the tree.
type looker struct {
	budget lookBudget
	others otherMembers
	// of the snapshot that is being taken:
	share    float64 // of the pages of the traced processes
	files    countedFiles
	resident float64 // bytes looked at, of traced processes
	scanning time.Duration
	spent    time.Duration // all of it
}

// look adds what the processes of the tree have in memory to a snapshot.
func (s *Session) look(snapshot *growth.Snapshot, held holdings, objects liveObjects, pins map[uint32][]pin) error {
	faults, err := readFaults(s.kernel)
	if err != nil {
		return err
	}
	members := s.family.Members()
	k := &s.looker
	k.begin(members, func(m *tree.Member) bool { return s.living(m) != nil })
	for _, m := range members {
		pid := uint32(m.Process.PID)
		if t := s.living(m); t != nil {
			k.spent += process.ProcessorTime(func() { t.addTo(snapshot, held, m.Facts, contents{objects[pid], faults[pid], pins[pid]}) })
			continue
		}
		s.addOther(snapshot, m)
	}
	k.budget.learn(k.resident, k.scanning, k.spent-k.scanning)
	return nil
}

// living is the target that traces a member; nil: there is none, or it has ended.
func (s *Session) living(m *tree.Member) *target {
	if t := s.target(uint32(m.Process.PID)); t != nil && t.err() == nil {
		return t
	}
	return nil
}

// begin finds what share of the pages of traced processes may be looked at, and which of the others.
func (k *looker) begin(members []*tree.Member, traced func(*tree.Member) bool) {
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
		part -= othersPart
	}
	k.share = k.budget.share(resident, now, part)
	k.others.begin(others, now)
	k.files, k.resident, k.scanning, k.spent = make(countedFiles), 0, 0, 0
}

// look looks at the pages of a traced process; nil: it is gone.
func (k *looker) look(o *occupancy, maps []process.Mapping, intervals []addrspace.Interval) *look {
	found, err := o.look(maps, intervals, k.share, nil)
	if err != nil {
		return nil
	}
	k.scanning += found.scanning
	k.resident += float64(max(0, found.status.RSS)) * found.share
	return found
}

// addTo adds the mappings of a process that lives, and what it has in memory.
func (t *target) addTo(snapshot *growth.Snapshot, held holdings, facts growth.Process, known contents) {
	var maps []process.Mapping
	if t.lives() {
		maps = t.reconcile(t.session.notices.take(t.process.PID))
	}
	if !t.lives() { // perhaps meanwhile
		return
	}
	snapshot.Alive = append(snapshot.Alive, t.process.PID)
	t.addReleases(snapshot)
	snapshot.Mappings.Vanished += t.vanished
	if t.occupancy == nil || maps == nil {
		t.addTallies(held, nil)
		return
	}
	t.occupancy.forget(residency.SpansOf(t.released))
	t.released = t.released[:0]
	k := &t.session.looker
	found := k.look(t.occupancy, maps, t.space.Intervals())
	if found == nil {
		return
	}
	l := newLedger(found, t.process.PID, t, held, k.files)
	l.knowsHeap, l.knowsAll = t.session.watchesHeap(t)
	l.parentCounts = countsParent(snapshot, t.occupancy)
	l.fill(known)
	t.addMappings(held, found, &snapshot.Mappings)
	r := found.resident(facts)
	r.Traced, r.HeapTraced, r.Forked = true, l.knowsHeap, t.occupancy.forked
	snapshot.Residents = append(snapshot.Residents, r)
}

// occupancyOf finds what is known of a process; nil: nothing.
func (s *Session) occupancyOf(pid int) *occupancy {
	if t := s.target(uint32(pid)); t != nil {
		return t.occupancy
	}
	if o := s.looker.others.members[pid]; o != nil {
		return o.occupancy
	}
	return nil
}

// countsParent tells whether the parent from which a process inherited memory is in the snapshot.
func countsParent(snapshot *growth.Snapshot, o *occupancy) bool {
	for _, r := range snapshot.Residents {
		if r.PID == o.parent {
			return true
		}
	}
	return false
}
