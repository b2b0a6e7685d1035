package controller

import (
	"math"
	"testing"
)

func TestTensorsAreWatchedAllTheTimeWhereTheyFit(t *testing.T) {
	l := trainer()
	l.tensors, l.tensorBytes = 4_000, 50e6
	s := simulate(t, all(1), constant(l))
	s.run(t, 300)
	if !s.wanted.Tensor || s.governor.Mode() != Windows {
		t.Errorf("mode %s, tensors open: %v; %v", s.governor.Mode(), s.wanted.Tensor, s.changes)
	}
	s.mustKeepToLimit(t, 0, 300)
	l.tensors *= 20
	s.load = constant(l)
	if s.run(t, 60); s.governor.tensor.alone {
		t.Errorf("twenty times as many are still watched all the time: %v", s.changes)
	}
}

func TestTensorsThatTakeTooMuchAreWatchedInWindowsOfHeap(t *testing.T) {
	s := simulate(t, all(1), constant(trainer())).run(t, 300)
	if s.governor.tensor.alone || s.governor.Mode() != Windows {
		t.Errorf("mode %s, tensors alone: %v", s.governor.Mode(), s.governor.tensor.alone)
	}
}

func TestAStormOfTensorsClosesTheirProbes(t *testing.T) {
	l := trainer()
	l.tensors, l.tensorBytes = 4_000, 50e6
	s := simulate(t, all(1), func(at float64) load {
		if at >= 100 {
			l.tensors = 500_000
		}
		return l
	})
	s.run(t, 100)
	if !s.governor.tensor.alone {
		t.Fatal("tensors are not watched all the time")
	}
	if s.run(t, 1); s.governor.tensor.alone {
		t.Error("a second into the storm the probes of tensors are open")
	}
}

func TestTensorsWithoutHeapHaveTheWholeLadder(t *testing.T) {
	o := all(1)
	o.Heap = false
	s := simulate(t, o, constant(trainer())).run(t, 300)
	s.mustKeepToLimit(t, 0, 300)
	if s.governor.Mode() != Windows || s.wanted.Heap || len(s.changes) != 2 || s.changes[1].Text[:6] != "tensor" {
		t.Errorf("mode %s, heap open: %v, changes %v", s.governor.Mode(), s.wanted.Heap, s.changes)
	}
}

func TestWithoutSourcesNothingIsOpened(t *testing.T) {
	o := all(1)
	o.Heap, o.Tensor = false, false
	s := simulate(t, o, constant(trainer())).run(t, 60)
	if s.wanted.Heap || s.wanted.Tensor || s.governor.Mode() != Off || len(s.changes) != 0 {
		t.Errorf("mode %s, decision %+v, changes %v", s.governor.Mode(), s.wanted, s.changes)
	}
}

func TestTheIntervalOfTheUserIsKept(t *testing.T) {
	for _, interval := range []uint64{1, 64 << 10, 64 << 20} {
		o := all(1)
		o.Interval = interval
		s := simulate(t, o, constant(trainer()))
		for range 120 {
			if s.run(t, 1); s.wanted.Interval != interval || s.wanted.TensorInterval != interval {
				t.Fatalf("interval %d and %d, asked for %d", s.wanted.Interval, s.wanted.TensorInterval, interval)
			}
		}
		s.mustKeepToLimit(t, 0, 60)
	}
}

func TestWindowsHaveTheFinestIntervalThatIsCheapBesideTheTraps(t *testing.T) {
	for _, bytes := range []float64{1e6, 30e6, 600e6, 10e9} {
		l := trainer()
		l.tensors, l.bytes, l.tensorBytes = 0, bytes, 0
		s := simulate(t, all(1), constant(l)).run(t, 400)
		interval := s.wanted.Interval
		traps := 1e-9 * usual.Entry * l.calls
		walking := func(interval uint64) float64 { return bytes / float64(interval) * (walkPrice + samplePrice*1e-9) }
		if s.governor.Mode() != Windows || walking(interval) > mostWindowWalking*traps && interval < defaultInterval {
			t.Errorf("%.0f MB/s: mode %s, stacks take %.2f of what traps take at %d bytes", bytes/1e6, s.governor.Mode(), walking(interval)/traps, interval)
		}
		if interval > finestInterval && walking(interval/4) < mostWindowWalking*traps {
			t.Errorf("%.0f MB/s: one in %d bytes, a quarter would be cheap too", bytes/1e6, interval)
		}
	}
}

func TestTheIntervalIsLargerWhereStacksAreWhatCosts(t *testing.T) {
	l := load{cores: 1, isBound: true, calls: 5_000, bytes: 3e9}
	s := simulate(t, all(1), constant(l)).run(t, 300)
	if s.governor.Mode() != Full || s.wanted.Interval <= defaultInterval || s.part(10, 300) != 1 {
		t.Errorf("mode %s, interval %d, changes %v", s.governor.Mode(), s.wanted.Interval, s.changes)
	}
	s.mustKeepToLimit(t, 0, 300)
	l.bytes = 1e6
	s.load = constant(l)
	if s.run(t, 3600); s.wanted.Interval != defaultInterval {
		t.Errorf("interval %d long after the bytes became few", s.wanted.Interval)
	}
	if n := len(s.changes); n > 10 {
		t.Errorf("%d changes", n)
	}
}

func TestFewLargeTensorsAreSampledLess(t *testing.T) {
	l := trainer()
	l.tensors, l.bytes, l.tensorBytes = 1_000, 20e6, 2e9
	s := simulate(t, all(1), constant(l)).run(t, 300)
	if !s.governor.tensor.alone || s.wanted.TensorInterval <= defaultInterval {
		t.Errorf("alone: %v, one in %d bytes, changes %v", s.governor.tensor.alone, s.wanted.TensorInterval, s.changes)
	}
	s.mustKeepToLimit(t, 0, 300)
}

func TestTheIntervalDoesNotFollowEveryWhim(t *testing.T) {
	s := simulate(t, all(1), func(at float64) load {
		l := load{cores: 1, isBound: true, calls: 5_000, bytes: 1e6}
		if math.Mod(at, 60) < 30 {
			l.bytes = 1.2e9
		}
		return l
	}).run(t, 3600)
	if n := len(s.changes); n > 13 || s.governor.Mode() != Full {
		t.Errorf("mode %s, %d changes in an hour", s.governor.Mode(), n)
	}
}
