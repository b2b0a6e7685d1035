package record

import (
	"slices"
	"time"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/tracer/overhead/duty"
	"github.com/allocscope/allocscope/tracer/process"
)

const (
	// A trace writes its first result after firstResult, the next ones after as much time again, and
	// then one each resultPeriod: if allocscope or the machine is killed, the latest one stays.
	firstResult  = 5 * time.Second
	resultPeriod = time.Minute
)

// A resultSeries is when the results are written while the trace runs. It bounds their cost.
type resultSeries struct {
	next  time.Duration // Elapsed; none is due before
	costs duty.Limiter
}

// newResultSeries returns the results of a trace that began at a time.
func newResultSeries(began time.Duration) resultSeries {
	return resultSeries{
		next: began + firstResult, costs: duty.Limiter{Burst: duty.Table[duty.Results].Advance},
	}
}

// isDue reports whether a result is due. One that the end of the trace replaces soon is not.
func (s *resultSeries) isDue(r *Recorder) bool {
	now, end := r.session.Elapsed(), r.end.At()
	isNearEnd := end != 0 && end-now < firstResult
	return now >= s.next && !isNearEnd && r.Latest() != nil && r.session.Err() == nil
}

// write writes the profiles of the result so far, reports it, and decides when the next one is due.
func (s *resultSeries) write(r *Recorder) {
	cost := process.MeasureCPUTime(func() {
		result, err := r.resultSoFar()
		if err != nil {
			r.files.note(err)
			return
		}
		r.report(ResultSoFar{result})
	})

	o, now := r.session.Overhead(), r.session.Elapsed()
	s.costs.Share = o.Use().Share(duty.Results)
	at := time.Time{}.Add(o.Elapsed)
	s.costs.Accrue(at)
	s.costs.Spend(cost)
	rest := min(s.costs.Rest(at), maxStretch*resultPeriod)
	s.next = now + max(rest, min(now-r.began, resultPeriod))
}

// resultSoFar writes the profiles of a trace that goes on, and returns its result. Who keeps the
// memory is as known at the last search.
func (r *Recorder) resultSoFar() (*Result, error) {
	e := &Ending{recorder: r, reason: summary.EndedRunning}
	e.all = r.Recorded().Judge()
	e.judge()
	e.trace.Keepers = slices.Clone(e.trace.Keepers)
	for i := range e.trace.Keepers {
		e.trace.Keepers[i].IsEarlier = true
	}

	result, err := e.conclude()
	r.profiles.verdicts = nil // the profiles of later snapshots have none
	if err == nil {
		delete(result.Summary.Files, "report") // it is made at the end
	}
	return result, err
}
