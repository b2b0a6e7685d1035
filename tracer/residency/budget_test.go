package residency

import (
	"math"
	"testing"
	"time"

	"github.com/allocscope/allocscope/tracer/overhead/duty"
)

// newBudget returns a budget of page scans that may take a hundredth of a core.
func newBudget() Budget { return Budget{Limit: duty.NewBudget(0).Account(duty.Scans)} }

func TestBudget(t *testing.T) {
	start := time.Now()

	t.Run("scans of 50 GiB take a hundredth of a core", func(t *testing.T) {
		const resident, interval, snapshots = 50 << 30, 5 * time.Second, 100
		for _, perGiB := range []time.Duration{
			time.Millisecond, 3 * time.Millisecond, 8 * time.Millisecond,
		} {
			b := newBudget()
			var spent time.Duration // in the second half
			for i := range snapshots {
				share := b.ShareFor(resident, start.Add(time.Duration(i)*interval), false)
				cost := time.Duration(50 * share * float64(perGiB))
				b.Learn(share*resident, cost, 0)
				if i >= snapshots/2 {
					spent += cost
				}
			}

			cores := spent.Seconds() / (interval.Seconds() * snapshots / 2)
			full := 50 * perGiB.Seconds() / interval.Seconds()
			if cores > 0.0101 || cores < 0.99*min(0.01, full) {
				t.Errorf("at %s a GiB: %.4f of a core, want 0.01, or all of %.4f",
					perGiB, cores, full)
			}
		}
	})

	t.Run("small process is scanned as a whole", func(t *testing.T) {
		b := newBudget()
		for i := range 100 {
			share := b.ShareFor(1<<30, start.Add(time.Duration(i)*time.Second), false)
			if share != 1 {
				t.Fatalf("share of 1 GiB is %v, want 1", share)
			}
			b.Learn(1<<30, 4*time.Millisecond, 0)
		}
	})

	t.Run("at the end a larger process is scanned as a whole", func(t *testing.T) {
		for gib, want := range map[int64]bool{40: true, 400: false} {
			b := newBudget()
			usual := b.ShareFor(gib<<30, start, false)
			atEnd := b.ShareFor(gib<<30, start, true)
			if usual == 1 || (atEnd == 1) != want {
				t.Errorf("%d GiB: share %v, at the end %v", gib, usual, atEnd)
			}
		}
	})

	t.Run("scan of few bytes teaches nothing", func(t *testing.T) {
		b := newBudget()
		before := b.ShareFor(40<<30, start, false)
		b.Learn(1<<20, time.Second, 0)
		if after := b.ShareFor(40<<30, start, false); math.Abs(after-before) > 1e-9 {
			t.Errorf("share %v after a scan of 1 MiB that took 1 s, %v before", after, before)
		}
	})
}
