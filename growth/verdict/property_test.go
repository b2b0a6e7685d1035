package verdict

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
)

// examples are simulated series of all kinds.
func examples(t testing.TB) map[string]Series {
	t.Helper()
	files, err := filepath.Glob(
		filepath.Join("..", "..", "testdata", "series", "vectors", "v*.csv"),
	)
	if err != nil || len(files) == 0 {
		t.Fatal(err, files)
	}
	all := map[string]Series{}
	for _, file := range files {
		all[filepath.Base(file)] = seriesIn(t, filepath.Join("vectors", filepath.Base(file)))
	}
	return all
}

// sameVerdict compares the fields that do not depend on rounding, after the sizes of want were
// multiplied and its X moved.
func sameVerdict(t *testing.T, got, want Verdict, factor, shift float64) {
	t.Helper()
	if got.Class != want.Class || got.Reason != want.Reason || len(got.Phases) != len(want.Phases) {
		t.Fatalf("%+v, want %+v", got, want)
	}
	wide := 1e-6 * factor * (want.RateHigh - want.RateLow)
	for _, c := range []struct {
		name                 string
		got, want, tolerance float64
	}{
		{"rate", got.Rate, want.Rate * factor, wide},
		{"low", got.RateLow, want.RateLow * factor, wide},
		{"high", got.RateHigh, want.RateHigh * factor, wide},
		{"bound", got.Bound, want.Bound * factor, wide},
		{"level", got.Level, want.Level * factor, 1e-6 * want.Level * factor},
		{"from", got.From, want.From + shift, 1e-3},
		{"start", got.Start, want.Start + shift, 1e-3},
		{"length", got.Length, want.Length, 1e-3},
		{"longer", got.Longer, want.Longer, 1e-3 * want.Longer},
	} {
		if !near(c.got, c.want, c.tolerance) {
			t.Errorf("%s is %v, want %v", c.name, c.got, c.want)
		}
	}

	for i, p := range want.Phases {
		if q := got.Phases[i]; q.Kind != p.Kind || !near(q.From, p.From+shift, 1e-3) ||
			!near(q.To, p.To+shift, 1e-3) {
			t.Errorf("phase %+v, want %+v", q, p)
		}
	}
}

func TestJudgeProperties(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	for name, s := range examples(t) {
		want := Judge(s, Setting{}, InSeconds())

		t.Run("twice the size is twice the rate/"+name, func(t *testing.T) {
			double := Series{X: s.X, Y: slices.Clone(s.Y)}
			for i := range double.Y {
				double.Y[i] *= 2
			}
			sameVerdict(t, Judge(double, Setting{}, InSeconds()), want, 2, 0)
		})

		t.Run("the clock's zero changes nothing/"+name, func(t *testing.T) {
			const shift = 1 << 30 // such as seconds since 1970
			later := Series{X: slices.Clone(s.X), Y: s.Y}
			for i := range later.X {
				later.X[i] += shift
			}
			got := Judge(later, Setting{EpochEnd: known(1000 + shift)}, InSeconds())
			sameVerdict(t, got, Judge(s, Setting{EpochEnd: known(1000)}, InSeconds()), 1, shift)
		})

		t.Run("the order of samples and gaps change nothing/"+name, func(t *testing.T) {
			var mixed Series
			for _, i := range random.Perm(len(s.X)) {
				mixed.X = append(mixed.X, s.X[i], s.X[i], math.NaN())
				mixed.Y = append(mixed.Y, s.Y[i], -1, s.Y[i])
			}
			before := slices.Clone(mixed.Y)
			sameVerdict(t, Judge(mixed, Setting{}, InSeconds()), want, 1, 0)
			if !slices.Equal(mixed.Y, before) {
				t.Error("the series itself was changed")
			}
		})

		// A second of one is a minute of the other, and so are the criteria.
		t.Run("a faster process is judged sooner/"+name, func(t *testing.T) {
			fast := Series{X: slices.Clone(s.X), Y: s.Y}
			for i := range fast.X {
				fast.X[i] /= 64
			}
			got := Judge(fast, Setting{}, InSeconds().Faster(64))
			if got.Class != want.Class || got.Reason != want.Reason ||
				!near(got.Rate, want.Rate*64, 1e-4*64*(want.RateHigh-want.RateLow)) {
				t.Errorf("%s (%s) at %v, want %s (%s) at %v", got.Class, got.Reason, got.Rate,
					want.Class, want.Reason, want.Rate*64)
			}
		})
	}
}

