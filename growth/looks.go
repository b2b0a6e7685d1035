package growth

// looksForAlarm is how many looks in a row must find a leak: looking again and again is more often wrong than looking once.
const looksForAlarm = 3

// Looks judge a trace again and again: they say when, and when the verdicts agree.
type Looks struct {
	next  float64
	agree int
	rang  bool
}

// NewLooks begin with a first look as late as the criteria's MinFlat, which should be those of Criteria.Repeated.
func NewLooks(criteria Criteria) *Looks { return &Looks{next: criteria.MinFlat} }

// Due says whether it is time to look, elapsed being the length of the trace in the unit of the criteria. Each look is due once, and the
// next when the trace is longer by a quarter.
func (l *Looks) Due(elapsed float64) bool {
	if elapsed < l.next {
		return false
	}
	l.next = 1.25 * elapsed
	return true
}

// Add counts a look. The alarm is raised once, when enough looks in a row have found a leak.
func (l *Looks) Add(v Verdict) (alarm bool) {
	if v.Class != ClassLeak {
		l.agree = 0
		return false
	}
	l.agree++
	alarm = l.agree >= looksForAlarm && !l.rang
	l.rang = l.rang || alarm
	return alarm
}

// Agreeing is how many looks in a row have found a leak, and of how many the alarm is raised.
func (l *Looks) Agreeing() (looks, of int) { return l.agree, looksForAlarm }
