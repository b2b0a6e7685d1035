package controller

// A budget tells what the probes of heap and tensor may take. Two rules hold at a time. Over any minute they take no more
// than it allows them; that decides when a window may open. And while every call is probed, what they take beyond it at once
// is at most what six seconds allow: a tenth of a minute.
type budget struct {
	limit    float64
	throttle float64 // in (0, 1]: less where steps are slower than prices say
	// due is what others have spent and this budget has not yet paid for, in seconds.
	due    float64
	saved  float64 // towards a burst, in seconds; negative: a debt
	minute ledger
	total  spending // of the minute
}

const (
	// kept is the part of the budget that others cannot take. Sampling /proc, making unwind tables and reading page faults go on
	// whatever is decided here; without this part they would close the probes of a program that hardly runs, and save nothing.
	kept = 1. / 3
	// burst is how long one may spend at once what comes in, in seconds.
	burst = 6
)

// account books what has happened.
func (b *budget) account(s spending) {
	income := b.limit * s.work
	b.due += s.kernel + s.own
	paid := min(b.due, (1-kept)*income)
	b.due -= paid
	s.allowed = b.throttle * (income - paid)
	b.minute.add(s)
	b.total = b.minute.sum(60)
	rate := b.rate()
	b.due = min(b.due, 60*b.limit*b.total.workRate()) // what is older than a minute is forgiven
	b.saved = min(max(b.saved+s.allowed-s.probes, -burst*rate), burst*rate)
}

// rate is what the probes may take in a second, on average over the last minute.
func (b *budget) rate() float64 {
	s := b.total
	return max(s.allowed/max(s.elapsed, 0.01), b.throttle*b.limit*kept*quiet/2)
}

// room is what may be spent at once without taking more in this minute than it allows.
func (b *budget) room() float64 {
	return b.total.allowed - b.total.probes
}

// share is the part of the traced processes' CPU time that the probes may take.
func (b *budget) share() float64 {
	return b.rate() * b.total.elapsed / max(b.total.work, quiet/2*b.total.elapsed, 1e-9)
}

func (s spending) workRate() float64 { return max(s.work/max(s.elapsed, 0.01), quiet/2) }

// A ledger keeps what happened in the last minute.
type ledger struct {
	slots []slot
	now   float64
}

type slot struct {
	from float64
	spending
}

// slotLength is the time over which readings are summed up, in seconds.
const slotLength = 0.25

func (l *ledger) add(s spending) {
	from := l.now
	l.now += s.elapsed
	if n := len(l.slots); n > 0 && l.now-l.slots[n-1].from < slotLength {
		l.slots[n-1].add(s)
	} else {
		l.slots = append(l.slots, slot{from, s})
	}
	old := 0
	for old < len(l.slots)-1 && l.slots[old].from+l.slots[old].elapsed <= l.now-60 {
		old++
	}
	l.slots = append(l.slots[:0], l.slots[old:]...)
}

// sum of the last seconds, with the whole of the slot in which they begin.
func (l *ledger) sum(seconds float64) spending {
	var sum spending
	for i := len(l.slots) - 1; i >= 0; i-- {
		s := l.slots[i]
		if s.from+s.elapsed <= l.now-seconds && i < len(l.slots)-1 {
			break
		}
		sum.add(s.spending)
	}
	return sum
}
