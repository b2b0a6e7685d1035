package duty

import (
	"math/rand/v2"
	"testing"
	"time"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func TestLimiter(t *testing.T) {
	t.Run("share of a core is spent and not exceeded", func(t *testing.T) {
		const share, duration, tick = 0.01, time.Hour, time.Second
		const longestRun = 200 * time.Millisecond
		for seed := range uint64(20) {
			r := rand.New(rand.NewPCG(seed, 0))
			l := Limiter{Share: share, Burst: time.Duration(r.Int64N(int64(time.Second)))}

			var spent time.Duration
			for elapsed := time.Duration(0); elapsed < duration; elapsed += tick {
				for l.Allowed(start.Add(elapsed)) {
					cost := 1 + time.Duration(r.Int64N(int64(longestRun)))
					l.Spend(cost)
					spent += cost
				}
			}

			accrued := time.Duration(share * float64(duration))
			if spent < accrued-tick || spent > accrued+l.Burst+longestRun {
				t.Errorf("seed %d: %s spent, want %s and a burst of %s",
					seed, spent, accrued, l.Burst)
			}
		}
	})

	t.Run("rests for cost divided by share without burst", func(t *testing.T) {
		l := Limiter{Share: 0.03}
		if !l.Allowed(start) {
			t.Error("first run not allowed at once")
		}

		l.Spend(10 * time.Millisecond)
		if l.Allowed(start.Add(333*time.Millisecond)) || !l.Allowed(start.Add(334*time.Millisecond)) {
			t.Error("does not rest for 333.3 ms")
		}

		l.Spend(30 * time.Millisecond)
		now := start.Add(334 * time.Millisecond)
		rest := l.Rest(now)
		if rest <= 0 || l.Allowed(now.Add(rest-1)) || !l.Allowed(now.Add(rest+1)) {
			t.Errorf("not allowed just after the rest of %s", rest)
		}
		if rest := l.Rest(now.Add(time.Hour)); rest != 0 {
			t.Errorf("rests for %s without a debt", rest)
		}

		next := start.Add(time.Hour) // leaves no credit
		l.Accrue(next)
		l.Spend(time.Millisecond)
		if l.Allowed(next) {
			t.Error("allowed in debt")
		}
	})

	t.Run("credit is at most the burst", func(t *testing.T) {
		l := Limiter{Share: 0.5, Burst: time.Second}
		l.Accrue(start)
		if credit := l.Credit(); credit != time.Second {
			t.Errorf("first credit %s, want %s", credit, time.Second)
		}

		l.Spend(3 * time.Second)
		if credit := l.Credit(); credit != -2*time.Second {
			t.Errorf("credit %s after a run, want %s", credit, -2*time.Second)
		}

		accrued := l.Accrue(start.Add(time.Minute))
		if accrued != 30*time.Second || l.Credit() != time.Second {
			t.Errorf("%s accrued, credit %s; want 30s and 1s", accrued, l.Credit())
		}
	})

	t.Run("cost before the first accrual counts", func(t *testing.T) {
		l := Limiter{Share: 0.5}
		l.Spend(time.Second)
		if l.Allowed(start) || l.Allowed(start.Add(1999*time.Millisecond)) ||
			!l.Allowed(start.Add(2*time.Second)) {
			t.Error("does not rest for 2s")
		}
	})

	t.Run("clock that runs backwards adds nothing", func(t *testing.T) {
		l := Limiter{Share: 0.5, Burst: time.Second}
		l.Accrue(start)
		l.Spend(time.Second)
		if accrued := l.Accrue(start.Add(-time.Hour)); accrued != 0 || l.Credit() != 0 {
			t.Errorf("%s accrued, credit %s; want none", accrued, l.Credit())
		}
		if accrued := l.Accrue(start.Add(time.Second)); accrued != time.Second/2 {
			t.Errorf("%s accrued in a second, want 500ms", accrued)
		}
	})
}
