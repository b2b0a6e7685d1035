package growth

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// A steady leak of 1 MB a second, watched for so many seconds.
func steady(seconds float64) Series {
	return simulated([2]float64{0, 20e9}, [2]float64{seconds, 20e9 + 1e6*seconds})
}

func TestGrowthIsALeakOnlyOnceNoWarmupExplainsIt(t *testing.T) {
	for name, c := range map[string]struct {
		series  Series
		setting Setting
		want    Class
	}{
		"a young process, too early":        {steady(1700), Setting{}, ClassGrowing},
		"a young process, long enough":      {steady(1900), Setting{}, ClassLeak},
		"an old process, too early":         {steady(550), Setting{Age: 7200}, ClassGrowing},
		"an old process":                    {steady(700), Setting{Age: 7200}, ClassLeak},
		"the first pass not over":           {steady(1900), Setting{EpochEnd: known(2000)}, ClassGrowing},
		"the first pass just over":          {steady(1900), Setting{EpochEnd: known(1500)}, ClassGrowing},
		"the first pass over long ago":      {steady(1900), Setting{EpochEnd: known(1100)}, ClassLeak},
		"the pass was over before":          {steady(700), Setting{Age: 3000, EpochEnd: known(-1000)}, ClassLeak},
		"less than three epochs":            {steady(1900), Setting{Cycle: 700}, ClassGrowing},
		"three epochs":                      {steady(2200), Setting{Cycle: 700}, ClassLeak},
		"tolerated":                         {steady(1900), Setting{Tolerable: 1.1e6}, ClassPlateau},
		"tolerated or not":                  {steady(1900), Setting{Tolerable: 1.01e6}, ClassTooShort},
		"more than is tolerated":            {steady(1900), Setting{Tolerable: 0.9e6}, ClassLeak},
		"late":                              {simulated([2]float64{0, 20e9}, [2]float64{5400, 20e9}, [2]float64{7000, 21.6e9}), Setting{Age: 7200}, ClassGrowing},
		"late, but long enough ago":         {simulated([2]float64{0, 20e9}, [2]float64{5400, 20e9}, [2]float64{7600, 22.2e9}), Setting{Age: 7200}, ClassLeak},
		"fast and young after a slowdown":   {simulated([2]float64{0, 1e9}, [2]float64{900, 10e9}, [2]float64{2000, 12.2e9}), Setting{}, ClassGrowing},
		"slow and young after a slowdown":   {simulated([2]float64{0, 1e9}, [2]float64{900, 10e9}, [2]float64{2000, 10.2e9}), Setting{}, ClassLeak},
		"slow, but too young":               {simulated([2]float64{0, 1e9}, [2]float64{300, 10e9}, [2]float64{1150, 10.2e9}), Setting{}, ClassGrowing},
		"of an unseen warm-up":              {simulated([2]float64{0, 9e9}, [2]float64{300, 10e9}, [2]float64{1500, 10.2e9}), Setting{Age: 3000}, ClassGrowing},
		"of a short warm-up":                {simulated([2]float64{0, 9e9}, [2]float64{300, 10e9}, [2]float64{1500, 10.2e9}), Setting{Age: 600}, ClassLeak},
		"after a release, not of growth":    {simulated([2]float64{0, 20e9}, [2]float64{5400, 20e9}, [2]float64{5400, 19e9}, [2]float64{7000, 20.6e9}), Setting{Age: 7200}, ClassLeak},
		"fast and old after a slowdown":     {simulated([2]float64{0, 1e9}, [2]float64{900, 10e9}, [2]float64{2300, 12.8e9}), Setting{}, ClassLeak},
		"shorter than half the warm-up":     {simulated([2]float64{0, 1e9}, [2]float64{6000, 10e9}, [2]float64{8000, 10.4e9}), Setting{}, ClassGrowing},
		"after a release of earlier growth": {simulated([2]float64{0, 6e9}, [2]float64{6000, 12e9}, [2]float64{6000, 8e9}, [2]float64{10_000, 11e9}), Setting{}, ClassGrowing},
	} {
		t.Run(name, func(t *testing.T) {
			if v := Judge(c.series, c.setting, InSeconds()); v.Class != c.want {
				t.Errorf("%s (%s), rate %v from %v, want %s", v.Class, v.Why, v.Rate, v.From, c.want)
			}
		})
	}
}

