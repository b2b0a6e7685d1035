package residency

import (
	"errors"
	"slices"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/estimate"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/tree"
)

const (
	// OthersShare of the budget is for members that are not traced, where there are any.
	OthersShare = 0.5
	// maxCredit can be saved up, and is there at first: so few or small ones are looked at in each snapshot.
	maxCredit = 300 * time.Millisecond
	// maxScanTime bounds one look, by looking at a share of the pages.
	maxScanTime = 200 * time.Millisecond
	// What a first look is expected to take, with room: that of a forked process reads the page map.
	otherBase   = 2 * time.Millisecond
	otherPerGiB = 20 * time.Millisecond
)

// Others are those that are not traced. They are looked at by turns, as often as the budget allows; of the others a
// snapshot has the latest reading.
type Others struct {
	Members map[int]*otherMember // by PID
	credit  time.Duration        // of processor time; negative: a look has cost more than there was
	last    time.Time
}

// An otherMember is a member that is not traced, and its latest reading.
type otherMember struct {
	process   *process.Process
	Occupancy *Tracker // nil: not looked at yet
	due       bool     // it is to be looked at now
	at        time.Time
	cost      time.Duration // of the latest look, or what the first one is expected to take
	resident  growth.Resident
	holdings  []growth.Holding
	files     CountedFiles
}

// begin says who is looked at now: those whose readings are the oldest, new ones first. Members that have gone are let go of.
func (k *Others) Begin(members []*tree.Member, now time.Time) {
	if k.last.IsZero() {
		k.Members, k.credit = make(map[int]*otherMember), maxCredit
	} else {
		k.credit = min(maxCredit, k.credit+time.Duration(OthersShare*scanCPUShare*float64(now.Sub(k.last))))
	}
	k.last = now
	for pid, o := range k.Members {
		if !slices.ContainsFunc(members, func(m *tree.Member) bool { return m.Process == o.process }) || !o.isCurrent() {
			_ = o.close() // it was only read
			delete(k.Members, pid)
		}
	}
	var queue []*otherMember
	for _, m := range members {
		o := k.Members[m.Process.PID]
		if o == nil {
			o = newOther(m.Process)
			k.Members[m.Process.PID] = o
		}
		queue = append(queue, o)
	}
	slices.SortStableFunc(queue, func(a, b *otherMember) int { return a.at.Compare(b.at) })
	left := k.credit
	for _, o := range queue {
		o.due = left > 0
		left -= o.cost
	}
}

// isDue tells whether a member is to be looked at now: not where those before it have cost more than was expected. Then
// more is set aside for it, so that fewer come before it the next time.
func (k *Others) isDue(o *otherMember) bool {
	if o.due && k.credit <= 0 {
		o.cost *= 2
		return false
	}
	return o.due
}

// pay takes in what a look has cost.
func (k *Others) pay(o *otherMember, cost time.Duration, now time.Time) {
	o.cost, o.at = max(cost, time.Microsecond), now
	k.credit -= o.cost
}

func newOther(p *process.Process) *otherMember {
	return &otherMember{process: p, cost: expected(p)}
}

// expected is what a first look will cost.
func expected(p *process.Process) time.Duration {
	status, err := p.Status()
	if err != nil {
		return otherBase // it is gone
	}
	return otherBase + time.Duration(float64(otherPerGiB)*float64(max(0, status.RSS))/(1<<30))
}

// isCurrent tells whether the process still executes what was looked at.
func (o *otherMember) isCurrent() bool { return o.Occupancy == nil || o.Occupancy.isOf(o.process) }

func (o *otherMember) close() error {
	if o.Occupancy == nil {
		return nil
	}
	return o.Occupancy.Close()
}

// addTo adds the latest reading of a member that is not traced; nothing where there is none yet. files are counted already, and
// occupancyOf finds what is known of a process.
func (k *Others) AddTo(snapshot *growth.Snapshot, m *tree.Member, files CountedFiles, occupancyOf func(pid int) *Tracker) {
	o := k.Members[m.Process.PID]
	if o == nil { // traced a moment ago
		return
	}
	if k.isDue(o) {
		took := process.MeasureCPUTime(func() { o.read(snapshot, m, files, occupancyOf(m.Info.Parent)) })
		k.pay(o, took, time.Now())
	} else {
		for file, spans := range o.files {
			files[file] = files[file].Union(spans)
		}
	}
	if o.holdings != nil {
		snapshot.Others = append(snapshot.Others, o.holdings...)
		snapshot.Residents = append(snapshot.Residents, o.resident)
	}
}

// read takes a reading; none where the process is gone.
func (o *otherMember) read(snapshot *growth.Snapshot, m *tree.Member, files CountedFiles, parent *Tracker) {
	o.holdings, o.files = nil, nil
	maps, err := m.Process.Maps()
	if err != nil {
		return
	}
	if o.Occupancy == nil {
		most := min(1, float64(maxScanTime)/float64(expected(m.Process)))
		if o.Occupancy, err = NewTracker(m.Process, most); err != nil {
			return
		}
	}
	found, err := o.Occupancy.Scan(maps, nil, 1, parent)
	if err != nil {
		return
	}
	held := make(estimate.Holdings)
	l := NewRows(found, m.Process.PID, nil, held, files)
	l.ParentCounts = CountsParent(snapshot, o.Occupancy)
	l.Fill(Known{})
	o.resident, o.holdings, o.files = found.Resident(m.Info), held.List(), l.own
	o.resident.Forked = o.Occupancy.Forked
}

// occupancyOf is what is known of a member; nil: nothing.
func (k *Others) TrackerOf(pid int) *Tracker {
	if o := k.Members[pid]; o != nil {
		return o.Occupancy
	}
	return nil
}

// CountsParent tells whether the parent from which a process inherited memory is in the snapshot.
func CountsParent(snapshot *growth.Snapshot, o *Tracker) bool {
	for _, r := range snapshot.Residents {
		if r.PID == o.parent {
			return true
		}
	}
	return false
}

func (k *Others) Close() error {
	var errs []error
	for _, o := range k.Members {
		errs = append(errs, o.close())
	}
	return errors.Join(errs...)
}
