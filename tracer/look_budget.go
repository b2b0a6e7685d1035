package tracer

import "time"

// A lookBudget bounds what looking at pages costs.
type lookBudget struct {
	perByte float64 // seconds of one core, for a byte that is resident
	fixed   float64 // seconds that a snapshot takes besides: maps, what lies in memory, the ledger itself
	last    time.Time
}

const (
	// looking is the share of a core that looks may take.
	looking = 0.01
	// small processes are looked at whole in this time, in seconds, however short the interval.
	small = 10e-3
	// firstPerByte is what a byte costs before one has been looked at: 5 ms a GiB.
	firstPerByte = 5e-3 / (1 << 30)
	// leastShare keeps an estimate possible.
	leastShare = 0.02
)

// share of the pages that may be looked at now, of processes that have so much resident, for that part of the budget.
func (b *lookBudget) share(resident int64, now time.Time, part float64) float64 {
	since := max(now.Sub(b.last), time.Second)
	if b.last.IsZero() {
		since = time.Second
	}
	b.last = now
	if b.perByte == 0 {
		b.perByte = firstPerByte
	}
	whole := b.perByte * float64(max(resident, 1))
	room := part*looking*since.Seconds() - b.fixed
	if whole <= max(small, room) {
		return 1
	}
	return max(leastShare, room/whole)
}

// learn takes in what a snapshot has cost: looking at so many resident bytes, and all the rest.
func (b *lookBudget) learn(resident float64, cost, rest time.Duration) {
	const weight = 0.3 // of the newest
	b.fixed += weight * (rest.Seconds() - b.fixed)
	if resident < smallMapping {
		return // mostly of other things
	}
	b.perByte += weight * (cost.Seconds()/resident - b.perByte)
}
