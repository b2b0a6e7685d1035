package estimate

import (
	"math"
	"testing"
	"time"

	"github.com/allocscope/allocscope/growth"
)

const second = uint64(time.Second)

// watched everything from 10 s to 20 s, then in windows of half a second that begin at 30 s, 50 s and 90 s, of which the last is open.
func watched() *Schedule {
	w := &Schedule{Lag: time.Minute}
	w.Open(10*second, false)
	w.Close(20 * second)
	for _, from := range []uint64{30 * second, 50 * second} {
		w.Open(from, true)
		w.Close(from + second/2)
	}
	w.Open(90*second, true)
	return w
}

func TestWindowsStandTogetherForTheTimeBetweenThem(t *testing.T) {
	w := watched()
	for i, want := range []float64{1, 10.5 / 0.5, 30.5, 1} {
		if got := w.Extrapolation(i, 0); math.Abs(got-want) > 1e-9 {
			t.Errorf("spell %d stands for %v times itself, want %v", i, got, want)
		}
	}
	w.Close(90*second + second/10)
	if got, want := w.Extrapolation(3, 0), (10.5+20+39.6)/1.1; math.Abs(got-want) > 1e-9 {
		t.Errorf("a short window after a long rest stands for %v times itself, want %v", got, want)
	}
	for range 3 { // then the first is too long ago
		w.Open(w.Periods[len(w.Periods)-1].To+10*second, true)
		w.Close(w.Periods[len(w.Periods)-1].From + second)
	}
	if got, want := w.Extrapolation(6, 0), (39.6+3*11)/3.1; math.Abs(got-want) > 1e-9 {
		t.Errorf("the last of four windows stands for %v times itself, want %v", got, want)
	}
}

func TestAWindowStandsForNothingBeforeItsProcessCounts(t *testing.T) {
	w := watched()
	for _, c := range []struct {
		joined uint64 // ms
		want   float64
	}{
		{5_000, 30.5}, {30_400, 20.1 / 0.6}, {30_500, 20 / 0.5}, {40_500, 10 / 0.5}, {50_000, 1}, {50_250, 1}, {60_000, 1},
	} {
		if got := w.Extrapolation(2, c.joined*1e6); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("in a process that counts from %d ms on a window stands for %v times itself, want %v", c.joined, got, c.want)
		}
	}
}

func TestTheFirstSpellStandsForItself(t *testing.T) {
	var w Schedule
	w.Open(second, true)
	w.Close(2 * second)
	if got := w.Extrapolation(0, 0); got != 1 {
		t.Errorf("%v", got)
	}
}

func TestAnObjectBelongsToTheSpellThatBeganLast(t *testing.T) {
	w := watched()
	for _, c := range []struct {
		born uint64 // ms
		want int
	}{
		{0, -1}, {9_999, -1}, {10_000, 0}, {19_999, 0}, {20_050, 0}, {30_000, 1}, {30_501, 1}, {50_000, 2}, {90_000, 3}, {1e9, 3},
	} {
		if got := w.index(c.born * 1e6); got != c.want {
			t.Errorf("what was born at %d ms belongs to spell %d, want %d", c.born, got, c.want)
		}
	}
}

func TestWhatWasSeenInAWindowCountsLater(t *testing.T) {
	w := watched()
	for spell, want := range map[int]uint64{-1: 7 * second, 0: 7 * second, 1: 67 * second} {
		if got := w.countedFrom(spell, 7*second); got != want {
			t.Errorf("what was born at 7 s in spell %d counts from %d s on, want %d", spell, got/second, want/second)
		}
	}
}

func TestOverlapsIsAskedOfTheTimeBetween(t *testing.T) {
	w := watched()
	for _, c := range []struct {
		from, to uint64 // ms
		want     bool
	}{
		{0, 10_000, false},
		{0, 10_001, true},
		{12_000, 13_000, true},
		{19_999, 25_000, true},
		{20_000, 30_000, false},
		{20_000, 30_001, true},
		{30_100, 30_200, true},
		{30_500, 50_000, false},
		{25_000, 80_000, true},
		{51_000, 90_000, false},
		{89_000, 91_000, true},
		{95_000, 96_000, true},
	} {
		if got := w.Overlaps(c.from*1e6, c.to*1e6); got != c.want {
			t.Errorf("overlaps from %d ms to %d ms: %v", c.from, c.to, got)
		}
	}
	if (&Schedule{}).Overlaps(0, second) {
		t.Error("nothing was watched")
	}
}

func TestAWindowThatIsOpenIsNotInTheMeanOfFactors(t *testing.T) {
	want := growth.HeapCoverage{Bursts: 3, Open: time.Second, Lag: time.Minute, Since: 25 * time.Second, Extrapolation: (21 + 30.5) / 2}
	if got := watched().Coverage(5 * second); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestWhatIsWatchedAllTheTimeHasNoWindows(t *testing.T) {
	w := &Schedule{Lag: time.Minute}
	w.Open(second, false)
	if got := w.Coverage(2 * second); got != (growth.HeapCoverage{}) || !w.IsOpen() || w.InBurst() {
		t.Errorf("%+v, open: %v, in a window: %v", got, w.IsOpen(), w.InBurst())
	}
}
