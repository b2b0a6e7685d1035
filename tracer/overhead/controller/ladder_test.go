package controller

import (
	"math"
	"strings"
	"testing"
)

func TestSteadyProgramsAreNotTossedAboutOnTheLadder(t *testing.T) {
	for calls := 1000.0; calls < 4e6; calls *= 1.7 {
		l := trainer()
		l.calls, l.tensors, l.bytes, l.tensorBytes = calls, calls/10, 400*calls, 800*calls
		s := simulate(t, all(1), constant(l)).run(t, 1800)
		if n := len(s.changesBetween(10, 1800)); n > 3 {
			t.Errorf("%.0f calls a second: %d changes in half an hour: %v", calls, n, s.changes)
		}
		s.mustKeepToLimit(t, 0, 1800)
		if s.governor.Mode() != Full {
			s.mustHaveWindows(t, 5, 1800)
		}
	}
}

func TestAProgramThatIsNowCheapAndNowDearTeachesPatience(t *testing.T) {
	for _, period := range []float64{20, 60, 200, 600} {
		l := func(at float64) load {
			l := trainer()
			if math.Mod(at, period) < period/2 {
				l.calls, l.tensors, l.bytes, l.tensorBytes = 1000, 100, 1e6, 1e6
			}
			return l
		}
		s := simulate(t, all(2), l).run(t, 2*3600)
		if n := len(s.changesBetween(3600, 7200)); n > 20 {
			t.Errorf("period %v s: %d changes in the second hour", period, n)
		}
		if n := len(s.changes); n > 60 {
			t.Errorf("period %v s: %d changes in two hours", period, n)
		}
	}
}

func TestEveryCallIsWatchedAgainOnlyWithRoomToSpare(t *testing.T) {
	// Windows first, by a dear minute; afterwards a steady rate.
	mode := func(calls float64) Mode {
		s := simulate(t, Options{Heap: true, Limit: 0.03, Seed: 3}, func(at float64) load {
			if at < 60 {
				return load{cores: 1, isBound: true, calls: 500_000}
			}
			return load{cores: 1, isBound: true, calls: calls}
		})
		s.own = 0
		return s.run(t, 1500).governor.Mode()
	}
	// 900 ns a call: 1.2 % and 2.4 % of 3 %.
	if m := mode(13_000); m != Full {
		t.Errorf("at 40 %% of the limit: %s, want full", m)
	}
	if m := mode(26_000); m != Windows {
		t.Errorf("at 80 %% of the limit: %s, want windows", m)
	}
}

func TestChangesSayWhatIsDoneAndWhy(t *testing.T) {
	s := simulate(t, all(1), func(at float64) load {
		if at < 200 {
			return trainer()
		}
		return sleeper()
	}).run(t, 500)
	want := []struct{ mode, text string }{
		{"full", "steps timed: every call is probed"},
		{"windows", "of the traced CPU time ("},
		{"windows", "tensor probes take less than half of the budget: open all the time"},
		{"full", "every call is probed again"},
	}
	if len(s.changes) != len(want) {
		t.Fatalf("changes %v", s.changes)
	}
	for i, c := range s.changes {
		if string(c.Mode) != want[i].mode || !strings.Contains(c.Text, want[i].text) {
			t.Errorf("change to %s: %q, want to %s: %q", c.Mode, c.Text, want[i].mode, want[i].text)
		}
	}
	if c := s.governor.Changes(); len(c) != 0 {
		t.Errorf("changes told twice: %v", c)
	}
}

func TestNumbersInChangesAreReadable(t *testing.T) {
	for got, want := range map[string]string{
		percent(0.414): "41 %", percent(0.0123): "1.2 %", percent(999): "more than 1000 %", percent(0.0996): "10 %",
		calls(450_123): "450 k calls/s", calls(1.25e6): "1.2 M calls/s", calls(2_840): "2.8 k calls/s", calls(12): "12 calls/s",
		calls(999_600): "1.0 M calls/s", span(0.5): "0.5 s", span(28.4): "28 s", size(512 << 10): "512 KiB", size(4 << 20): "4 MiB",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestThreeCalmWindowsThatFollowEachOtherSoonAreEnough(t *testing.T) {
	for seed := range uint64(4) {
		s := simulate(t, Options{Heap: true, Limit: 0.03, Seed: seed}, func(at float64) load {
			if at < 700 {
				return trainer()
			}
			return sleeper()
		}).run(t, 900)
		calm := s.openSince(700)
		if n := len(calm); s.governor.Mode() != Full || n != 4 { // three, and the opening for good
			t.Fatalf("mode %s, openings %v", s.governor.Mode(), calm)
		}
		for i, gap := range s.spacings(700, 900)[:2] {
			if gap > 3.2*shortestPause+2 {
				t.Errorf("%.1f s from calm window %d to the next", gap, i+1)
			}
		}
	}
}