// FuzzJudge takes any numbers for a series: two of 8 bytes are a sample.
func FuzzJudge(f *testing.F) {
	for _, name := range []string{"v05_load-fill-flat_30min_0.csv", "v08_ramp-spiky_4h_0.csv", "v22_slow-fill_30min_0.csv", "v01_flat_4h_0.csv"} {
		s := seriesIn(f, filepath.Join("vectors", name))
		var data []byte
		for i := range s.X {
			data = binary.LittleEndian.AppendUint64(data, math.Float64bits(s.X[i]))
			data = binary.LittleEndian.AppendUint64(data, math.Float64bits(s.Y[i]))
		}
		f.Add(data, 0.0, 2e10, 600.0)
		f.Add(data, 7200.0, 0.0, -1.0)
	}
	f.Fuzz(func(t *testing.T, data []byte, age, limit, mark float64) {
		var s Series
		for ; len(data) >= 16; data = data[16:] {
			s.X = append(s.X, math.Float64frombits(binary.LittleEndian.Uint64(data)))
			s.Y = append(s.Y, math.Float64frombits(binary.LittleEndian.Uint64(data[8:])))
		}
		if !(age >= 0 && age < 1e12) || !(limit >= 0 && limit < 1e18) {
			return
		}
		checkPromises(t, Judge(s, Setting{Age: age, Limit: limit}, InSeconds()))
		checkPromises(t, Judge(s, Setting{Start: &mark}, InSteps()))
		checkPromises(t,
			Judge(s, Setting{Age: age, EpochEnd: &mark, Cycle: age}, InSeconds().Repeated()))
	})
}

func TestJudgeHostileSeries(t *testing.T) {
	const huge = 9e18
	nan := math.NaN()
	ramp := func(n int, step, envelope, rise float64) (s Series) {
		for i := range n {
			s.X, s.Y = append(s.X, float64(i)*step), append(s.Y, envelope+rise*float64(i))
		}
		return s
	}
	hard := map[string]Series{
		"nothing": {},
		"nothing but gaps": {
			X: []float64{1, 2, 3, nan, 5, 6}, Y: []float64{nan, -1, math.Inf(1), 4, nan, -7},
		},
		"one moment":        {X: make([]float64, 200), Y: ramp(200, 1, 0, 1e6).Y},
		"one moment of few": {X: make([]float64, 20), Y: ramp(20, 1, 0, 1e6).Y},
		"two moments": {
			X: slices.Concat(make([]float64, 50), ramp(1, 1, 0, 0).X, []float64{9}),
			Y: make([]float64, 52),
		},
		"equal times": {
			X: []float64{0, 100, 100, 200, 300, 300, 400, 500},
			Y: []float64{1e9, 2e9, 1e9, 2e9, 1e9, 5e9, 2e9, 3e9},
		},
		"close times": {
			X: []float64{0, 1e-9, 2e-9, 3e-9, 4e-9, 5e-9, 4000},
			Y: []float64{1, 2e18, 3, 4e18, 5, 6e18, 7},
		},
		"almost the same": {
			X: []float64{0, 5e-320, 1, 2, 3, 4, 5, 6, 7, 8, 9},
			Y: []float64{1e9, 9e9, 2e9, 3e9, 5e9, 8e9, 12e9, 17e9, 23e9, 30e9, 38e9},
		},
		"no size":     ramp(1000, 10, 0, 0),
		"constant":    ramp(1000, 10, 4e9, 0),
		"huge":        ramp(1000, 10, huge, 1e15),
		"huge growth": ramp(1000, 10, 0, huge/1000),
		"no byte":     ramp(1000, 10, 0, 1e-310),
		"one byte":    ramp(1000, 10, 0, 1e-3),
		"long ago":    ramp(1000, 1e14, 1e9, 1e6),
		"a moment":    ramp(1000, 1e-15, 1e9, 1e6),
	}

	for n := range 8 {
		hard["few "+string(rune('0'+n))] = ramp(n, 100, 1e9, 1e6)
	}
	for name, s := range hard {
		t.Run(name, func(t *testing.T) {
			for _, setting := range []Setting{{}, {Limit: 1e19, Age: 1e5}, {EpochEnd: known(3)}, {Start: known(450)}, {Start: known(1e30)}, {Cycle: 1e9}} {
				checkPromises(t, Judge(s, setting, InSeconds()))
			}
		})
	}
}

// checkPromises checks the promises of a verdict on any series.
func checkPromises(t *testing.T, v Verdict) {
	t.Helper()
	if v.Class == "" || v.Reason == "" {
		t.Fatalf("no class or no reason: %+v", v)
	}
	tooShort := v.Reason == ReasonTooShort
	for name, x := range map[string]float64{
		"rate": v.Rate, "low": v.RateLow, "high": v.RateHigh, "bound": v.Bound, "level": v.Level, "level at": v.LevelAt, "length": v.Length, "longer": v.Longer,
	} {
		if math.IsInf(x, 0) || math.IsNaN(x) && !tooShort {
			t.Errorf("%s is %v in %+v", name, x, v)
		}
	}
	if !tooShort && (v.RateLow > v.Rate || v.Rate > v.RateHigh || v.Bound < v.Rate || v.Bound < 0) {
		t.Errorf("the interval does not hold the rate: %+v", v)
	}
	if v.Longer < 0 || v.Length < 0 {
		t.Errorf("a length is negative: %+v", v)
	}
	if leak := v.Class == ClassLeak; math.IsInf(v.ToLimit, 0) ||
		!math.IsNaN(v.ToLimit) && leak &&
			!(v.ToLimitLow <= v.ToLimit && v.ToLimit <= v.ToLimitHigh) {
		t.Errorf("the interval does not hold the time to the limit: %+v", v)
	}
	at := v.Start
	for _, p := range v.Phases {
		if p.From != at || p.To <= p.From || math.IsInf(p.Rate, 0) ||
			math.IsNaN(p.Rate) && !tooShort {
			t.Errorf("phase %+v of %+v", p, v)
		}
		at = p.To
	}
}
