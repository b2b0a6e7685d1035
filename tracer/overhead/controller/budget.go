package controller

import (
	"math"

	"github.com/allocscope/allocscope/tracer/overhead/duty"
)

// A budget is the time that the probes of heap and tensor may take from the thread that they slow
// down most. Its income is the limit's share of the elapsed time. Two rules hold at a time:
//
//   - Over any minute the probes take no more than that minute allows. A burst waits for headroom.
//   - While every call is probed, they may at once take the allowance of six seconds, a tenth of a
//     minute. This is a token bucket: credit grows by the time allowed and falls by the time taken.
type budget struct {
	limit    float64
	throttle float64 // in (0, 1]; less than 1 where steps are slower than the costs explain
	debt     float64 // seconds that others have taken and the budget has not yet paid for
	credit   float64 // seconds; negative where the probes took more than allowed
	spent    spent
	total    timeUse // of the last minute
}

const (
	// reservedShare is the share of the budget that other sources cannot take. They have limits of
	// their own, and go on in every mode.
	reservedShare = 1. / 3
	// creditSeconds is the size of the token bucket, in seconds of its income.
	creditSeconds = 6
)

// account adds the use since the last reading.
func (b *budget) account(u timeUse) {
	income := b.limit * u.elapsed
	b.debt += u.kernel
	paid := min(b.debt, (1-reservedShare)*income)
	b.debt -= paid
	u.allowed = b.throttle * (income - paid)

	b.spent.add(u)
	b.total = b.spent.sum(60)

	rate := b.rate()
	b.debt = min(b.debt, 60*b.limit) // older debt is forgiven
	b.credit = min(max(b.credit+u.allowed-u.probes, -creditSeconds*rate), creditSeconds*rate)
}

// rate returns the share of the time that the probes may take, on average over the last minute.
func (b *budget) rate() float64 {
	u := b.total
	return max(u.allowed/max(u.elapsed, 0.01), b.throttle*b.limit*reservedShare)
}

// headroom returns the seconds that this minute still allows.
func (b *budget) headroom() float64 {
	return b.total.allowed - b.total.probes
}

// recentUse returns the more expensive of the last second and the last reading: a storm may just
// have begun, while other calls come and go within a second. The probes opened since seconds ago.
func (b *budget) recentUse(since float64) timeUse {
	second, reading := b.spent.sum(min(1, since)), b.spent.sum(0)
	if reading.probes*second.elapsed > second.probes*reading.elapsed {
		return reading
	}
	return second
}

// ownExceeds reports whether allocscope itself took more than it may, and new stacks can be the
// reason. A coarser interval meets fewer of them.
func (b *budget) ownExceeds() bool {
	u := b.spent.sum(ownMemory)
	return u.elapsed >= ownMemory/2 && newStackCost*u.newStacks > u.own/2 &&
		u.own > max(b.limit*u.native, duty.DefaultCores*u.elapsed)
}

// busyCores returns how many cores the program keeps busy between bursts; within them probes slow
// it down. It shows the end of a storm without a burst. The last one ended since seconds ago; right
// after it the number is unknown, which means no bound.
func (b *budget) busyCores(since float64) float64 {
	if since < 1 {
		return math.MaxFloat64
	}
	recent := b.spent.sum(min(1, since-slotSeconds))
	return recent.native / max(recent.elapsed, 0.01)
}

// spent keeps the time used in the last minute, in slots of a quarter of a second.
type spent struct {
	slots []slot
	now   float64
}

type slot struct {
	from float64
	timeUse
}

const slotSeconds = 0.25

func (s *spent) add(u timeUse) {
	from := s.now
	s.now += u.elapsed
	if n := len(s.slots); n > 0 && s.now-s.slots[n-1].from < slotSeconds {
		s.slots[n-1].add(u)
	} else {
		s.slots = append(s.slots, slot{from, u})
	}

	old := 0
	for old < len(s.slots)-1 && s.slots[old].from+s.slots[old].elapsed <= s.now-60 {
		old++
	}
	s.slots = append(s.slots[:0], s.slots[old:]...)
}

// sum returns the use of the last seconds, including all of the slot in which they begin.
func (s *spent) sum(seconds float64) timeUse {
	var sum timeUse
	for i := len(s.slots) - 1; i >= 0; i-- {
		slot := s.slots[i]
		if slot.from+slot.elapsed <= s.now-seconds && i < len(s.slots)-1 {
			break
		}
		sum.add(slot.timeUse)
	}
	return sum
}
