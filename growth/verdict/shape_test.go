package verdict

import (
	"math"
	"testing"
)

// TestShape has the shape of lines, and the condition of a leak that each does not meet.
func TestShape(t *testing.T) {
	const mib = 1 << 20
	series := func(seconds int, at func(x float64) float64) Series {
		var s Series
		for x := range seconds {
			s.X, s.Y = append(s.X, float64(x)), append(s.Y, mib*(100+at(float64(x))))
		}
		return s
	}
	line := func(x float64) float64 { return x }
	epoch := 250.0

	for name, c := range map[string]struct {
		series  Series
		setting Setting
		lack    Lack
		until   float64
	}{
		"young":       {series(300, line), Setting{Age: 5}, LackWarmup, 1501},
		"old, short":  {series(300, line), Setting{Age: 7200}, LackLength, 301},
		"old, long":   {series(900, line), Setting{Age: 7200}, "", 0},
		"after epoch": {series(300, line), Setting{Age: 5, EpochEnd: &epoch}, LackEpoch, 551},
	} {
		v := Judge(c.series, c.setting, InSeconds())
		s := v.Shape
		if v.Class != ClassGrowing && v.Class != ClassLeak {
			t.Fatalf("%s is %s", name, v.Class)
		}
		if s.Lack != c.lack || math.Abs(s.UntilLeak-c.until) >= 15 || !(s.Misfit <= 0.001) ||
			math.Abs(s.Halves-1) >= 0.05 {
			t.Errorf("%s: %+v, want %q until %v", name, s, c.lack, c.until)
		}
		if (s.Lack == "") != (v.Class == ClassLeak) {
			t.Errorf("%s: is %s and lacks %q", name, v.Class, s.Lack)
		}
	}
}
