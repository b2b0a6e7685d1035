package controller

import (
	"math"
	"strings"
	"testing"
	"time"
)

// firstOpening in seconds.
func firstOpening(t *testing.T, s *simulation) float64 {
	t.Helper()
	s.run(t, 8)
	if len(s.openings) == 0 {
		t.Fatal("never opened")
	}
	return s.openings[0]
}

func TestStepsAreTimedBeforeTheProbesOpen(t *testing.T) {
	light := func(step float64) func(float64) load {
		return constant(load{cores: 1, isBound: true, calls: 100, tensors: 10, bytes: 1e5, step: step})
	}
	short := all(1)
	short.Duration = 20 * time.Second
	stepless := all(1)
	stepless.Steps = false
	for _, c := range []struct {
		name     string
		s        *simulation
		from, to float64
	}{
		{"short steps: until thirty", simulate(t, all(1), light(0.02)), 0.6, 0.8},
		{"long steps: for five seconds", simulate(t, all(1), light(0.3)), 5, 5.2},
		{"a short trace: for a twentieth of it", simulate(t, short, light(0.3)), 1, 1.2},
		{"none seen: for two seconds", simulate(t, all(1), light(0)), 2, 2.2},
		{"none asked for: not at all", simulate(t, stepless, light(0.02)), 0, 0.01},
	} {
		if at := firstOpening(t, c.s); at < c.from || at > c.to {
			t.Errorf("%s: opened at %.2f s, want %v to %v", c.name, at, c.from, c.to)
		}
	}
}

func TestStepTimesAreThoseOfTheProgram(t *testing.T) {
	s := simulate(t, all(1), constant(load{cores: 1, isBound: true, calls: 10_000, bytes: 1e6, step: 0.02})).run(t, 60)
	totals := s.governor.Totals()
	if before := totals.StepBefore.Seconds(); math.Abs(before/0.02-1) > 1e-3 {
		t.Errorf("before %v, want 20 ms", totals.StepBefore)
	}
	// 10,000 calls of 900 ns, and stacks for 2 of them.
	if slower := totals.StepSince.Seconds()/totals.StepBefore.Seconds() - 1; math.Abs(slower-0.009) > 5e-4 {
		t.Errorf("steps are %.2f %% slower, want 0.9 %%", 100*slower)
	}
}

func TestStepSinceCountsStepsWithAndWithoutProbesByTheirShare(t *testing.T) {
	var s steps
	for range 10 {
		s.add([]Step{{Duration: 100 * time.Millisecond}}, false)
	}
	for i := range 1000 {
		s.add([]Step{{Duration: 100 * time.Millisecond}}, true)
		if i%4 == 0 {
			s.add([]Step{{200 * time.Millisecond, true}}, true)
		}
		if i%50 == 0 {
			s.add([]Step{{time.Minute, i%100 == 0}}, true) // validation
		}
	}
	if s.first() != 0.1 || math.Abs(s.since()-0.120) > 0.002 {
		t.Errorf("before %v s, since %v s, want 0.1 and 0.12", s.first(), s.since())
	}
}

func TestStepsSteerWherePricesAreTooLow(t *testing.T) {
	s := simulate(t, all(1), constant(trainer()))
	s.hidden, s.noise = 4, 0.2
	s.run(t, 600)
	i, j := int(300/tick), int(600/tick)
	if part := (s.cost[j] - s.cost[i]) / (s.native[j] - s.native[i]); part > 1.1*0.03 {
		t.Errorf("after five minutes probes really take %.2f %%", 100*part)
	}
	if !contains(s.changes, "half the budget") {
		t.Errorf("changes %v", s.changes)
	}
	s.mustHaveWindows(t, 1, 600)
}

func TestTrainingThatBecomesSlowerByItselfIsNotHeldAgainstTheProbes(t *testing.T) {
	s := simulate(t, all(1), func(at float64) load {
		l := trainer()
		l.step *= 1 + at/200 // four times as long in the end
		return l
	})
	s.noise = 0.2
	s.run(t, 600)
	if contains(s.changes, "half the budget") {
		t.Errorf("changes %v", s.changes)
	}
}

func TestTheBudgetComesBack(t *testing.T) {
	s := simulate(t, all(1), constant(trainer()))
	s.hidden, s.noise = 4, 0.2
	s.run(t, 300)
	if s.governor.budget.throttle == 1 {
		t.Fatal("it never went")
	}
	s.hidden = 0
	if s.run(t, 3600); s.governor.budget.throttle != 1 {
		t.Errorf("an hour after steps became fast there is %v of it", s.governor.budget.throttle)
	}
}

func contains(changes []Change, text string) bool {
	for _, c := range changes {
		if strings.Contains(c.Text, text) {
			return true
		}
	}
	return false
}

func TestStepsUnderEveryProbeAreNoEvidenceAgainstWindows(t *testing.T) {
	s := simulate(t, all(1), constant(load{cores: 1, isBound: true, calls: 60_000, step: 0.01}))
	for s.governor.Mode() != Windows {
		s.run(t, 0.1)
	}
	if n := s.governor.steps.recentProbed.count; n > 30 {
		t.Errorf("%.0f steps that were slower under every probe count", n)
	}
}
