package record

import (
	"slices"
	"time"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/claim"
	"github.com/allocscope/allocscope/tracer/overhead"
	"github.com/allocscope/allocscope/tracer/overhead/duty"
)

// maxSnapshots bounds the snapshots of a trace without a duration. They start at one a second.
// Whenever there are this many, every other one is dropped and the time between them doubles.
const maxSnapshots = 120

// maxHoldings bounds the holdings that all snapshots have, some 220 bytes each. They are not
// thinned below minSnapshots, which the judgement of stacks needs.
const (
	maxHoldings  = 1 << 17
	minSnapshots = 16
)

// maxStretch is how many periods snapshots are apart at most, where they cost more than their part
// of allocscope's own CPU time.
const maxStretch = 5

// A snapshotSeries is the snapshots of a trace, and when the next one is due. It bounds their
// number, their memory and their cost.
type snapshotSeries struct {
	all       []numberedSnapshot // in order, while the process lived
	nextFile  int                // number of the next snapshot's file
	exit      *growth.Snapshot   // of the ended process; nil: it lives
	calm      *growth.Snapshot   // the latest outside spikes, which has its births; nil: none
	period    time.Duration
	isFixed   bool          // the user has set the period
	costs     duty.Limiter  // where it is not fixed
	notBefore time.Duration // none is due before
	leftOut   int           // for their cost

	planned      time.Duration    // when the baseline is due, by --warmup; 0: it is not, or is taken
	baseline     *growth.Snapshot // nil: not planned, or not reached
	idleHoldings uint64           // that bound has dropped
}

// numberedSnapshot is a snapshot and the number of its file.
type numberedSnapshot struct {
	*growth.Snapshot
	file int
}

// defaultSnapshotPeriod divides a duration by sixty, or by thirty where the periods would be
// shorter than two seconds.
func defaultSnapshotPeriod(duration time.Duration) time.Duration {
	return max(time.Second, duration/60, min(2*time.Second, duration/30))
}

func newSnapshotSeries(o *Options) snapshotSeries {
	s := snapshotSeries{
		period: o.SnapshotEvery, isFixed: o.SnapshotEvery != 0, planned: o.Warmup,
		costs: duty.Limiter{Burst: duty.Table[duty.Snapshots].Advance},
	}
	if s.period == 0 {
		s.period = defaultSnapshotPeriod(o.Duration)
	}
	return s
}

// latest returns the latest snapshot; nil: there is none.
func (s *snapshotSeries) latest() *growth.Snapshot {
	if len(s.all) == 0 {
		return nil
	}
	return s.all[len(s.all)-1].Snapshot
}

// add adds a snapshot, and returns the number of its file. Where it is in a spike, the latest one
// outside keeps its births: growth is measured until there if the spike is the end of the trace.
func (s *snapshotSeries) add(snapshot *growth.Snapshot, inSpike bool) (file int) {
	if latest := s.latest(); latest != nil && latest != s.calm {
		dropBirths(latest, snapshot)
	}
	if !inSpike {
		if s.calm != nil {
			dropBirths(s.calm, snapshot)
		}
		s.calm = snapshot
	}
	s.unclassifyFree(snapshot)

	n := numberedSnapshot{snapshot, s.nextFile}
	s.nextFile++
	s.all = append(s.all, n)
	return n.file
}

// dropBirths drops the births that a later snapshot has, too. The last snapshot before the first burst
// keeps its births: it may show growth for longer than all that follow.
func dropBirths(of, later *growth.Snapshot) {
	if of.Heap.Bursts > 0 || later.Heap.Bursts == 0 {
		of.DropBirths(later)
	}
}

// times are the times of all snapshots.
func (s *snapshotSeries) times() []time.Duration {
	var times []time.Duration
	for _, n := range s.all {
		times = append(times, n.Elapsed)
	}
	return times
}

// next is when the next snapshot is due. It counts in whole periods, so that the baseline snapshot
// does not shift the others.
func (s *snapshotSeries) next() time.Duration {
	if len(s.all) == 0 {
		return 0
	}
	after := max(s.all[len(s.all)-1].Elapsed, s.notBefore-1)
	return (after/s.period + 1) * s.period
}

