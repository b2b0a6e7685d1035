package estimate

import (
	"math"
	"testing"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/overhead/controller"
)

const second = uint64(time.Second)

// threeBursts returns a schedule with continuous probing from 10 s to 20 s, and bursts of half a
// second from 30 s, 50 s and 90 s on. The last one is still open.
func threeBursts() *Schedule {
	s := &Schedule{Lag: time.Minute}
	s.Open(10*second, false)
	s.Close(20 * second)
	for _, from := range []uint64{30 * second, 50 * second} {
		s.Open(from, true)
		s.Close(from + second/2)
	}
	s.Open(90*second, true)
	return s
}

func TestExtrapolation(t *testing.T) {
	check := func(t *testing.T, s *Schedule, period int, since uint64, want float64) {
		t.Helper()
		if got := s.Extrapolation(period, since); math.Abs(got-want) > 1e-9 {
			t.Errorf("period %d, traced since %d: %v, want %v", period, since, got, want)
		}
	}

	t.Run("last bursts share their pauses", func(t *testing.T) {
		s := threeBursts()
		for period, want := range []float64{1, 10.5 / 0.5, 30.5, 1} {
			check(t, s, period, 0, want)
		}
		s.Close(90*second + second/10) // a short burst after a long pause
		check(t, s, 3, 0, (10.5+20+39.6)/1.1)

		for range averagedBursts - 1 { // then the first burst is too long ago
			last := s.Periods[len(s.Periods)-1]
			s.Open(last.To+10*second, true)
			s.Close(last.To + 11*second)
		}
		check(t, s, 6, 0, (39.6+3*11)/3.1)
	})
	t.Run("first period represents itself", func(t *testing.T) {
		var s Schedule
		s.Open(second, true)
		s.Close(2 * second)
		check(t, &s, 0, 0, 1)
	})
	t.Run("slower program", func(t *testing.T) {
		s := withProgress(progress(100, 0, 0), progress(400, 0, 0))
		check(t, s, 1, 0, 1+4*10/0.5)
		if got, want := s.ExposureSeconds(s.Periods[1]), 0.125; got != want {
			t.Errorf("half a second at a quarter of the speed: exposed %v s, want %v", got, want)
		}
	})
	t.Run("only since the process is traced", func(t *testing.T) {
		s := threeBursts()
		for since, want := range map[uint64]float64{ // ms
			5_000: 30.5, 30_400: 20.1 / 0.6, 30_500: 20 / 0.5, 40_500: 10 / 0.5,
			50_000: 1, 60_000: 1,
		} {
			check(t, s, 2, since*1e6, want)
		}
	})
}

func TestPeriodIndex(t *testing.T) {
	s := threeBursts()
	for ms, want := range map[uint64]int{
		0: -1, 9_999: -1, 10_000: 0, 20_050: 0, 30_000: 1, 30_501: 1, 1e9: 3,
	} {
		if got := s.index(ms * 1e6); got != want {
			t.Errorf("an object born at %d ms: period %d, want %d", ms, got, want)
		}
	}
}

func TestCountedFrom(t *testing.T) {
	s := threeBursts()
	for period, want := range map[int]uint64{-1: 7 * second, 0: 7 * second, 1: 67 * second} {
		if got := s.countedFrom(period, 7*second); got != want {
			t.Errorf("period %d: born at 7 s, counted from %d s on, want %d",
				period, got/second, want/second)
		}
	}
}

func TestOverlaps(t *testing.T) {
	s := threeBursts()
	for _, c := range []struct {
		from, to uint64 // ms
		want     bool
	}{
		{0, 10_000, false},
		{0, 10_001, true},
		{19_999, 25_000, true},
		{20_000, 30_000, false},
		{30_100, 30_200, true},
		{25_000, 80_000, true},
		{51_000, 90_000, false},
		{95_000, 96_000, true},
	} {
		if got := s.Overlaps(c.from*1e6, c.to*1e6); got != c.want {
			t.Errorf("from %d ms to %d ms: %v", c.from, c.to, got)
		}
	}
	if (&Schedule{}).Overlaps(0, second) {
		t.Error("an empty schedule overlaps")
	}
}

func TestCoverage(t *testing.T) {
	t.Run("open burst has no factor", func(t *testing.T) {
		want := growth.HeapCoverage{
			Bursts: 3, Open: time.Second, Lag: time.Minute, Since: 25 * time.Second,
			Extrapolation: (21 + 30.5) / 2, Slowdown: 1,
		}
		if got := threeBursts().Coverage(5 * second); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	})
	t.Run("continuous probing", func(t *testing.T) {
		s := &Schedule{Lag: time.Minute}
		s.Open(second, false)
		if got := s.Coverage(2 * second); got != (growth.HeapCoverage{}) || !s.IsOpen() || s.InBurst() {
			t.Errorf("%+v, open: %v, in a burst: %v", got, s.IsOpen(), s.InBurst())
		}
	})
}

// progress is a reading after a second.
func progress(steps int, traced time.Duration, entries uint64) controller.Reading {
	return controller.Reading{At: time.Second, Steps: steps, Traced: traced, Entries: entries}
}

// withProgress returns a schedule whose processes did ten times as much inside and outside bursts
// as the readings show. A trap costs 1 us.
func withProgress(inside, outside controller.Reading) *Schedule {
	s := threeBursts()
	costs := controller.Costs{Entry: 1000}
	for range 10 {
		s.Outside.Add(costs, controller.Reading{}, outside)
		s.Inside.Add(costs, controller.Reading{}, inside)
	}
	return s
}

func TestSlowdown(t *testing.T) {
	const second, half = time.Second, time.Second / 2
	for name, c := range map[string]struct {
		inside, outside controller.Reading
		want            float64
	}{
		"five times fewer steps":    {progress(100, second, 0), progress(500, second, 0), 5},
		"too few steps":             {progress(2, second, 750_000), progress(8, second, 0), 4},
		"no steps":                  {progress(0, second, 500_000), progress(0, second, 0), 2},
		"waits for other processes": {progress(0, second, 500_000), progress(0, half, 0), 1},
		"faster inside":             {progress(100, 0, 0), progress(50, 0, 0), 1},
		"idle":                      {progress(0, 0, 0), progress(0, 0, 0), 1},
		"probes alone":              {progress(0, second, 1e6), progress(0, second, 0), maxSlowdown},
		"no bursts":                 {controller.Reading{}, progress(100, second, 0), 1},
	} {
		t.Run(name, func(t *testing.T) {
			got, relError := withProgress(c.inside, c.outside).slowdown()
			if math.Abs(got-c.want) > 1e-6 {
				t.Errorf("%v times slower, want %v", got, c.want)
			}
			if !(relError >= 0 && relError <= 1) {
				t.Errorf("relative error %v", relError)
			}
		})
	}
}
