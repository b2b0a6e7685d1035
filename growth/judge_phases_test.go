package growth

import (
	"math"
	"math/rand/v2"
	"testing"
)

// simulated is a process whose memory goes from corner to corner: sizes in bytes at seconds, straight lines between, with a little noise, sampled every 10 s.
func simulated(corners ...[2]float64) Series {
	random := rand.New(rand.NewPCG(9, 10))
	var s Series
	for i := 1; i < len(corners); i++ {
		from, to := corners[i-1], corners[i]
		for x := from[0]; x < to[0]; x += 10 {
			y := from[1] + (to[1]-from[1])*(x-from[0])/(to[0]-from[0])
			s.X, s.Y = append(s.X, x), append(s.Y, y+2e5*random.NormFloat64())
		}
	}
	return s
}

var phaseCases = []struct {
	name   string
	series Series
	want   []Phase
}{
	{
		"a plateau from the start",
		simulated([2]float64{0, 4e9}, [2]float64{7200, 4e9}),
		[]Phase{{PhasePlateau, 0, 7190, 0}},
	},
	{
		"warm-up, then a plateau",
		simulated([2]float64{0, 1e9}, [2]float64{1200, 4e9}, [2]float64{7200, 4e9}),
		[]Phase{{PhaseWarmup, 0, 1300, 2.5e6}, {PhasePlateau, 1300, 7190, 0}},
	},
	{
		"warm-up, then a leak",
		simulated([2]float64{0, 1e9}, [2]float64{1200, 4e9}, [2]float64{7200, 5e9}),
		[]Phase{{PhaseWarmup, 0, 1300, 2.5e6}, {PhaseGrowth, 1300, 7190, 1e9 / 6000}},
	},
	{
		"flat, then growth",
		simulated([2]float64{0, 4e9}, [2]float64{3000, 4e9}, [2]float64{7200, 5e9}),
		[]Phase{{PhaseFlat, 0, 3100, 0}, {PhaseGrowth, 3100, 7190, 1e9 / 4200}},
	},
	{
		"a release, then a plateau",
		simulated([2]float64{0, 5e9}, [2]float64{2000, 4e9}, [2]float64{7200, 4e9}),
		[]Phase{{PhaseRelease, 0, 2100, -5e5}, {PhasePlateau, 2100, 7190, 0}},
	},
	{
		"growth that has just begun to slow down",
		simulated([2]float64{0, 1e9}, [2]float64{5000, 4e9}, [2]float64{7200, 4e9}),
		[]Phase{{PhaseWarmup, 0, 5050, 6e5}, {PhaseOpen, 5050, 7190, 0}},
	},
	{
		"a restart, then warm-up and a plateau",
		simulated([2]float64{0, 8e9}, [2]float64{2000, 8e9}, [2]float64{2000, 1e9}, [2]float64{3000, 4e9}, [2]float64{9200, 4e9}),
		[]Phase{{PhaseWarmup, 2000, 3100, 3e6}, {PhasePlateau, 3100, 9190, 0}},
	},
}

func TestPhasesAreThoseThatTheProcessWentThrough(t *testing.T) {
	for _, c := range phaseCases {
		t.Run(c.name, func(t *testing.T) {
			v := Judge(c.series, Setting{}, InSeconds())
			if len(v.Phases) != len(c.want) {
				t.Fatalf("%+v, want %+v", v.Phases, c.want)
			}
			for i, want := range c.want {
				got := v.Phases[i]
				if got.Kind != want.Kind || !near(got.From, want.From, 150) || !near(got.To, want.To, 150) || !near(got.Rate, want.Rate, 0.05*math.Abs(want.Rate)+2e4) {
					t.Errorf("%+v, want %+v", got, want)
				}
			}
		})
	}
}

// What happened before a mark is no part of the last regime.
func TestThePassBeforeAMarkIsAPhaseOfItsOwn(t *testing.T) {
	s := simulated([2]float64{0, 1e9}, [2]float64{3000, 4e9}, [2]float64{7200, 4.5e9})
	v := Judge(s, Setting{EpochEnd: known(3000)}, InSeconds())
	if len(v.Phases) != 2 || v.Phases[0].Kind != PhaseWarmup || !near(v.Phases[0].To, 3000, 50) || !near(v.Phases[0].Rate, 1e6, 2e4) {
		t.Errorf("%+v, want a warm-up of 1e6 a second until 3000", v.Phases)
	}
	if v.Class != ClassLeak || v.From != v.Phases[1].From || !near(v.Rate, 0.5e9/4200, 2e3) {
		t.Errorf("%s at %v from %v, want a leak at %v", v.Class, v.Rate, v.From, 0.5e9/4200)
	}
}

func TestWhatSaturatesHeadsForItsAsymptote(t *testing.T) {
	random := rand.New(rand.NewPCG(11, 12))
	for constant, want := range map[float64]float64{
		4000:   10e9,
		7000:   10e9,
		10_000: 10e9,
		16_000: math.NaN(), // hardly bent yet: no end can be seen
	} {
		var s Series
		for x := 0.0; x < 14_400; x += 10 {
			s.X = append(s.X, x)
			s.Y = append(s.Y, 10e9-5e9*math.Exp(-x/constant)+1e7*random.NormFloat64())
		}
		v := Judge(s, Setting{}, InSeconds())
		if v.Class != ClassSaturating || !near(v.HeadsFor, want, 0.05*want) {
			t.Errorf("with a time constant of %v s: %s, heads for %v, want %v", constant, v.Class, v.HeadsFor, want)
		}
	}
}

func TestGrowthByTheLogarithmHeadsForNoLevel(t *testing.T) {
	v := Judge(seriesIn(t, "vectors/v13_log_4h_0.csv"), Setting{}, InSeconds())
	if v.Class != ClassSaturating || !math.IsNaN(v.HeadsFor) {
		t.Errorf("%s, heads for %v, want saturating and no level", v.Class, v.HeadsFor)
	}
}

// Where a peak at the start hides the base, a later regime may seem to begin earlier than the one before it: of these in 199 and
// 605, and in few others.
func TestPhasesFollowEachOtherWhateverTheBeginning(t *testing.T) {
	for seed := range uint64(700) {
		checkPromises(t, Judge(rough(seed), Setting{}, InSeconds()))
	}
}

// rough is a warm-up with a step, and with a peak at its start and another one later.
func rough(seed uint64) (s Series) {
	random := rand.New(rand.NewPCG(seed, 4))
	n := 40 + random.IntN(300)
	rise, constant, peak, width := random.Float64(), .005+.1*random.Float64(), 2*random.Float64(), .12*random.Float64()
	second, step := .1+.8*random.Float64(), .3*random.Float64()
	for i := range n {
		u := float64(i) / float64(n)
		y := 1e9*(2-rise*math.Exp(-u/constant)) + 1e6*random.NormFloat64()
		if u < width || u > second && u < second+2*width {
			y += peak * 1e9
		}
		if u > step {
			y += 3e8
		}
		s.X, s.Y = append(s.X, 1e4*u), append(s.Y, y)
	}
	return s
}
