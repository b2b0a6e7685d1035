package controller

import (
	"math"
	"slices"
	"testing"
	"time"
)

// all sources there are, on a program with steps.
func all(seed uint64) Options {
	return Options{Heap: true, Tensor: true, Steps: true, Seed: seed, Limit: 0.03, Maturity: time.Minute}
}

func TestASleepingProgramIsWatchedAllTheTimeWhateverAllocscopeTakesItself(t *testing.T) {
	s := simulate(t, all(1), constant(sleeper()))
	s.own = 0.02 // ten times what the program runs
	s.run(t, 600)
	if len(s.changes) != 1 || s.governor.Mode() != Full || s.part(10, 600) != 1 {
		t.Errorf("mode %s, open %.1f %% of the time, changes %v", s.governor.Mode(), 100*s.part(10, 600), s.changes)
	}
}

func TestATrainerIsWatchedInWindowsThatKeepToTheLimit(t *testing.T) {
	for seed := range uint64(8) {
		s := simulate(t, all(seed), constant(trainer())).run(t, 1500)
		s.mustKeepToLimit(t, 0, 1500)
		s.mustHaveWindows(t, 1, 1500)
		if first := s.part(10, 600); first < 0.01 || first > 0.06 {
			t.Errorf("in the first ten minutes probes were open %.1f %% of the time", 100*first)
		}
		if later := s.part(620, 1500); later < 0.01 || later > 0.026 {
			t.Errorf("later probes were open %.1f %% of the time", 100*later)
		}
		if len(s.changes) != 2 || s.governor.Mode() != Windows {
			t.Errorf("mode %s, changes %v", s.governor.Mode(), s.changes)
		}
		n := len(s.cost) - 1
		if sum := (s.cost[n] + s.ownTime) / s.native[n]; sum > 0.03 {
			t.Errorf("with what allocscope took itself tracing cost %.2f %%", 100*sum)
		}
	}
}

func TestAJobOfEightProcessesHasABudgetForAll(t *testing.T) {
	l := trainer()
	l.cores = 8
	s := simulate(t, all(2), constant(l)).run(t, 900)
	s.mustKeepToLimit(t, 0, 900)
	s.mustHaveWindows(t, 1, 900)
}

func TestAnAllocatorWithSteppedInstructionsHasFewerWindows(t *testing.T) {
	l := trainer()
	l.stepped = l.calls / 2
	stepped := simulate(t, all(3), constant(l)).run(t, 900)
	stepped.mustKeepToLimit(t, 0, 900)
	stepped.mustHaveWindows(t, 1, 900)
	emulated := simulate(t, all(3), constant(trainer())).run(t, 900)
	if stepped.part(10, 900) > 0.8*emulated.part(10, 900) {
		t.Errorf("open %.2f %% of the time, and %.2f %% where nothing is stepped",
			100*stepped.part(10, 900), 100*emulated.part(10, 900))
	}
}

func TestRatesThatChangeAllTheTimeKeepToTheLimit(t *testing.T) {
	for seed := range uint64(8) {
		noisy := func(at float64) load {
			l := trainer()
			_, part := math.Modf(math.Sin(math.Floor(3*at)+float64(seed)) * 43758.5453)
			l.calls *= 1 + 0.9*part // each third of a second another
			return l
		}
		s := simulate(t, all(seed), noisy)
		s.prices = Prices{Entry: 950, Stepped: 6500, Return: 600, Fault: 310, Mapping: 500} // measured is not exact
		s.run(t, 900)
		s.mustKeepToLimit(t, 0, 900)
		s.mustHaveWindows(t, 1, 900)
	}
}

func TestAStormIsOverForTheProbesWithinAMoment(t *testing.T) {
	const begin, end = 120.0, 180.0
	for name, calm := range map[string]load{"sleeper": sleeper(), "trainer": trainer()} {
		for seed := range uint64(4) {
			l := func(at float64) load {
				if at >= begin && at < end {
					return storm()
				}
				return calm
			}
			s := simulate(t, all(seed), l).run(t, 400)
			if name == "sleeper" {
				s.mustBeClosedWithin(t, begin, 0.25)
			}
			for _, at := range []float64{5, 10, 30, 59} {
				i, j := int((begin+at-60)/tick), int((begin+at)/tick)
				if part := (s.cost[j] - s.cost[i]) / max(s.native[j]-s.native[i], 60*quiet); part > 1.1*0.03 {
					t.Errorf("%s: %v s into the storm probes had taken %.2f %% of the last minute", name, at, 100*part)
				}
			}
			// What eight busy threads allow has been spent when they end: minutes with that end alone have more.
			s.mustKeepToLimit(t, 0, begin-60)
			s.mustKeepToLimit(t, end+tensorSpan, 400)
		}
	}
}