func TestLookingAgainAndAgainNeedsAnHour(t *testing.T) {
	if v := Judge(steady(3500), Setting{}, InSeconds().Repeated()); v.Class != ClassGrowing {
		t.Errorf("%s after 3500 s, want growing", v.Class)
	}
	if v := Judge(steady(3700), Setting{}, InSeconds().Repeated()); v.Class != ClassLeak {
		t.Errorf("%s after 3700 s, want a leak", v.Class)
	}
}

// Steps at these times are as regular as growth; what is known of them is too little for a leak.
func TestAFewStepsAreNoLeak(t *testing.T) {
	for name, c := range map[string]struct {
		steps []float64
		want  Class
	}{
		"few":  {[]float64{1600, 4600, 8000, 11_000, 13_500}, ClassGrowing},
		"many": {[]float64{500, 1900, 3500, 4900, 6500, 7900, 9500, 10_900, 12_500, 13_900}, ClassLeak},
	} {
		s := simulated([2]float64{0, 10e9}, [2]float64{14_400, 10e9})
		for i := range s.Y {
			for _, at := range c.steps {
				if s.X[i] >= at {
					s.Y[i] += 3e8
				}
			}
		}
		if v := Judge(s, Setting{Age: 7200}, InSeconds()); v.Class != c.want {
			t.Errorf("%s: %s (%s) from %v, want %s", name, v.Class, v.Why, v.From, c.want)
		}
	}
}

func TestTheLimitIsReachedBySpikesFirst(t *testing.T) {
	s := steady(3000) // 1 MB a second, at 23 GB when the watch ends
	calm := Judge(s, Setting{Limit: 30e9}, InSeconds())
	for i := range s.Y {
		if i%20 < 4 {
			s.Y[i] += 5e9
		}
	}
	spiky := Judge(s, Setting{Limit: 30e9}, InSeconds())
	if calm.Class != ClassLeak || calm.Spikes != nil || !near(calm.ToLimit, 7000, 50) {
		t.Errorf("%s, spikes %v, limit in %v s, want 7000", calm.Class, calm.Spikes, calm.ToLimit)
	}
	if calm.ToLimitLow >= calm.ToLimit || calm.ToLimitHigh <= calm.ToLimit {
		t.Errorf("limit in %v to %v s", calm.ToLimitLow, calm.ToLimitHigh)
	}
	if spiky.Class != ClassLeak || !near(spiky.ToLimit, 2000, 100) || spiky.Spikes == nil ||
		!near(spiky.Spikes.Share, 0.2, 0.01) || !near(spiky.Spikes.Height, 5e9, 1e8) {
		t.Errorf("%s, spikes %v, limit in %v s, want 2000", spiky.Class, spiky.Spikes, spiky.ToLimit)
	}
	if v := Judge(s, Setting{Limit: 25e9}, InSeconds()); v.ToLimit != 0 {
		t.Errorf("limit in %v s, want 0: spikes are there already", v.ToLimit)
	}
}

func TestWhatOnlyGrowsHasAHazardAndNoForecast(t *testing.T) {
	v := Judge(steady(1000), Setting{Limit: 30e9}, InSeconds())
	if v.Class != ClassGrowing || !near(v.ToLimit, 9000, 100) || !math.IsNaN(v.ToLimitLow) || !math.IsNaN(v.ToLimitHigh) {
		t.Errorf("%s, limit in %v s (%v to %v), want 9000", v.Class, v.ToLimit, v.ToLimitLow, v.ToLimitHigh)
	}
	if v := Judge(steady(1000), Setting{}, InSeconds()); !math.IsNaN(v.ToLimit) {
		t.Errorf("limit in %v s, but none is known", v.ToLimit)
	}
}

func TestTheReasonOfALeakSaysWhatWasSeen(t *testing.T) {
	for why, setting := range map[string]Setting{
		"steady growth, no plateau ever seen": {},
		"steady growth after warm-up":         {EpochEnd: known(-100)},
	} {
		if v := Judge(steady(1900), setting, InSeconds()); v.Class != ClassLeak || v.Why != why {
			t.Errorf("%s (%s), want a leak (%s)", v.Class, v.Why, why)
		}
	}
}

