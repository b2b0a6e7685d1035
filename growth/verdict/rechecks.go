package verdict

import "math"

// leaksForAlarm is how many checks in a row must find a leak: repeated checks are wrong more often
// than a single one.
const leaksForAlarm = 3

// recheckFactor is by how much longer a trace is at the next check.
const recheckFactor = 1.25

// Rechecks schedule repeated judgements of a trace and count those that agree.
type Rechecks struct {
	// Longest is the longest time between two checks, in the unit of the criteria; 0: it grows with
	// the trace.
	Longest float64

	progress Progress
}

// A Progress has the counts of Rechecks so far. It is for files.
type Progress struct {
	Next    float64 `json:"next"`
	Streak  int     `json:"streak"`
	Alarmed bool    `json:"alarmed"`
}

// NewRechecks begin with a first check at the criteria's MinPlateauLength, which should come from
// Criteria.Repeated.
func NewRechecks(criteria Criteria) *Rechecks {
	return &Rechecks{progress: Progress{Next: criteria.MinPlateauLength}}
}

// Due is true when the trace should be judged again, elapsed being its length in the unit of the
// criteria. Each check is due once, and the next when the trace is longer by a quarter.
func (l *Rechecks) Due(elapsed float64) bool {
	if elapsed < l.progress.Next {
		return false
	}
	l.progress.Next = recheckFactor * elapsed
	if l.Longest > 0 {
		l.progress.Next = min(l.progress.Next, elapsed+l.Longest)
	}
	return true
}

// Next is the length from which the next check is due.
func (l *Rechecks) Next() float64 { return l.progress.Next }

// Add counts a verdict. It returns true once, when enough checks in a row have found a leak.
func (l *Rechecks) Add(v Verdict) (alarm bool) {
	if v.Class != ClassLeak {
		l.progress.Streak = 0
		return false
	}
	l.progress.Streak++
	alarm = l.progress.Streak >= leaksForAlarm && !l.progress.Alarmed
	l.progress.Alarmed = l.progress.Alarmed || alarm
	return alarm
}

// AddTo adds the results of the checks to findings, for a trace of the length elapsed. Nil adds
// nothing: the trace is judged once.
func (l *Rechecks) AddTo(f *Findings, elapsed float64) {
	if l == nil {
		return
	}

	f.Streak = Streak{Found: l.progress.Streak, Needed: leaksForAlarm}
	missing := max(0, leaksForAlarm-l.progress.Streak)
	f.UntilEnough = elapsed * (math.Pow(recheckFactor, float64(missing)) - 1)
}

// Progress returns the counts so far.
func (l *Rechecks) Progress() Progress { return l.progress }

// Resume goes on from earlier counts.
func (l *Rechecks) Resume(p Progress) { l.progress = p }