// mustBeClosedWithin asserts that probes that are open at a time are closed so many seconds later.
func (s *simulation) mustBeClosedWithin(t *testing.T, at, seconds float64) {
	t.Helper()
	if i := int((at + seconds) / tick); !s.isOpen[int(at/tick)] || s.isOpen[i] {
		t.Errorf("open at %v s: %v; %v s later: %v", at, s.isOpen[int(at/tick)], seconds, s.isOpen[i])
	}
}

func TestEveryCallIsWatchedAgainSoonAfterAStorm(t *testing.T) {
	const begin, end = 120.0, 180.0
	for seed := range uint64(8) {
		l := func(at float64) load {
			if at >= begin && at < end {
				return storm()
			}
			return sleeper()
		}
		s := simulate(t, all(seed), l).run(t, 400)
		if s.part(begin+1, end) > 0.05 {
			t.Errorf("in the storm probes were open %.1f %% of the time", 100*s.part(begin+1, end))
		}
		if part := s.part(end+100, 400); part != 1 || len(s.spacings(end, 400)) > 12 {
			t.Errorf("100 s after the storm every call was watched %.1f %% of the time; %d windows since", 100*part, len(s.spacings(end, 400)))
		}
		if c := s.changesBetween(begin, begin+1); len(c) != 1 || c[0].Mode != Off { // by what a sleeper is allowed
			t.Errorf("in the storm's first second: %v", c)
		}
		if n := len(s.changes); n > 6 {
			t.Errorf("%d changes: %v", n, s.changes)
		}
	}
}

func TestEvenAThousandthIsKeptInTheLongRun(t *testing.T) {
	for seed := range uint64(4) {
		l := trainer()
		l.faults = 0
		o := all(seed)
		o.Limit = 0.001
		s := simulate(t, o, constant(l))
		s.own = 0
		s.run(t, 7200)
		i, j := int(60/tick), len(s.cost)-1
		if part := (s.cost[j] - s.cost[i]) / (s.native[j] - s.native[i]); part > 1.1*o.Limit {
			t.Errorf("probes took %.3f %%, limit %.1f %%", 100*part, 100*o.Limit)
		}
		if n := len(s.openings); s.governor.Mode() != Off || n < 12 {
			t.Errorf("mode %s, %d looks in two hours", s.governor.Mode(), n)
		}
	}
}

// mustHaveWindows asserts that probes were opened at least every minute and a half.
func (s *simulation) mustHaveWindows(t *testing.T, from, to float64) {
	t.Helper()
	last := from
	for _, at := range append(s.openings, to) {
		if at >= from && at-last > 90 {
			t.Errorf("no window between %.1f and %.1f s", last, at)
		}
		last = max(last, at)
	}
}

func TestWindowsThatComeEarlyByChanceWaitForRoom(t *testing.T) {
	for seed := range uint64(4) {
		l := trainer()
		l.calls, l.tensors, l.faults = 4*l.calls, 0, 0
		s := simulate(t, all(seed), constant(l))
		s.own = 0 // all of the budget is for windows
		s.run(t, 3600)
		s.mustKeepToLimit(t, 0, 3600)
		s.mustHaveWindows(t, 1, 3600)
		lengths := s.lengths()[1:] // the first was not a window
		slices.Sort(lengths)
		if few := lengths[len(lengths)/20]; few < 0.9*lengths[len(lengths)/2] {
			t.Errorf("a twentieth of the windows was closed after %.2f s, half after %.2f s", few, lengths[len(lengths)/2])
		}
	}
}

// lengths of the times in which probes of heap were open, in seconds.
func (s *simulation) lengths() []float64 {
	var lengths []float64
	for i, isOpen := range s.isOpen {
		switch {
		case isOpen && (i == 0 || !s.isOpen[i-1]):
			lengths = append(lengths, tick)
		case isOpen:
			lengths[len(lengths)-1] += tick
		}
	}
	return lengths
}

func TestWindowsThatAreTooMuchAreGivenUpUntilALookTellsOtherwise(t *testing.T) {
	for seed := range uint64(4) {
		o := all(seed)
		o.Limit, o.Tensor = 0.001, false
		s := simulate(t, o, func(at float64) load {
			l := load{cores: 1, isBound: true, calls: 5_000}
			if at >= 300 && at < 1200 {
				l.calls = 1e6
			}
			return l
		})
		s.own = 0
		if s.run(t, 290); s.governor.Mode() != Windows {
			t.Errorf("at 5,000 calls a second: %s, want windows", s.governor.Mode())
		}
		if s.run(t, 900); s.governor.Mode() != Off {
			t.Errorf("at a million: %s, want off", s.governor.Mode())
		}
		s.run(t, 20)
		for n := len(s.openings); len(s.openings) == n; {
			s.run(t, 1)
		}
		if s.run(t, 1); s.governor.Mode() != Windows {
			t.Errorf("after a look at 5,000 again: %s, want windows", s.governor.Mode())
		}
	}
}
