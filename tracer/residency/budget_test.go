package residency

import (
	"math"
	"testing"
	"time"
)

func TestLookingAtFiftyGigabytesTakesAHundredthOfACore(t *testing.T) {
	const resident, every = 50 << 30, 5 * time.Second
	for _, perGiB := range []time.Duration{time.Millisecond, 3 * time.Millisecond, 8 * time.Millisecond} {
		var b Budget
		now := time.Now()
		var spent time.Duration
		const looks = 100
		for i := range looks {
			share := b.ShareFor(resident, now, 1)
			looked := share * resident
			cost := time.Duration(looked / (1 << 30) * float64(perGiB))
			b.Learn(looked, cost, 0)
			if i >= looks/2 {
				spent += cost
			}
			now = now.Add(every)
		}
		of := spent.Seconds() / (every.Seconds() * looks / 2)
		if all := 50 * perGiB.Seconds() / every.Seconds(); of > 0.0101 || of < 0.99*min(0.01, all) {
			t.Errorf("at %s a GiB it takes %.4f of a core, want the hundredth, or all of %.4f", perGiB, of, all)
		}
	}
}

func TestSmallProcessesAreLookedAtWhole(t *testing.T) {
	var b Budget
	now := time.Now()
	for range 100 {
		if share := b.ShareFor(1<<30, now, 1); share != 1 {
			t.Fatalf("of 1 GiB a share of %v is looked at, want all", share)
		}
		b.Learn(1<<30, 4*time.Millisecond, 0)
		now = now.Add(time.Second)
	}
}

func TestALookAtLittleTeachesNothing(t *testing.T) {
	var b Budget
	before := b.ShareFor(40<<30, time.Now(), 1)
	b.Learn(1<<20, time.Second, 0)
	if after := b.ShareFor(40<<30, time.Now(), 1); math.Abs(after-before) > 1e-9 {
		t.Errorf("share %v after a look at 1 MiB that took a second, %v before", after, before)
	}
}