func TestAMarkOutsideTheSeriesBeginsNoRegime(t *testing.T) {
	for name, s := range examples(t) {
		want := Judge(s, Setting{Age: 6000}, InSeconds())
		for _, mark := range []float64{-7000, -5000, 0, 20_000} {
			v := Judge(s, Setting{Age: 6000, EpochEnd: &mark}, InSeconds())
			if !near(v.From, want.From, 0) || len(v.Phases) != len(want.Phases) {
				t.Errorf("%s, mark at %v: from %v, want %v", name, mark, v.From, want.From)
			}
		}
	}
}

func TestAFewStepsOfACoarseSamplerAreNoGrowth(t *testing.T) {
	const coarse = 64e6
	s := simulated([2]float64{0, 2e9}, [2]float64{14_400, 2e9 + 3.5*coarse})
	for i := range s.Y {
		s.Y[i] = coarse * math.Round((s.Y[i]+coarse*math.Sin(float64(i)))/coarse)
	}
	if v := Judge(s, Setting{Age: 7200}, InSeconds()); v.Class == ClassLeak || v.Class == ClassGrowing {
		t.Errorf("%s (%s)", v.Class, v.Why)
	}
	if q := smallestStep(s.Y); q != coarse {
		t.Errorf("the quantum is %v, want %v", q, coarse)
	}
}

