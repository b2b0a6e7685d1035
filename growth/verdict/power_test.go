package verdict

import (
	"fmt"
	"slices"
	"testing"
)

// How often verdicts are wrong, measured on simulated histories of which the truth is known.

var noLeak = []float64{0} // percent per minute

// A tally counts, by family and in all, how many of the cases are so.
type tally map[string]*struct{ so, of int }

const inAll = "in all"

func (t tally) count(family string, so bool) {
	for _, name := range []string{family, inAll} {
		if t[name] == nil {
			t[name] = &struct{ so, of int }{}
		}
		t[name].of++
		if so {
			t[name].so++
		}
	}
}

func (t tally) percent(name string) float64 {
	return 100 * float64(t[name].so) / float64(t[name].of)
}

// atMost and atLeast check the percentage in all, and the percentage of each family, which has
// fewer cases, against a wider limit.
func (t tally) atMost(test *testing.T, what string, all, each float64) {
	test.Helper()
	t.report(test, what, func(percent, limit float64) bool { return percent <= limit }, all, each)
}

func (t tally) atLeast(test *testing.T, what string, all, each float64) {
	test.Helper()
	t.report(test, what, func(percent, limit float64) bool { return percent >= limit }, all, each)
}

func (t tally) report(
	test *testing.T,
	what string,
	good func(percent, limit float64) bool,
	all, each float64,
) {
	test.Helper()
	test.Logf("%s: %d of %d, %.2f %%", what, t[inAll].so, t[inAll].of, t.percent(inAll))
	for name, counts := range t {
		limit := each
		if name == inAll {
			limit = all
		}
		if percent := t.percent(name); !good(percent, limit) {
			test.Errorf("%s, %s: %d of %d, %.2f %%; the limit is %v %%", what, name, counts.so,
				counts.of, percent, limit)
		}
	}
}

func (h history) judgedLeak() bool {
	return Judge(h.series, h.setting, InSeconds()).Class == ClassLeak
}

func TestPower(t *testing.T) {
	t.Run("false alarms", func(t *testing.T) {
		t.Parallel()
		alarms := tally{}
		for f, h := range histories(150, decidable, durations, noLeak, 1e6) {
			alarms.count(f.name, h.judgedLeak())
		}
		alarms.atMost(t, "false alarms", 0.3, 1)
	})

	// The same series once with the mark of the first epoch's end and once without.
	t.Run("false alarms of slow fills with an epoch mark", func(t *testing.T) {
		t.Parallel()
		with, without := tally{}, tally{}
		for f, h := range histories(40, marked, durations, noLeak, 2e6) {
			with.count(f.name, h.judgedLeak())
			h.setting.EpochEnd, h.setting.Cycle = nil, 0
			without.count(f.name, h.judgedLeak())
		}
		with.atMost(t, "false alarms with the mark", 1, 1)
		without.atLeast(t,
			"false alarms without the mark, which therefore are the mark's to prevent", 5, 5)
	})

	t.Run("intervals", func(t *testing.T) {
		t.Parallel()
		held := tally{}
		for f, h := range histories(20, thoseThatSettle(), durations, []float64{0, 0.02, 0.1, 0.5}, 3e6) {
			v := Judge(h.series, h.setting, InSeconds())
			if slices.Contains([]Class{ClassLeak, ClassPlateau, ClassSpikyPlateau}, v.Class) {
				held.count(f.name, v.RateLow <= h.rate && h.rate <= v.RateHigh)
			}
		}
		held.atLeast(t, "true rates within the interval", 98.5, 94)
	})

	t.Run("leaks of 0.1% per minute", func(t *testing.T) {
		t.Parallel()
		found := tally{}
		for f, h := range histories(120, thoseThatSettle(), []float64{fourHours}, []float64{0.1}, 4e6) {
			found.count(f.name, h.judgedLeak())
		}
		found.atLeast(t, "leaks found", 95, 70)
	})

	t.Run("spiky plateaus", func(t *testing.T) {
		t.Parallel()
		known := tally{}
		for f, h := range histories(120, named("spiky", "ramp+spiky"), []float64{fourHours}, noLeak, 5e6) {
			known.count(f.name, Judge(h.series, h.setting, InSeconds()).Class == ClassSpikyPlateau)
		}
		known.atLeast(t, "spiky plateaus", 85, 80)
	})

	// A program of uneven speed: a constant leak, and a fill that slows down.
	t.Run("short series", func(t *testing.T) {
		t.Parallel()
		falsely, known := tally{}, tally{}
		for seed := range uint64(300) {
			for _, seconds := range []int{14, 30, 60, 120, 200, 300} {
				name := fmt.Sprintf("%d s", seconds)
				falsely.count(name, saturates(unevenLeak(seconds, seed)))
				if seconds == 300 {
					known.count(name, saturates(unevenFill(seconds, seed)))
				}
			}
		}
		falsely.atMost(t, "constant leaks called saturating", 2, 4)
		known.atLeast(t, "fills called saturating", 85, 85)
	})

	t.Run("false alarms of rechecks", func(t *testing.T) {
		t.Parallel()
		alarms := tally{}
		for f, h := range histories(30, decidable, []float64{fourHours}, noLeak, 6e6) {
			alarms.count(f.name, h.alarmed())
		}
		alarms.atMost(t, "false alarms of many checks", 1.5, 10)
	})

	// Other families begin to leak so late that four hours leave no time for three rechecks.
	t.Run("leaks found by rechecks", func(t *testing.T) {
		t.Parallel()
		found := tally{}
		steady := named("flat", "spiky", "sawtooth", "slow-drift", "1/f-noise", "ramp+flat",
			"ramp+spiky", "heavy-tails", "mix")
		for f, h := range histories(20, steady, []float64{fourHours}, []float64{0.1}, 7e6) {
			found.count(f.name, h.alarmed())
		}
		found.atLeast(t, "leaks found by many checks", 85, 70)
	})
}

func saturates(h history) bool {
	return Judge(h.series, h.setting, InSeconds()).Class == ClassSaturating
}

// alarmed says whether a monitor that checks repeatedly while a history goes on raises the
// alarm.
func (h history) alarmed() bool {
	criteria := InSeconds().Repeated()
	rechecks := NewRechecks(criteria)
	for i, at := range h.series.X {
		if rechecks.Due(at - h.series.X[0]) {
			known := h.setting
			if known.Start != nil && *known.Start > at {
				known.Start = nil
			}
			if rechecks.Add(Judge(Series{X: h.series.X[:i+1], Y: h.series.Y[:i+1]}, known, criteria)) {
				return true
			}
		}
	}
	return false
}
