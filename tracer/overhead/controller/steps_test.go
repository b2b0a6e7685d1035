package controller

import (
	"math"
	"testing"
	"time"

	"github.com/allocscope/allocscope/growth"
)

func TestStepTiming(t *testing.T) {
	light := func(step float64) func(float64) load {
		return constant(load{cores: 1, isBound: true, calls: 100, tensors: 10, bytes: 1e5, step: step})
	}
	short, stepless := all(1), all(1)
	short.Duration = 20 * time.Second
	stepless.Steps = false
	for _, c := range []struct {
		name     string
		s        *simulation
		from, to float64
	}{
		{"short steps: until thirty", simulate(all(1), light(0.02)), 0.6, 0.8},
		{"long steps: for five seconds", simulate(all(1), light(0.3)), 5, 5.2},
		{"a short trace: for a twentieth of it", simulate(short, light(0.3)), 1, 1.2},
		{"no steps: for two seconds", simulate(all(1), light(0)), 2, 2.2},
		{"source off: not at all", simulate(stepless, light(0.02)), 0, 0.01},
	} {
		if at := c.s.run(t, 8).openings; len(at) == 0 || at[0] < c.from || at[0] > c.to {
			t.Errorf("%s: opened at %.2f s, want %v to %v", c.name, at, c.from, c.to)
		}
	}
}

func TestStepTimes(t *testing.T) {
	t.Run("are those of the program", func(t *testing.T) {
		o := all(1)
		o.Interval = defaultInterval
		s := simulate(o, constant(load{
			cores: 1, isBound: true, calls: 10_000, bytes: 1e6,
			step: 0.02,
		})).run(t, 60)
		totals := s.controller.Totals()
		if before := totals.StepBefore.Seconds(); math.Abs(before/0.02-1) > 1e-3 {
			t.Errorf("before %v, want 20 ms", totals.StepBefore)
		}
		// 10,000 calls of 900 ns, and stacks for 2 of them.
		times := totals.StepSince.Seconds() / totals.StepBefore.Seconds()
		if math.Abs(times-1.009) > 5e-4 {
			t.Errorf("steps are %.2f%% slower, want 0.9%%", 100*(times-1))
		}
	})

	t.Run("count with and without probes by their share", func(t *testing.T) {
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
		if s.medianBefore() != 0.1 || math.Abs(s.meanSince()-0.120) > 0.002 {
			t.Errorf("before %v s, since %v s, want 0.1 and 0.12", s.medianBefore(), s.meanSince())
		}
	})
}

func TestThrottle(t *testing.T) {
	slowed := func() *simulation {
		s := simulate(all(1), constant(trainer()))
		s.hidden, s.noise = 4, 0.2
		return s
	}

	t.Run("keeps to the limit where costs are too low", func(t *testing.T) {
		s := slowed().run(t, 600)
		if share := s.costShare(300, 600); share > 1.1*0.03 {
			t.Errorf("after five minutes probes really take %.2f%%", 100*share)
		}
		if len(s.changesFor(growth.OverheadSlowSteps)) == 0 {
			t.Errorf("changes %v", s.changes)
		}
		s.mustHaveBursts(t, 1, 600)
	})

	t.Run("ends when steps are fast again", func(t *testing.T) {
		s := slowed().run(t, 300)
		if s.controller.budget.throttle == 1 {
			t.Fatal("it never began")
		}
		s.hidden = 0
		if s.run(t, 3600); s.controller.budget.throttle != 1 {
			t.Errorf("an hour later it is %v", s.controller.budget.throttle)
		}
	})

	t.Run("ignores training that becomes slower by itself", func(t *testing.T) {
		s := simulate(all(1), func(at float64) load {
			l := trainer()
			l.step *= 1 + at/200 // four times as long in the end
			return l
		})
		s.noise = 0.2
		if s.run(t, 600); len(s.changesFor(growth.OverheadSlowSteps)) != 0 {
			t.Errorf("changes %v", s.changes)
		}
	})

	t.Run("ignores steps of mode full", func(t *testing.T) {
		s := simulate(all(1), constant(load{cores: 1, isBound: true, calls: 60_000, step: 0.01}))
		for s.controller.Mode() != growth.HeapBursts {
			s.run(t, 0.1)
		}
		if n := s.controller.steps.recentProbed.count; n > 30 {
			t.Errorf("%.0f steps that were slower under every probe count", n)
		}
	})
}
