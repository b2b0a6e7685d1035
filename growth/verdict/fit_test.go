package verdict

import (
	"math"
	"math/rand/v2"
	"testing"
)

// curve is a base of 96 points over 950 s, u running from 0 to 1.
func curve(of func(u float64) float64, noise float64) envelope {
	random := rand.New(rand.NewPCG(17, 18))
	var b envelope
	for i := range 96 {
		b.x = append(b.x, 1000+10*float64(i))
		b.y = append(b.y, of(float64(i)/95)+noise*random.NormFloat64())
	}
	return b
}

// lateWarmUp waits for a ninth of the trace, warms up for a fifth, and then leaks.
func lateWarmUp(u float64) float64 {
	since := max(u-.11, 0)
	return 1e8 + 2e9*min(since/.2, 1) + 2e9*since
}

func TestFit(t *testing.T) {
	for name, c := range map[string]struct {
		curve func(u float64) float64
		noise float64
		want  fit
	}{
		"constant":          {func(float64) float64 { return 8e9 }, 1e7, fit{kind: curveLine}},
		"line":              {func(u float64) float64 { return 8e9 + 1e9*u }, 1e7, fit{kind: curveLine}},
		"falling":           {func(u float64) float64 { return 8e9 + 1e9*math.Exp(-u/.3) }, 1e6, fit{kind: curveChangePoint}},
		"exponential":       {func(u float64) float64 { return 8e9 - 2e9*math.Exp(-u/.3) }, 1e7, fit{kind: curveExponential, scale: .3}},
		"logarithm":         {func(u float64) float64 { return 8e9 + 2e9*math.Log1p(u/.03) }, 1e7, fit{kind: curveLogarithm, scale: .03}},
		"settling":          {func(u float64) float64 { return 8e9 + 2e9*u - 2e9*math.Exp(-u/.05) }, 1e7, fit{kind: curveSettling, scale: .05}},
		"slowdown":          {func(u float64) float64 { return 8e9 + 2e9*min(u, .4) }, 1e7, fit{kind: curveChangePoint, changePoint: 38}},
		"late":              {func(u float64) float64 { return 8e9 + 2e9*max(u, .4) }, 1e7, fit{kind: curveChangePoint, changePoint: 38}},
		"jump":              {func(u float64) float64 { return 8e9 + 2e9*math.Floor(u+.5) }, 1e7, fit{kind: curveChangePoint, changePoint: 48}},
		"late, then slower": {lateWarmUp, 5e6, fit{kind: curveChangePoint, changePoint: 11}},
		"late, then curved": {func(u float64) float64 { return 8e9 - 2e9*math.Exp(-max(u-.05, 0)/.3) }, 1e7, fit{kind: curveExponential, scale: .3}},
		// A step that samples and steps make between them, and one that is more.
		"ragged":  {func(u float64) float64 { return 1e9 + 1e9*u + 15e6*math.Floor(u+.5) }, 1e3, fit{kind: curveLine}},
		"stepped": {func(u float64) float64 { return 8e9 + 1e9*u + 5e7*math.Floor(u+.5) }, 1e3, fit{kind: curveChangePoint, changePoint: 48}},
		// Of a curve the residuals follow each other: they are worth too few points for a change
		// point.
		"bent": {func(u float64) float64 { return 8e9 + 1e9*math.Pow(u, 1.7) }, 1e5, fit{kind: curveLine}},
		// A few KiB are no shape.
		"tiny": {func(u float64) float64 { return 1e6 - 5e3*math.Exp(-u/.2) }, 0, fit{kind: curveLine}},
	} {
		t.Run(name, func(t *testing.T) {
			got := fitOf(curve(c.curve, c.noise))
			if got.kind != c.want.kind || got.scale != c.want.scale ||
				c.want.changePoint > 0 &&
					!near(float64(got.changePoint), float64(c.want.changePoint), 2) {
				t.Errorf("%+v, want %+v", got, c.want)
			}
		})
	}
}

// The same, upside down.
func TestFitOfLateRise(t *testing.T) {
	late := curve(func(u float64) float64 { return 8e9 + 1e9*max(0, u-.75) }, 2e7)
	fall := envelope{x: late.x}
	for _, y := range late.y {
		fall.y = append(fall.y, 16e9-y)
	}
	if s := fitOf(late); s.kind == curveChangePoint {
		t.Error("a rise in this noise is taken for one")
	}
	if s := fitOf(fall); s.kind != curveChangePoint {
		t.Errorf("a fall is taken for %+v", s)
	}
}

func TestPlaneThroughCollinear(t *testing.T) {
	p, y := []float64{1, 2, 3, 4, 5}, []float64{7, 6, 13, 9, 2}
	for name, column := range map[string][]float64{
		"twice the first": {2, 4, 6, 8, 10}, "constant": {3, 3, 3, 3, 3},
	} {
		if f, solved := planeThrough(p, column, y); solved {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

// The running sums against a fit of each part for itself.
func TestChangePoint(t *testing.T) {
	b := curve(func(u float64) float64 { return 1e9 * math.Sin(5*u) }, 2e8)
	changePoint, found := changePointOf(b)
	best, at := math.Inf(1), 0
	for k := 4; k <= 92; k++ {
		before, behind := lineThrough(b.x[:k], b.y[:k]), lineThrough(b.x[k:], b.y[k:])
		if s := before.squares(b.x[:k], b.y[:k]) + behind.squares(b.x[k:], b.y[k:]); s < best {
			best, at = s, k
		}
	}
	if !found || changePoint.changePoint != at || !near(changePoint.squares, best, 1e-6*best) {
		t.Errorf("%d with %v, want %d with %v", changePoint.changePoint, changePoint.squares, at,
			best)
	}
	if _, found := changePointOf(envelope{x: b.x[:6], y: b.y[:6]}); found {
		t.Error("two lines through 6 points")
	}
}
