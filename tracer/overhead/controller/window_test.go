package controller

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"
)

// openSince are the times at which windows opened after some seconds.
func (s *simulation) openSince(from float64) []float64 {
	return slices.DeleteFunc(slices.Clone(s.openings), func(at float64) bool { return at < from })
}

// resonance is how much times agree with a period: 1 all, about the square root of their number's inverse if not at all.
func resonance(times []float64, period float64) float64 {
	var x, y float64
	for _, at := range times {
		sin, cos := math.Sincos(2 * math.Pi * at / period)
		x, y = x+cos, y+sin
	}
	return math.Hypot(x, y) / float64(len(times))
}

func TestWindowsResonateWithNothing(t *testing.T) {
	heavy := trainer()
	heavy.calls *= 3 // windows have to wait for room in the minute
	for name, l := range map[string]load{"trainer": trainer(), "heavy": heavy} {
		s := simulate(t, all(4), constant(l)).run(t, 4*3600)
		times := s.openSince(700)
		if len(times) < 300 {
			t.Fatalf("%s: %d windows in four hours", name, len(times))
		}
		most := 4 / math.Sqrt(float64(len(times))) // of 5,000 periods none by chance, but for one in 1,800
		for period := 0.01; period < 60; period *= 1.0017 {
			if r := resonance(times, period); r > most {
				t.Errorf("%s: %d windows agree by %.2f with a period of %.3f s, at most %.2f by chance", name, len(times), r, period, most)
			}
		}
	}
}

func TestWindowsComeAsIfByChance(t *testing.T) {
	s := simulate(t, all(5), constant(trainer())).run(t, 2*3600)
	spacings := s.spacings(700, 7200)
	var sum float64
	for _, gap := range spacings {
		sum += gap
	}
	mean := sum / float64(len(spacings))
	var tenths [10]int
	for _, gap := range spacings {
		tenths[int(10*(1-math.Exp(-gap/mean)))]++
	}
	for i, n := range tenths {
		if n < len(spacings)/40 || n > len(spacings)/4 {
			t.Errorf("%d of %d spacings in the %d. tenth: %v", n, len(spacings), i+1, tenths)
		}
	}
}

func TestSeedsGiveOtherTimesAndTheSameSeedTheSame(t *testing.T) {
	times := func(seed uint64) string {
		return fmt.Sprint(simulate(t, all(seed), constant(trainer())).run(t, 300).openings)
	}
	if first, again := times(1), times(1); first != again || first == times(2) {
		t.Error("the times of windows do not depend on the seed alone")
	}
}

func TestShortTracesHaveWindowsToo(t *testing.T) {
	o := all(6)
	o.Duration, o.Maturity = 60*time.Second, 12*time.Second
	s := simulate(t, o, constant(trainer())).run(t, 60)
	s.mustKeepToLimit(t, 0, 0)
	if n := len(s.openSince(5)); n < 3 {
		t.Errorf("%d windows in a minute, want the three that evidence needs: %v", n, s.openings)
	}
}

func TestWindowsAreShorterWhereOneIsTooMuch(t *testing.T) {
	l := trainer()
	o := all(7)
	o.Limit = 0.01
	l.faults = 0
	s := simulate(t, o, constant(l))
	s.own = 0
	s.run(t, 900)
	s.mustKeepToLimit(t, 60, 900)
	s.mustHaveWindows(t, 60, 900)
	totals := s.governor.Totals()
	if length := totals.Open.Seconds() / float64(totals.Windows); s.governor.Mode() != Windows || length > 0.45 || length < 0.1 {
		t.Errorf("mode %s, windows of %.2f s", s.governor.Mode(), length)
	}
}

func TestTotalsAgreeWithWhatHappened(t *testing.T) {
	s := simulate(t, all(8), constant(trainer())).run(t, 600)
	totals, n := s.governor.Totals(), len(s.cost)-1
	if off := math.Abs(totals.InProbes.Seconds()/s.cost[n] - 1); off > 0.02 {
		t.Errorf("probes took %v, really %.3f s", totals.InProbes, s.cost[n])
	}
	if totals.Windows != len(s.openings)-1 { // the first was not a window
		t.Errorf("%d windows, really %d", totals.Windows, len(s.openings)-1)
	}
	if off := math.Abs(totals.Open.Seconds()/(600*s.part(0, 600)) - 1); off > 0.1 {
		t.Errorf("open for %v, really %.1f s", totals.Open, 600*s.part(0, 600))
	}
}