// postpone decides how soon the next snapshot may follow one that has cost so much CPU time, in a
// trace that began at a time.
func (s *snapshotSeries) postpone(cost, began time.Duration, o overhead.Overhead) {
	if o.OwnLimit() == 0 || s.isFixed {
		return
	}

	s.costs.Share = o.Use().Share(duty.Snapshots)
	now := time.Time{}.Add(o.Elapsed)
	s.costs.Accrue(now)
	s.costs.Spend(cost)
	planned := s.next()
	s.notBefore = began + o.Elapsed + min(s.costs.Rest(now), maxStretch*s.period)
	s.leftOut += int((s.next() - planned) / s.period)
}

// unclassifyFree gives the free memory of earlier snapshots the kind that it has in the latest one,
// where losses have made it unknown: rows of both are compared.
func (s *snapshotSeries) unclassifyFree(latest *growth.Snapshot) {
	for _, p := range latest.Residents {
		if _, ok := claim.May(claim.FreeMemory, p.PID, latest.Losses); ok {
			continue
		}

		for _, earlier := range s.all {
			earlier.UnclassifyFree(p.PID)
		}
	}
}

// bound bounds the number of the snapshots of an open-ended trace, and the memory of all. In the
// snapshots between the first and the latest it drops holdings that hold nothing. Then it drops
// every other one of these snapshots.
func (s *snapshotSeries) bound(isOpenEnded bool, files *Files) {
	if isOpenEnded && len(s.all) >= maxSnapshots {
		s.thin(files)
	}
	for i, n := range s.all {
		isEnd := i == 0 || i == len(s.all)-1 || n.Snapshot == s.baseline
		if !isEnd && s.holdings() > maxHoldings {
			s.idleHoldings += uint64(n.DropIdle())
		}
	}
	for len(s.all) > minSnapshots && s.holdings() > maxHoldings {
		s.thin(files)
	}
}

// holdings is how many the snapshots have.
func (s *snapshotSeries) holdings() (n int) {
	for _, at := range s.all {
		n += len(at.Holdings) + len(at.GPUHoldings) + len(at.Others)
	}
	return n
}

// thin drops every other snapshot but the first, the last and the planned baseline.
func (s *snapshotSeries) thin(files *Files) {
	kept := s.all[:0]
	for i, n := range s.all {
		if i%2 == 0 || i == len(s.all)-1 || n.Snapshot == s.baseline {
			kept = append(kept, n)
			continue
		}
		files.remove(folder.SnapshotFile(n.file))
	}

	s.all = kept
	s.period *= 2
}

// dropTeardown drops the last snapshots of a process that has exited then, if they have less of the
// heap than most before them: memory that a program frees at its end, it had kept until then. After
// a spike it has as much as most before.
func (s *snapshotSeries) dropTeardown(
	exit time.Duration, main *growth.ProcessHistory, files *Files,
) {
	const keptShare, longest, fewest = 0.8, 10 * time.Second, 2
	for n := len(s.all); n > fewest && main != nil; n-- {
		last := s.all[n-1]
		var before []float64
		for _, earlier := range s.all[:n-1] {
			before = append(before, heapOf(earlier.Snapshot, main.PID))
		}
		slices.Sort(before)

		isKept := heapOf(last.Snapshot, main.PID) >= keptShare*before[len(before)/2]
		if isKept || exit-last.Elapsed > longest || last.Snapshot == s.baseline {
			return
		}
		files.remove(folder.SnapshotFile(last.file))
		s.all = s.all[:n-1]
	}
}

// heapOf returns the bytes that a process has allocated and not freed.
func heapOf(s *growth.Snapshot, pid int) (bytes float64) {
	for _, h := range s.Holdings {
		if h.Stack.PID == pid && h.Kind == growth.KindHeap {
			bytes += float64(h.InuseBytes)
		}
	}
	return bytes
}
