package residency

import "time"

// A Budget bounds what looking at pages costs.
type Budget struct {
	PerByte      float64 // seconds of one core, for a byte that is resident
	fixedSeconds float64 // seconds that a snapshot takes besides: maps, what lies in memory, the ledger itself
	last         time.Time
}

const (
	// looking is the share of a core that looks may take.
	scanCPUShare = 0.01
	// small processes are looked at whole in this time, in seconds, however short the interval.
	alwaysFullScanSeconds = 10e-3
	// initialSecondsPerByte is what a byte costs before one has been looked at: 5 ms a GiB.
	initialSecondsPerByte = 5e-3 / (1 << 30)
	// minScanShare keeps an estimate possible.
	minScanShare = 0.02
)

// share of the pages that may be looked at now, of processes that have so much resident, for that part of the budget.
func (b *Budget) ShareFor(resident int64, now time.Time, part float64) float64 {
	since := max(now.Sub(b.last), time.Second)
	if b.last.IsZero() {
		since = time.Second
	}
	b.last = now
	if b.PerByte == 0 {
		b.PerByte = initialSecondsPerByte
	}
	whole := b.PerByte * float64(max(resident, 1))
	room := part*scanCPUShare*since.Seconds() - b.fixedSeconds
	if whole <= max(alwaysFullScanSeconds, room) {
		return 1
	}
	return max(minScanShare, room/whole)
}

// learn takes in what a snapshot has cost: looking at so many resident bytes, and all the rest.
func (b *Budget) Learn(resident float64, cost, rest time.Duration) {
	const weight = 0.3 // of the newest
	b.fixedSeconds += weight * (rest.Seconds() - b.fixedSeconds)
	if resident < sampledMappingBytes {
		return // mostly of other things
	}
	b.PerByte += weight * (cost.Seconds()/resident - b.PerByte)
}
