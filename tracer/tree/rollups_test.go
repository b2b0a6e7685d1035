package tree

import (
	"slices"
	"testing"
	"time"
)

// A reader stands for processes whose readings cost what they cost.
type reader struct {
	budget   rollupBudget
	accounts []*account
	costs    []time.Duration
	resident []int64
	now      time.Duration
	spent    time.Duration
	worst    time.Duration // longest round
	readings [][]time.Duration
}

func (r *reader) join(cost time.Duration, resident int64) {
	r.accounts = append(r.accounts, &account{})
	r.costs = append(r.costs, cost)
	r.resident = append(r.resident, resident)
	r.readings = append(r.readings, nil)
}

// tick lets a second pass.
func (r *reader) tick() {
	for i, a := range r.accounts {
		r.budget.expect(a, r.resident[i])
	}
	r.budget.share(r.accounts, r.now)
	var round time.Duration
	r.budget.round(r.accounts, func(i int) time.Duration {
		r.readings[i] = append(r.readings[i], r.now)
		r.budget.learn(r.resident[i], r.costs[i])
		round += r.costs[i]
		return r.costs[i]
	})
	r.spent += round
	r.worst = max(r.worst, round)
	r.now += time.Second
}

// longest is the longest time between two readings, or from the beginning or to the end.
func (r *reader) longest(i int) time.Duration {
	times := append(slices.Clone(r.readings[i]), r.now)
	var last, longest time.Duration
	for _, at := range times {
		longest = max(longest, at-last)
		last = at
	}
	return longest
}

func (r *reader) mustCostLessThanPromised(t *testing.T, once time.Duration) {
	t.Helper()
	if most := time.Duration(0.005*float64(r.now)) + once; r.spent > most {
		t.Errorf("readings cost %v of %v, more than %v", r.spent, r.now, most)
	}
}

const gib = 1 << 30

func TestTheFirstProcessIsReadAtOnce(t *testing.T) {
	r := &reader{}
	r.join(time.Second, 200*gib)
	r.join(time.Millisecond, gib)
	r.tick()
	if len(r.readings[0]) != 1 || len(r.readings[1]) != 0 {
		t.Errorf("read at %v", r.readings)
	}
}

func TestLargeProcessesAreReadRarelyAndSmallOnesOften(t *testing.T) {
	r := &reader{}
	r.join(500*time.Millisecond, 100*gib)
	for range 29 {
		r.join(100*time.Microsecond, 10<<20)
	}
	for range 3600 {
		r.tick()
	}
	r.mustCostLessThanPromised(t, 500*time.Millisecond)
	if r.spent < time.Duration(0.6*rollupShare*float64(r.now)) {
		t.Errorf("readings cost %v of %v: they could be more", r.spent, r.now)
	}
	if large := r.longest(0); large > 4*time.Minute {
		t.Errorf("the large one waited %v", large)
	}
	for i := 1; i < 30; i++ {
		if small := r.longest(i); small > 15*time.Second {
			t.Errorf("small one %d waited %v", i, small)
		}
	}
}

func TestNobodyStarves(t *testing.T) {
	r := &reader{}
	for i := range MaxMembers {
		cost := 150 * time.Microsecond << (i % 4)
		r.join(cost, int64(cost.Seconds()/0.005*gib))
	}
	for range 1800 {
		r.tick()
	}
	r.mustCostLessThanPromised(t, 0)
	for i := range r.accounts {
		if wait := r.longest(i); wait > 3*time.Minute {
			t.Errorf("process %d waited %v", i, wait)
		}
	}
	if r.worst > rollupRound+1200*time.Microsecond {
		t.Errorf("one round cost %v", r.worst)
	}
}

// The first reading of each is paid for by an estimate, which is wrong here, and by what it has cost afterwards.
func TestProcessesThatComeAndGoCostNoMore(t *testing.T) {
	r := &reader{}
	for second := range 1200 {
		for range 3 {
			r.join(2*time.Millisecond, gib/20)
		}
		if second >= 20 { // those of twenty seconds ago are gone
			r.accounts, r.costs, r.resident, r.readings = r.accounts[3:], r.costs[3:], r.resident[3:], r.readings[3:]
		}
		r.tick()
	}
	r.mustCostLessThanPromised(t, 50*time.Millisecond)
	if r.spent == 0 {
		t.Error("nothing was read")
	}
}

func TestAProcessThatGrowsIsReadLessOften(t *testing.T) {
	r := &reader{}
	r.join(time.Millisecond, gib/5)
	for range 600 {
		r.costs[0] += 2 * time.Millisecond
		r.tick()
	}
	r.mustCostLessThanPromised(t, r.costs[0])
}

func TestAPauseIsNotMadeUpFor(t *testing.T) {
	r := &reader{}
	r.join(time.Millisecond, gib/5)
	r.tick()
	r.now += time.Hour
	for range 5 {
		r.tick()
	}
	if n := len(r.readings[0]); n > 6 {
		t.Errorf("%d readings in 6 rounds", n)
	}
	if r.accounts[0].credit > r.accounts[0].cost {
		t.Errorf("%v is saved for a reading of %v", r.accounts[0].credit, r.accounts[0].cost)
	}
}
