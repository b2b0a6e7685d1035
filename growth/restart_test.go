package growth

import "testing"

// Two processes after each other: the first for 3000 s at 8 GB, the second grows to 4 GB and stays.
func restarted() Series {
	return simulated([2]float64{0, 8e9}, [2]float64{3000, 8e9}, [2]float64{3000, 1e9}, [2]float64{4000, 4e9}, [2]float64{9000, 4e9})
}

func TestOnlyTheLastProcessIsJudged(t *testing.T) {
	for name, c := range map[string]struct {
		setting Setting
		start   float64
	}{
		"by its fall":                      {Setting{}, 3000},
		"by its start":                     {Setting{Start: known(2995)}, 3000},
		"by a start that no fall tells of": {Setting{Start: known(4500)}, 4500},
	} {
		t.Run(name, func(t *testing.T) {
			v := Judge(restarted(), c.setting, InSeconds())
			if !v.Restarted || v.Start != c.start || v.Class != ClassPlateau || !near(v.Level, 4e9, 1e6) {
				t.Errorf("%s at %v, begins at %v, restarted: %v", v.Class, v.Level, v.Start, v.Restarted)
			}
		})
	}
}

func TestAStartBeforeTheSeriesCutsNothing(t *testing.T) {
	v := Judge(restarted(), Setting{Start: known(-100)}, InSeconds())
	if v.Restarted || v.Start != 0 {
		t.Errorf("restarted: %v, begins at %v", v.Restarted, v.Start)
	}
}

func TestAProcessThatHasJustBegunIsTooShort(t *testing.T) {
	v := Judge(restarted(), Setting{Start: known(8965)}, InSeconds())
	if v.Class != ClassTooShort || !v.Restarted || v.Start != 8970 || v.Longer != 90 {
		t.Errorf("%+v", v)
	}
}

// The second process grows from 1000 s on. An old process would leak by now, and so would one whose first pass is over.
func TestTheEarlierProcessGivesNeitherAgeNorMarks(t *testing.T) {
	s := simulated([2]float64{0, 8e9}, [2]float64{1000, 8e9}, [2]float64{1000, 1e9}, [2]float64{2500, 1.3e9})
	for name, setting := range map[string]Setting{"age": {Age: 1e5}, "mark": {EpochEnd: known(900)}} {
		if v := Judge(s, setting, InSeconds()); v.Class != ClassGrowing {
			t.Errorf("%s: %s (%s), want growing", name, v.Class, v.Why)
		}
	}
	same := s.from(1000)
	if v := Judge(same, Setting{Age: 1e5}, InSeconds()); v.Class != ClassLeak {
		t.Errorf("an old process: %s (%s), want a leak", v.Class, v.Why)
	}
	if v := Judge(same, Setting{EpochEnd: known(900), Age: 1000}, InSeconds()); v.Class != ClassLeak {
		t.Errorf("after the first pass: %s (%s), want a leak", v.Class, v.Why)
	}
}

func TestSpikesAndSmallFallsAreNoRestarts(t *testing.T) {
	spiky := simulated([2]float64{0, 4e9}, [2]float64{9000, 4e9})
	for i := range spiky.X {
		if i%10 < 4 {
			spiky.Y[i] += 20e9
		}
	}
	for name, s := range map[string]Series{
		"spikes":              spiky,
		"a peak at the start": simulated([2]float64{0, 8e9}, [2]float64{150, 8e9}, [2]float64{150, 3e9}, [2]float64{9000, 3e9}),
		"a fall by 30%":       simulated([2]float64{0, 4e9}, [2]float64{4000, 4e9}, [2]float64{4000, 2.8e9}, [2]float64{9000, 2.8e9}),
	} {
		if v := Judge(s, Setting{}, InSeconds()); v.Restarted || v.Start != 0 {
			t.Errorf("%s: restarted at %v", name, v.Start)
		}
	}
}
