package record

import (
	"context"
	"slices"
	"time"

	"github.com/allocscope/allocscope/growth/keeper"
	"github.com/allocscope/allocscope/tracer"
)

// lookGap is the time between two looks at the same objects. What is about to be stored or freed has
// been by then.
const lookGap = 20 * time.Second

// looks are the searches whose samples nothing referred to: a second look, some time later, proves
// that these are lost.
type looks struct {
	waiting []keeper.Search // for their second look
	proven  []keeper.Search
}

// add takes the results of a search.
func (l *looks) add(searches []keeper.Search) {
	for _, s := range searches {
		isKnown := func(k keeper.Search) bool { return k.IsAlike(&s) }
		if s.Look.AreMany() && !slices.ContainsFunc(l.waiting, isKnown) &&
			!slices.ContainsFunc(l.proven, isKnown) {
			l.waiting = append(l.waiting, s)
		}
	}
}

// addAgain takes the results of second looks, and returns what they have proven.
func (l *looks) addAgain(again []keeper.Search) (proven []keeper.Search) {
	for _, s := range again {
		l.waiting = slices.DeleteFunc(l.waiting, func(w keeper.Search) bool {
			return w.IsAlike(&s)
		})
		if s.Proof.IsProven() {
			proven = append(proven, s)
		}
	}
	l.proven = append(l.proven, proven...)
	return proven
}

// due returns the searches of a process whose second look is due.
func (l *looks) due(pid int, now, gap time.Duration) (due []keeper.Search) {
	for _, s := range l.waiting {
		if s.PID == pid && now-s.Elapsed >= gap {
			due = append(due, s)
		}
	}
	return due
}

// lookAgain starts a second look that is due, unless there is no budget.
func (w *objectWatch) lookAgain() {
	now, gap := w.session.Elapsed(), time.Duration(float64(lookGap)/w.options.Speed)
	for _, s := range w.looks.waiting {
		if due := w.looks.due(s.PID, now, gap); len(due) > 0 && w.budget(w.session.Overhead()) > 0 {
			w.begin(context.Background(), objectWork{
				search: &tracer.KeeperSearch{PID: s.PID, Again: due}, isLook: true,
			})
			return
		}
	}
}

// addProofs adds to answers what is proven. A lost object stays lost, whatever a later search finds.
func (l *looks) addProofs(latest []keeper.Search) []keeper.Search {
	for _, s := range l.proven {
		i := slices.IndexFunc(latest, func(k keeper.Search) bool { return k.IsAlike(&s) })
		if i < 0 {
			latest = append(latest, s)
			continue
		}
		latest[i].Proof = s.Proof
	}
	return latest
}
