package verdict

import (
	"math"
	"slices"
	"testing"
)

func TestEnvelope(t *testing.T) {
	// The envelope of 8 GB under spikes that take most of every bucket, and all of some.
	t.Run("without spikes", func(t *testing.T) {
		for name, c := range map[string]struct {
			n     int
			spike func(i int) bool
		}{
			"short spikes":      {2000, func(i int) bool { return i%50 == 0 }},
			"mostly spikes":     {2000, func(i int) bool { return i%20 < 12 }},
			"a block and more":  {2000, func(i int) bool { return i%500 >= 100 && i%500 < 160 }},
			"two of three":      {72, func(i int) bool { return i%3 > 0 }},
			"single samples":    {60, func(i int) bool { return i%4 == 1 }},
			"a rough beginning": {2000, func(i int) bool { return i < 20 }},
		} {
			t.Run(name, func(t *testing.T) {
				s := simulated(0, 8e9, float64(10*c.n), 8e9)
				spikes := 0
				for i := range s.Y {
					if c.spike(i) {
						s.Y[i] += 3e9
						spikes++
					}
				}
				b := envelopeOf(s)
				for i := range b.x {
					if !near(b.y[i], 8e9, 2e6) {
						t.Errorf("%v at %v, want 8e9", b.y[i], b.x[i])
					}
				}
				if share := float64(spikes) / float64(c.n); !near(b.spikes.Share, share, 1e-9) ||
					!near(b.spikes.Height, 3e9, 2e6) {
					t.Errorf("%+v, want a share of %v and a height of 3e9", b.spikes, share)
				}
				for i, x := range s.X {
					within := slices.ContainsFunc(b.spikes.Spans,
						func(p Span) bool { return p.From <= x && x <= p.To })
					if within != c.spike(i) {
						t.Errorf("sample %d lies in a span of spikes: %v", i, within)
					}
				}
			})
		}
	})

	t.Run("a ramp is no spike", func(t *testing.T) {
		b := envelopeOf(simulated(0, 1e9, 20_000, 11e9))
		if len(b.x) < 85 || b.spikes.Share != 0 {
			t.Errorf("%d of 96 buckets are left, spikes: %+v", len(b.x), b.spikes)
		}
		for i := range b.x {
			if want := 1e9 + 5e5*b.x[i]; !near(b.y[i], want, 2e6) {
				t.Errorf("%v at %v, want %v", b.y[i], b.x[i], want)
			}
		}
	})

	t.Run("a bucket with few samples near the envelope is left out", func(t *testing.T) {
		s := simulated(0, 8e9, 96_000, 8e9) // 100 samples a block
		for i := 1000; i < 1095; i++ {
			s.Y[i] += 3e9
		}
		if b := envelopeOf(s); len(b.x) != 95 {
			t.Errorf("%d blocks, want all of 96 but one", len(b.x))
		}
	})

	t.Run("a gap in time is no point", func(t *testing.T) {
		before, after := simulated(0, 8e9, 3000, 8e9), simulated(20_000, 8e9, 23_000, 8e9)
		b := envelopeOf(Series{X: append(before.X, after.X...), Y: append(before.Y, after.Y...)})
		for i := range b.x {
			if b.x[i] > 3000 && b.x[i] < 20_000 || math.IsInf(b.y[i], 0) ||
				!near(b.y[i], 8e9, 2e6) {
				t.Errorf("%v at %v", b.y[i], b.x[i])
			}
		}
		if len(b.x) < 10 || b.spikes.Share != 0 {
			t.Errorf("%d points, spikes %+v", len(b.x), b.spikes)
		}
	})

	t.Run("few samples of one moment are one point", func(t *testing.T) {
		b := envelopeOf(Series{
			X: []float64{0, 1, 1, 1, 2, 3, 3, 4},
			Y: []float64{100, 103, 101, 102, 100, 100, 102, 100},
		})
		x, y := []float64{0, 1, 2, 3, 4}, []float64{100, 102, 100, 101, 100}
		if !slices.Equal(b.x, x) || !slices.Equal(b.y, y) {
			t.Errorf("%v at %v, want %v at %v", b.y, b.x, y, x)
		}
	})
}