func TestGrowthMustGoOn(t *testing.T) {
	for name, c := range map[string]struct {
		y    []float64
		want bool
	}{
		"all the time":     {[]float64{1, 2, 3, 4, 5, 6, 7, 8, 9}, true},
		"only at first":    {[]float64{1, 3, 5, 7, 7, 7, 7, 7, 7}, false},
		"only in the end":  {[]float64{1, 1, 1, 1, 1, 1, 3, 5, 7}, false},
		"up and down":      {[]float64{1, 2, 3, 9, 9, 9, 6, 7, 8}, false},
		"falling":          {[]float64{9, 8, 7, 6, 5, 4, 3, 2, 1}, false},
		"never":            {[]float64{1, 1, 1, 1, 1, 1, 1, 1, 1}, false},
		"less in the end":  {[]float64{0, 0, 0, 4, 4, 4, 6, 6, 6}, true},
		"much less in end": {[]float64{0, 0, 0, 6, 6, 6, 7, 7, 7}, false},
	} {
		if got := risesInThirds(envelope{x: count(len(c.y)), y: c.y}); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// count is 0, 1, 2 and so on.
func count(n int) []float64 {
	x := make([]float64, n)
	for i := range x {
		x[i] = float64(i)
	}
	return x
}

// Half of the samples are of the last sixth of the time: most of the growth is in the others.
func TestGrowthGoesOnWhereSamplesAreUneven(t *testing.T) {
	x := []float64{0, 20, 40, 60, 80, 100, 102, 104, 106, 108, 110, 112}
	if !risesInThirds(envelope{x: x, y: x}) {
		t.Error("what rises all the time does not")
	}
	stops := slices.Clone(x)
	for i := 6; i < len(stops); i++ {
		stops[i] = 100
	}
	if risesInThirds(envelope{x: x, y: stops}) {
		t.Error("what has stopped to rise still does")
	}
}

// The machine is so busy for an hour that hardly a sample is taken, and then idle: that changes nothing about a leak.
func TestALeakIsOneHoweverUnevenItsSamplesAre(t *testing.T) {
	const runs = 100
	for seed := range uint64(runs) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var s Series
		for x := 0.0; x < 4200; x += 15 {
			if x > 3600 || rng.Float64() < 0.08 {
				s.X, s.Y = append(s.X, x), append(s.Y, 60e6+5e3*x+1e5*rng.NormFloat64())
			}
		}
		if v := Judge(s, Setting{Age: 7200}, InSeconds()); v.Class != ClassLeak {
			t.Errorf("seed %d, %d samples: %s (%s)", seed, len(s.X), v.Class, v.Why)
		}
	}
}

func TestAStaircaseIsAFewLargeSteps(t *testing.T) {
	// 96 points around a level that steps up by 100 at each given point; the noise is below 1.
	steps := func(at ...int) (y []float64) {
		level := 0.0
		for i := range 96 {
			for _, a := range at {
				if a == i {
					level += 100
				}
			}
			y = append(y, level+math.Sin(float64(7*i)))
		}
		return y
	}
	ramp := make([]float64, 96)
	for i := range ramp {
		ramp[i] = 5*float64(i) + math.Sin(float64(7*i))
	}
	for name, c := range map[string]struct {
		y    []float64
		rise float64
		step float64
		want bool
	}{
		"steps that become rare":     {steps(2, 23, 70), 300, 0, true},
		"steps to the end":           {steps(50, 60, 75, 90), 400, 0, false},
		"steps of the sampler":       {steps(2, 23, 70), 300, 100, false},
		"steps of little importance": {steps(40), 700, 0, false},
		"no steps":                   {ramp, 475, 0, false},
	} {
		if got := isStaircase(c.y, c.rise, c.step); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestGrowthThatSlowsWithTheAgeOfTheProcessSaturates(t *testing.T) {
	b := curve(func(u float64) float64 { return 8e9 + 4e8*math.Log(1000+950*u) }, 4e7) // at 1000 to 1950 s of age
	e := evidence{series: Series{X: []float64{0, 1950}}, segments: segmentation{earlier: make([]segment, 1), last: segment{envelope: b, fit: fit{kind: curveLine}}}}
	if !e.slowsDown() {
		t.Error("growth by the logarithm of the age is not seen")
	}
	e.segments.earlier = nil
	if e.slowsDown() {
		t.Error("without an earlier regime nobody knows the shape of the warm-up")
	}
}

func TestAParabolaThatBendsDownSlowsDown(t *testing.T) {
	for name, c := range map[string]struct {
		curve func(u float64) float64
		want  bool
	}{
		"bends down":         {func(u float64) float64 { return 8e9 + 1e9*(u-u*u/2) }, true},
		"hardly bends":       {func(u float64) float64 { return 8e9 + 1e9*(u-u*u/10) }, false},
		"bends up":           {func(u float64) float64 { return 8e9 + 1e9*u*u }, false},
		"bends in the noise": {func(u float64) float64 { return 8e9 + 1e6*(u-u*u/2) }, false},
	} {
		b := curve(c.curve, 2e7)
		for kind, want := range map[curveKind]bool{curveLine: c.want, curveSettling: c.want, curveExponential: true, curveLogarithm: true} {
			e := evidence{series: Series{X: []float64{0, 1950}}, segments: segmentation{last: segment{envelope: b, fit: fit{kind: kind}}}}
			if got := e.slowsDown(); got != want {
				t.Errorf("%s, of form %d: %v, want %v", name, kind, got, want)
			}
		}
	}
}

// The bound of a constant comes from the unseen drift alone: 1.70 x 0.25 % of the level over the length, for 31 points.
func TestAPlateauSaysHowMuchLongerToWatch(t *testing.T) {
	for length, want := range map[float64]float64{300: 300 * (1.2*1.70*0.0025/300/(0.0005/60) - 1), 1200: 0} {
		s := simulated([2]float64{0, 4e9}, [2]float64{length + 10, 4e9})
		for i := range s.Y {
			s.Y[i] = 4e9
		}
		v := Judge(s, Setting{}, InSeconds())
		if v.Class != ClassPlateau || !near(v.Longer, want, 0.02*want) {
			t.Errorf("%s of %v s: %v s longer, want %v", v.Class, length, v.Longer, want)
		}
	}
}

func TestASpikeOrTwoAreNoSpikes(t *testing.T) {
	s := simulated([2]float64{0, 4e9}, [2]float64{10_000, 4e9})
	s.Y[300] += 2e9
	s.Y[700] += 2e9
	if v := Judge(s, Setting{}, InSeconds()); v.Class != ClassPlateau || v.Spikes != nil {
		t.Errorf("%s with %+v", v.Class, v.Spikes)
	}
}

func TestWhatIsToleratedIsSettled(t *testing.T) {
	v := Judge(steady(1900), Setting{Tolerable: 1.1e6}, InSeconds())
	if v.Why != "grows less than is tolerated" || v.Longer != 0 || !near(v.Rate, 1e6, 1e4) {
		t.Errorf("%s at %v, %v longer", v.Why, v.Rate, v.Longer)
	}
}
