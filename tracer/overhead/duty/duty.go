// Package duty limits recurring work to a share of one CPU core, its duty cycle.
package duty

import (
	"math"
	"time"
)

// A Limiter is a token bucket of CPU time (https://en.wikipedia.org/wiki/Token_bucket). Credit
// accrues with time, and each run of the work spends its cost. A run may start unless the Limiter
// is in debt. The cost of a run is known only when it has ended, so that a run may put the Limiter
// into debt; the next one then waits until the debt is repaid.
//
// Over a span of t seconds, the work takes at most Share·t + Burst seconds of CPU time, plus one
// run. A Limiter reads no clock and is not safe for concurrent use.
type Limiter struct {
	// Share of one core that accrues as credit: CPU seconds per second, above 0.
	Share float64

	// Burst is the largest credit, and the first one. At 0 no credit is kept: after each run the
	// work rests for its cost divided by Share.
	Burst time.Duration

	started bool
	last    time.Time // of the last accrual
	credit  float64   // CPU time in ns; negative: a debt
}

// Accrue adds the CPU time that has accrued since the last call, and returns it, also as far as it
// exceeds Burst. The first call adds Burst and returns 0. Accrue adds nothing if now is before the
// last call.
//
// Work whose cost can be predicted may size each run by the returned time, without Spend. Work of
// several tasks may divide the returned time among them.
func (l *Limiter) Accrue(now time.Time) time.Duration {
	var accrued float64
	if l.started {
		accrued = l.Share * float64(max(0, now.Sub(l.last)))
		l.credit += accrued
	} else {
		l.credit += float64(l.Burst)
	}

	l.credit = min(l.credit, float64(l.Burst))
	if !l.started || now.After(l.last) {
		l.started, l.last = true, now
	}
	return time.Duration(accrued)
}

// Credit returns the CPU time that can be spent, as of the last accrual. It is negative in debt.
func (l *Limiter) Credit() time.Duration { return time.Duration(math.Floor(l.credit)) }

// Spend takes the CPU time that a run has cost from the credit.
func (l *Limiter) Spend(cost time.Duration) { l.credit -= float64(cost) }

// Rest accrues credit and returns how long until a run may start: until the debt is repaid.
func (l *Limiter) Rest(now time.Time) time.Duration {
	l.Accrue(now)
	return time.Duration(math.Ceil(max(0, -l.credit) / l.Share))
}

// Allowed accrues credit and reports whether a run may start: the Limiter is not in debt.
func (l *Limiter) Allowed(now time.Time) bool {
	l.Accrue(now)
	return l.credit >= 0
}
