package residency

import (
	"errors"
	"slices"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/estimate"
	"github.com/allocscope/allocscope/tracer/overhead/duty"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/tree"
)

const (
	// maxScanTime bounds the expected CPU time of one scan. It reads a share of the pages.
	maxScanTime = 200 * time.Millisecond

	// The expected CPU time of the first scan of a member, with a margin. A forked process needs a
	// second query of its page map, see findShared.
	firstScanTime       = 2 * time.Millisecond
	firstScanTimePerGiB = 20 * time.Millisecond
)

// Others are the members of the tree that are not traced. They are scanned in turns, as often as
// the budget allows, each time where they are few and small. A snapshot has the latest reading of
// each.
type Others struct {
	Members map[int]*otherMember // by PID
	Limit   duty.Account         // of the scans; its zero value has none
}

// An otherMember is a member that is not traced, and its latest reading.
type otherMember struct {
	process *process.Process

	// Tracker is nil before the first scan.
	Tracker *Tracker

	// due is set if the member is to be scanned for the current snapshot.
	due bool

	// scanned is when it was scanned last, and cost the CPU time of that, or the expected cost of
	// the first scan.
	scanned time.Time
	cost    time.Duration

	// The reading. holdings is nil if there is none.
	resident growth.Resident
	holdings []growth.Holding
	files    CountedFiles
}

// Begin selects the members to be scanned for a snapshot: the members with the oldest readings, new
// ones first. It forgets members that have ended or execute another program.
func (o *Others) Begin(members []*tree.Member, now time.Time) {
	if o.Members == nil {
		o.Members = make(map[int]*otherMember)
	}
	o.Limit.Accrue(now)

	for pid, m := range o.Members {
		isMember := func(other *tree.Member) bool { return other.Process == m.process }
		if !slices.ContainsFunc(members, isMember) || !m.isCurrent() {
			_ = m.close() // it was only read
			delete(o.Members, pid)
		}
	}

	queue := make([]*otherMember, 0, len(members))
	for _, member := range members {
		m := o.Members[member.Process.PID]
		if m == nil {
			m = newOther(member.Process)
			o.Members[member.Process.PID] = m
		}
		queue = append(queue, m)
	}
	slices.SortStableFunc(queue, func(a, b *otherMember) int {
		return a.scanned.Compare(b.scanned)
	})

	left := o.Limit.Credit()
	for _, m := range queue {
		m.due = left > 0
		left -= m.cost
	}
}

// isDue reports whether a member is scanned now. It is not, even if Begin has selected it, if the
// scans before it have cost more than expected. Then its own expected cost doubles, so that Begin
// selects fewer members before it the next time.
func (o *Others) isDue(m *otherMember) bool {
	if m.due && o.Limit.Credit() <= 0 {
		m.cost *= 2
		return false
	}
	return m.due
}

// spend records the CPU time of a scan.
func (o *Others) spend(m *otherMember, cost time.Duration, now time.Time) {
	m.cost, m.scanned = max(cost, time.Microsecond), now // clocks may be coarse
	o.Limit.Spend(m.cost)
}

func newOther(p *process.Process) *otherMember {
	return &otherMember{process: p, cost: firstScanCost(p)}
}

// firstScanCost returns the expected CPU time of the first scan of a process.
func firstScanCost(p *process.Process) time.Duration {
	status, err := p.Status()
	if err != nil {
		return firstScanTime // the process is gone
	}
	gib := float64(max(0, status.RSS)) / (1 << 30)
	return firstScanTime + time.Duration(float64(firstScanTimePerGiB)*gib)
}

// isCurrent reports whether the process executes the program still that was scanned.
func (m *otherMember) isCurrent() bool {
	return m.Tracker == nil || m.Tracker.executes(m.process)
}

func (m *otherMember) close() error {
	if m.Tracker == nil {
		return nil
	}
	return m.Tracker.Close()
}

// AddTo adds the latest reading of a member to a snapshot, and takes a new one if it is due. It
// adds nothing if there is none yet. files are counted by earlier processes; AddTo adds the files
// of the member. trackerOf returns the Tracker of a process, or nil.
func (o *Others) AddTo(
	snapshot *growth.Snapshot, member *tree.Member, files CountedFiles,
	trackerOf func(pid int) *Tracker,
) {
	m := o.Members[member.Process.PID]
	if m == nil { // its trace has ended since Begin
		return
	}

	if o.isDue(m) {
		cost := process.MeasureCPUTime(func() {
			m.read(snapshot, member, files, trackerOf(member.Info.Parent))
		})
		o.spend(m, cost, time.Now())
	} else {
		for file, spans := range m.files {
			files[file] = files[file].Union(spans)
		}
	}

	if m.holdings != nil {
		snapshot.Others = append(snapshot.Others, m.holdings...)
		snapshot.Residents = append(snapshot.Residents, m.resident)
	}
}

// read takes a reading. There is none if the process is gone.
func (m *otherMember) read(
	snapshot *growth.Snapshot, member *tree.Member, files CountedFiles, parent *Tracker,
) {
	m.holdings, m.files = nil, nil
	maps, err := member.Process.Maps()
	if err != nil {
		return
	}

	if m.Tracker == nil {
		maxShare := min(1, float64(maxScanTime)/float64(firstScanCost(member.Process)))
		if m.Tracker, err = NewTracker(member.Process, maxShare, nil); err != nil {
			return
		}
	}
	found, err := m.Tracker.Scan(maps, nil, 1, parent)
	if err != nil {
		return
	}

	held := make(estimate.Holdings)
	rows := NewRows(found, member.Process.PID, nil, held, files)
	rows.ParentInSnapshot = HasParent(snapshot, m.Tracker)
	rows.Fill(Samples{})

	m.resident, m.holdings, m.files = found.Resident(member.Info), held.List(), rows.ownFiles
	m.resident.Forked = m.Tracker.Forked
}

// TrackerOf returns the Tracker of a member; nil if it was never scanned.
func (o *Others) TrackerOf(pid int) *Tracker {
	if m := o.Members[pid]; m != nil {
		return m.Tracker
	}
	return nil
}

// Close closes the page maps of all members.
func (o *Others) Close() error {
	var errs []error
	for _, m := range o.Members {
		errs = append(errs, m.close())
	}
	return errors.Join(errs...)
}
