package record

import (
	"context"
	"slices"
	"time"

	"github.com/allocscope/allocscope/growth/keeper"
	"github.com/allocscope/allocscope/tracer"
)

// sweepGap is the time between two sweeps for the same objects. An object that is about to be stored
// or freed has been by then.
const sweepGap = 20 * time.Second

// sweeps are the searches whose samples nothing referred to: a second sweep, some time later, proves
// that these are lost.
type sweeps struct {
	waiting    []keeper.Search // for their second sweep
	proven     []keeper.Search
	isRepeated bool          // there was a second sweep
	next       time.Duration // there is no other one before
}

// add takes the results of a search.
func (l *sweeps) add(searches []keeper.Search) {
	for _, s := range searches {
		isKnown := func(k keeper.Search) bool { return k.IsAlike(&s) }
		if s.Sweep.MayProve() && !slices.ContainsFunc(l.waiting, isKnown) &&
			!slices.ContainsFunc(l.proven, isKnown) {
			l.waiting = append(l.waiting, s)
		}
	}
}

// addAgain takes the results of second sweeps, and returns the proven ones.
func (l *sweeps) addAgain(again []keeper.Search) (proven []keeper.Search) {
	for _, s := range again {
		l.waiting = slices.DeleteFunc(l.waiting, func(w keeper.Search) bool {
			return w.IsAlike(&s)
		})
		if s.Proof.IsProven() {
			proven = append(proven, s)
		} else if s.Sweep.MayProve() {
			l.waiting = append(l.waiting, s)
		}
	}
	l.proven = append(l.proven, proven...)
	return proven
}

// due returns the searches of a process whose second sweep is due.
func (l *sweeps) due(pid int, now, gap time.Duration) (due []keeper.Search) {
	for _, s := range l.waiting {
		if s.PID == pid && now-s.Elapsed >= gap {
			due = append(due, s)
		}
	}
	return due
}

// sweepAgain starts a second sweep that is due. The first one in a trace does not wait for the budget:
// it proves a leak minutes before the growth alone does.
func (w *objectWatch) sweepAgain() {
	now, gap := w.session.Elapsed(), time.Duration(float64(sweepGap)/w.options.Speed)
	hasTime := !w.sweeps.isRepeated || w.budget(w.session.Overhead()) > 0 && now >= w.sweeps.next
	for _, s := range w.sweeps.waiting {
		if due := w.sweeps.due(s.PID, now, gap); len(due) > 0 && hasTime {
			w.sweeps.isRepeated, w.sweeps.next = true, now+gap
			w.begin(context.Background(), objectWork{
				search: &tracer.KeeperSearch{PID: s.PID, Again: due}, limit: sweepTime,
			})
			return
		}
	}
}

// addProofs adds the proofs to answers. A lost object stays lost, whatever a later search finds.
func (l *sweeps) addProofs(latest []keeper.Search) []keeper.Search {
	for _, s := range l.proven {
		i := slices.IndexFunc(latest, func(k keeper.Search) bool { return k.IsAlike(&s) })
		if i < 0 {
			latest = append(latest, s)
			continue
		}
		latest[i].Proof = s.Proof
		if latest[i].Garbage > 0 { // the collector has left it
			latest[i].Garbage, latest[i].Reason = 0, keeper.ReasonUnreferenced
		}
	}
	return latest
}
