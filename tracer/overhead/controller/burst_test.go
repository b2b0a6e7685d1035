package controller

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/allocscope/allocscope/growth"
)

// resonance is the length of the mean phase vector of times in a period: 1 if all agree, about
// 1/sqrt(n) if none do.
func resonance(times []float64, period float64) float64 {
	var x, y float64
	for _, at := range times {
		sin, cos := math.Sincos(2 * math.Pi * at / period)
		x, y = x+cos, y+sin
	}
	return math.Hypot(x, y) / float64(len(times))
}

func TestBurstTimes(t *testing.T) {
	t.Run("resonate with no period", func(t *testing.T) {
		heavy := trainer()
		heavy.calls *= 3 // bursts have to wait for room in the minute
		for name, l := range map[string]load{"trainer": trainer(), "heavy": heavy} {
			times := simulate(all(4), constant(l)).run(t, 4*3600).openingsSince(700)
			if len(times) < 300 {
				t.Fatalf("%s: %d bursts in four hours", name, len(times))
			}
			// By chance one of 1,800 runs exceeds this in one of the 5,000 periods.
			most := 4 / math.Sqrt(float64(len(times)))
			for period := 0.01; period < 60; period *= 1.0017 {
				if r := resonance(times, period); r > most {
					t.Errorf("%s: resonance of %d bursts with a period of %.3f s is %.2f, at most %.2f",
						name, len(times), period, r, most)
				}
			}
		}
	})

	t.Run("have exponential spacings", func(t *testing.T) {
		spacings := simulate(all(5), constant(trainer())).run(t, 2*3600).spacings(700)
		var sum float64
		for _, gap := range spacings {
			sum += gap
		}
		mean := sum / float64(len(spacings))
		var deciles [10]int
		for _, gap := range spacings {
			deciles[int(10*(1-math.Exp(-gap/mean)))]++
		}
		if slices.Min(deciles[:]) < len(spacings)/40 || slices.Max(deciles[:]) > len(spacings)/4 {
			t.Errorf("%d spacings by tenths: %v", len(spacings), deciles)
		}
	})

	t.Run("depend on the seed alone", func(t *testing.T) {
		times := func(seed uint64) string {
			return fmt.Sprint(simulate(all(seed), constant(trainer())).run(t, 300).openings)
		}
		if first, again := times(1), times(1); first != again || first == times(2) {
			t.Error("other times for the same seed, or the same for another")
		}
	})

	t.Run("fit a short trace", func(t *testing.T) {
		o := all(6)
		o.Duration, o.Maturity = 60*time.Second, 12*time.Second
		s := simulate(o, constant(trainer())).run(t, 60)
		if n := len(s.openingsSince(5)); n < 3 {
			t.Errorf("%d bursts in a minute, want the three that evidence needs: %v", n, s.openings)
		}
	})
}

func TestBurstLength(t *testing.T) {
	t.Run("is shorter under a small limit", func(t *testing.T) {
		l := trainer()
		o := all(7)
		o.Limit = 0.01
		l.faults = 0
		s := simulate(o, constant(l))
		s.own = 0
		s.run(t, 900).mustBeIn(t, growth.HeapBursts)
		s.mustKeepToLimit(t, 60, 900)
		s.mustHaveBursts(t, 60, 900)
		totals := s.controller.Totals()
		if length := totals.Open.Seconds() / float64(totals.Bursts); length > 0.45 || length < 0.1 {
			t.Errorf("bursts of %.2f s", length)
		}
	})

	t.Run("is as planned, also of bursts that come early by chance", func(t *testing.T) {
		for seed := range uint64(4) {
			l := trainer()
			l.calls, l.tensors, l.faults = 4*l.calls, 0, 0
			s := simulate(all(seed), constant(l))
			s.own = 0 // all of the budget is for bursts
			s.run(t, 3600)
			s.mustKeepToLimit(t, 0, 3600)
			s.mustHaveBursts(t, 1, 3600)

			var lengths []float64
			for i, isOpen := range s.isOpen {
				switch {
				case isOpen && (i == 0 || !s.isOpen[i-1]):
					lengths = append(lengths, tick)
				case isOpen:
					lengths[len(lengths)-1] += tick
				}
			}
			lengths = lengths[1:] // mode full
			slices.Sort(lengths)
			if short, median := lengths[len(lengths)/20], lengths[len(lengths)/2]; short < 0.9*median {
				t.Errorf("a twentieth of the bursts was closed after %.2f s, half after %.2f s",
					short, median)
			}
		}
	})
}

func TestTotals(t *testing.T) {
	s := simulate(all(8), constant(trainer())).run(t, 600)
	totals, inProbes, open := s.controller.Totals(), last(s.cost), 600*s.openShare(0, 600)
	if math.Abs(totals.InProbes.Seconds()/inProbes-1) > 0.02 {
		t.Errorf("probes took %v, really %.3f s", totals.InProbes, inProbes)
	}
	if totals.Bursts != len(s.openings)-1 { // the first was mode full
		t.Errorf("%d bursts, really %d", totals.Bursts, len(s.openings)-1)
	}
	if math.Abs(totals.Open.Seconds()/open-1) > 0.1 {
		t.Errorf("open for %v, really %.1f s", totals.Open, open)
	}
}
