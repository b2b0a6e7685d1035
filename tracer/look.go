package tracer

import (
	"errors"
	"slices"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/mapping"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/residency"
	"github.com/allocscope/allocscope/tracer/tree"
)

// looker looks at the pages of all processes of the tree.
type looker struct {
	budget lookBudget
	others map[int]*occupancy // of members that are not traced, by PID
	// of the snapshot that is being taken:
	share    float64
	files    countedFiles
	resident float64 // bytes looked at
	cost     time.Duration
}

// look adds what the processes of the tree have in memory to a snapshot.
func (s *Session) look(snapshot *growth.Snapshot, held holdings, objects map[uint32][]object) error {
	faults, err := readFaults(s.kernel)
	if err != nil {
		return err
	}
	members := s.family.Members()
	s.looker.begin(members)
	others := make(holdings)
	for _, m := range members {
		pid := uint32(m.Process.PID)
		if t := s.target(pid); t != nil && t.err() == nil {
			s.looker.drop(m.Process.PID) // as another it was looked at before it was traced
			t.addTo(snapshot, held, m.Facts, objects[pid], faults[pid])
			continue
		}
		s.addOther(snapshot, others, m)
	}
	s.looker.end(members)
	snapshot.Others = others.list()
	return nil
}

// begin finds what share of the pages may be looked at.
func (k *looker) begin(members []*tree.Member) {
	var resident int64
	for _, m := range members {
		if status, err := m.Process.Status(); err == nil {
			resident += max(0, status.RSS)
		}
	}
	k.share = k.budget.share(resident, time.Now())
	k.files, k.resident, k.cost = make(countedFiles), 0, 0
}

// look looks at the pages of a process; nil: it is gone.
func (k *looker) look(o *occupancy, maps []process.Mapping, intervals []mapping.Interval) *look {
	var found *look
	var err error
	k.cost += process.ProcessorTime(func() { found, err = o.look(maps, intervals, k.share) })
	if err != nil {
		return nil
	}
	k.resident += float64(max(0, found.status.RSS)) * found.share
	return found
}

// end lets go of members that have exited.
func (k *looker) end(members []*tree.Member) {
	k.budget.learn(k.resident, k.cost)
	for pid, o := range k.others {
		if !slices.ContainsFunc(members, func(m *tree.Member) bool { return m.Process == o.process }) {
			k.drop(pid)
		}
	}
}

// drop forgets what is known of a process that is not traced.
func (k *looker) drop(pid int) {
	if o := k.others[pid]; o != nil {
		_ = o.close() // it was only read
		delete(k.others, pid)
	}
}

// addTo adds the mappings of a process that lives, and what it has in memory.
func (t *target) addTo(snapshot *growth.Snapshot, held holdings, facts growth.Process, objects []object, faults []fault) {
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
	l.parentCounts = countsParent(snapshot, t.occupancy)
	l.fill(objects, faults)
	t.addMappings(held, found, &snapshot.Mappings)
	r := found.resident(facts)
	r.Traced, r.HeapTraced, r.Forked = true, t.heap.Attached, t.occupancy.forked
	snapshot.Residents = append(snapshot.Residents, r)
}

// addOther adds what a member that is not traced has in memory.
func (s *Session) addOther(snapshot *growth.Snapshot, to holdings, m *tree.Member) {
	maps, err := m.Process.Maps()
	if err != nil {
		return // it has ended
	}
	k := &s.looker
	o := k.others[m.Process.PID]
	if o == nil || !o.isOf(m.Process) {
		if o, err = newOccupancy(m.Process, maps, s.occupancyOf(m.Facts.Parent)); err != nil {
			return
		}
		k.drop(m.Process.PID)
		k.others[m.Process.PID] = o
	}
	found := k.look(o, maps, nil)
	if found == nil {
		return
	}
	l := newLedger(found, m.Process.PID, nil, to, k.files)
	l.parentCounts = countsParent(snapshot, o)
	l.fill(nil, nil)
	r := found.resident(m.Facts)
	r.Forked = o.forked
	snapshot.Residents = append(snapshot.Residents, r)
}

// occupancyOf finds what is known of a process; nil: nothing.
func (s *Session) occupancyOf(pid int) *occupancy {
	if t := s.target(uint32(pid)); t != nil {
		return t.occupancy
	}
	return s.looker.others[pid]
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

func (k *looker) close() error {
	var errs []error
	for _, o := range k.others {
		errs = append(errs, o.close())
	}
	return errors.Join(errs...)
}
