package tree

import (
	"slices"
	"testing"
	"time"

	"github.com/allocscope/allocscope/tracer/overhead/duty"
)

// A simulation of processes whose reads have a known cost.
type simulation struct {
	budget    rollupBudget
	processes []*simulated
	now       time.Duration
	spent     time.Duration
	longest   time.Duration // round
}

type simulated struct {
	account
	trueCost time.Duration
	resident int64
	reads    []time.Duration // when
}

func newSimulation() (s simulation) {
	s.budget.limit = duty.NewBudget(0).Account(duty.Rollups)
	return s
}

func (s *simulation) add(cost time.Duration, resident int64) *simulated {
	p := &simulated{trueCost: cost, resident: resident}
	s.processes = append(s.processes, p)
	return p
}

func (s *simulation) tick() {
	accounts := make([]*account, len(s.processes))
	for i, p := range s.processes {
		accounts[i] = &p.account
		s.budget.estimateCost(&p.account, p.resident)
	}

	s.budget.share(accounts, s.now)
	var round time.Duration
	s.budget.readDue(accounts, func(i int) time.Duration {
		p := s.processes[i]
		p.reads = append(p.reads, s.now)
		s.budget.learn(p.resident, p.trueCost)
		round += p.trueCost
		return p.trueCost
	})

	s.spent += round
	s.longest = max(s.longest, round)
	s.now += time.Second
}

func (s *simulation) ticks(count int) {
	for range count {
		s.tick()
	}
}

// longestWait is the longest time between two reads, or from the beginning or to the end.
func (s *simulation) longestWait(p *simulated) time.Duration {
	var last, longest time.Duration
	for _, at := range append(slices.Clone(p.reads), s.now) {
		longest = max(longest, at-last)
		last = at
	}
	return longest
}

// mustKeepPromise checks that reads have cost less than a quarter of a percent of a core, except
// for one.
func (s *simulation) mustKeepPromise(t *testing.T, once time.Duration) {
	t.Helper()
	if most := time.Duration(0.0025*float64(s.now)) + once; s.spent > most {
		t.Errorf("reads cost %v of %v, more than %v", s.spent, s.now, most)
	}
}

func TestRollupBudget(t *testing.T) {
	const gib = 1 << 30

	t.Run("first process at once", func(t *testing.T) {
		s := newSimulation()
		first, second := s.add(time.Second, 200*gib), s.add(time.Millisecond, gib)
		s.tick()
		if len(first.reads) != 1 || len(second.reads) != 0 {
			t.Errorf("read at %v and %v", first.reads, second.reads)
		}
	})

	t.Run("large rarely, small often", func(t *testing.T) {
		s := newSimulation()
		large := s.add(500*time.Millisecond, 100*gib)
		for range 29 {
			s.add(100*time.Microsecond, 10<<20)
		}
		s.ticks(3600)
		s.mustKeepPromise(t, 500*time.Millisecond)
		if s.spent < time.Duration(0.6*s.budget.limit.Share()*float64(s.now)) {
			t.Errorf("reads cost %v of %v: there could be more", s.spent, s.now)
		}
		if wait := s.longestWait(large); wait > 8*time.Minute {
			t.Errorf("the large one waited %v", wait)
		}
		for i, p := range s.processes[1:] {
			if wait := s.longestWait(p); wait > 30*time.Second {
				t.Errorf("small one %d waited %v", i, wait)
			}
		}
	})

	t.Run("no starvation", func(t *testing.T) {
		s := newSimulation()
		for i := range MaxMembers {
			cost := 150 * time.Microsecond << (i % 4)
			s.add(cost, int64(cost.Seconds()/0.005*gib))
		}
		s.ticks(1800)
		s.mustKeepPromise(t, 0)
		for i, p := range s.processes {
			if wait := s.longestWait(p); wait > 6*time.Minute {
				t.Errorf("process %d waited %v", i, wait)
			}
		}
		if s.longest > maxRoundCost+1200*time.Microsecond {
			t.Errorf("one round cost %v", s.longest)
		}
	})

	// The first read of each is covered by an estimate, which is wrong here.
	t.Run("processes come and go", func(t *testing.T) {
		s := newSimulation()
		for second := range 1200 {
			for range 3 {
				s.add(2*time.Millisecond, gib/20)
			}
			if second >= 20 {
				s.processes = s.processes[3:]
			}
			s.tick()
		}
		s.mustKeepPromise(t, 50*time.Millisecond)
		if s.spent == 0 {
			t.Error("nothing was read")
		}
	})

	t.Run("growing cost", func(t *testing.T) {
		s := newSimulation()
		p := s.add(time.Millisecond, gib/5)
		for range 600 {
			p.trueCost += 2 * time.Millisecond
			s.tick()
		}
		s.mustKeepPromise(t, p.trueCost)
	})

	t.Run("pause is not made up for", func(t *testing.T) {
		s := newSimulation()
		p := s.add(time.Millisecond, gib/5)
		s.tick()
		s.now += time.Hour
		s.ticks(5)
		if len(p.reads) > 6 || p.credit > p.cost {
			t.Errorf("%d reads in 6 rounds, credit %v of %v", len(p.reads), p.credit, p.cost)
		}
	})
}
