package estimate

import (
	"math"
	"testing"
	"time"

	"github.com/allocscope/allocscope/tracer/overhead/controller"
)

// prices of a trap of 1 us.
var someWork = controller.Costs{Entry: 1000}

// didWork is a log of two windows of half a second; in a second of them the program does so many steps and takes so much CPU time, of which
// the probes have some, and in a second of the rest without probes.
func didWork(inside, outside controller.Reading) *Schedule {
	w := watched()
	for range 10 {
		w.Outside.Add(someWork, controller.Reading{}, outside)
		w.Inside.Add(someWork, controller.Reading{}, inside)
	}
	return w
}

func TestProbesSlowTheProgramDownByItsStepsOrElseByItsCPUTime(t *testing.T) {
	second, half := time.Second, time.Second/2
	for name, c := range map[string]struct {
		inside, outside controller.Reading
		want            float64
	}{
		"five times fewer steps": {controller.Reading{At: second, Steps: 100, Traced: second}, controller.Reading{At: second, Steps: 500, Traced: second}, 5},
		"too few steps":          {controller.Reading{At: second, Steps: 2, Traced: second, Entries: 750_000}, controller.Reading{At: second, Steps: 8, Traced: second}, 4},
		"no steps":               {controller.Reading{At: second, Traced: second, Entries: 500_000}, controller.Reading{At: second, Traced: second}, 2},
		"it waits for others":    {controller.Reading{At: second, Traced: second, Entries: 500_000}, controller.Reading{At: second, Traced: half}, 1},
		"it does more":           {controller.Reading{At: second, Steps: 100}, controller.Reading{At: second, Steps: 50}, 1},
		"it does nothing":        {controller.Reading{At: second}, controller.Reading{At: second}, 1},
		"nothing but probes":     {controller.Reading{At: second, Traced: second, Entries: 1_000_000}, controller.Reading{At: second, Traced: second}, maxSlowdown},
		"no windows":             {controller.Reading{}, controller.Reading{At: second, Steps: 100, Traced: second}, 1},
	} {
		got, err := didWork(c.inside, c.outside).slowdown()
		if math.Abs(got-c.want) > 1e-6 || !(err >= 0 && err <= 1) {
			t.Errorf("%s: %v times slower, off by %v; want %v", name, got, err, c.want)
		}
	}
}

func TestAWindowStandsForMoreWhereProbesSlowTheProgramDown(t *testing.T) {
	w := didWork(controller.Reading{At: time.Second, Steps: 100}, controller.Reading{At: time.Second, Steps: 400})
	if got, want := w.Extrapolation(1, 0), 1+4*10/0.5; math.Abs(got-want) > 1e-9 {
		t.Errorf("a window after a rest of 20 times its length stands for %v times itself, want %v", got, want)
	}
	if got, want := w.ExposureSeconds(w.Periods[1]), 0.125; got != want {
		t.Errorf("half a second in which a quarter is done is worth %v s of watching, want %v", got, want)
	}
}
