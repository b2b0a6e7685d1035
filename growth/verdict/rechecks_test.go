package verdict

import (
	"math"
	"testing"
)

func TestRechecks(t *testing.T) {
	t.Run("become rarer", func(t *testing.T) {
		rechecks := NewRechecks(InSeconds().Repeated())
		var at []float64
		for elapsed := range 4 * 3600 {
			if rechecks.Due(float64(elapsed)) {
				at = append(at, float64(elapsed))
			}
		}
		for i := 1; i < len(at); i++ {
			if want := math.Ceil(1.25 * at[i-1]); at[i] != want {
				t.Errorf("check %d is at %v, want %v", i, at[i], want)
			}
		}
		if at[0] != 90 || len(at) != 23 { // 1 + log(14400/90)/log(1.25)
			t.Errorf("%d checks in 4 hours, the first at %v; want 23 from 90 s on", len(at), at[0])
		}
	})

	t.Run("three leaks in a row alarm once", func(t *testing.T) {
		rechecks := NewRechecks(InSeconds())
		for i, c := range []struct {
			class  Class
			streak int
		}{
			{ClassLeak, 1},
			{ClassLeak, 2},
			{ClassGrowing, 0},
			{ClassLeak, 1},
			{ClassLeak, 2},
			{ClassLeak, 3},
			{ClassLeak, 4},
			{ClassPlateau, 0},
			{ClassLeak, 1},
			{ClassLeak, 2},
			{ClassLeak, 3},
		} {
			alarm := rechecks.Add(Verdict{Class: c.class})
			var found Findings
			rechecks.AddTo(&found, 100)
			if isFirst := i == 5; alarm != isFirst || found.Streak != (Streak{c.streak, 3}) {
				t.Errorf("check %d: alarm %v, %+v, want %d of 3", i, alarm, found.Streak, c.streak)
			}
			want := 100 * (math.Pow(1.25, float64(max(0, 3-c.streak))) - 1)
			if math.Abs(found.UntilEnough-want) > 1e-9 {
				t.Errorf("check %d: %v s until enough agree, want %v", i, found.UntilEnough, want)
			}
		}
	})
}

func TestRechecksForDays(t *testing.T) {
	rechecks := NewRechecks(InSeconds().Repeated())
	rechecks.Longest = 3600
	var at []float64
	for elapsed := 0.0; elapsed < 48*3600; elapsed++ {
		if !rechecks.Due(elapsed) {
			continue
		}
		at = append(at, elapsed)
		if len(at) == 20 { // as a restart does
			again := NewRechecks(InSeconds())
			again.Longest = 3600
			again.Resume(rechecks.Progress())
			rechecks = again
		}
	}

	for i := 1; i < len(at); i++ {
		if want := math.Min(math.Ceil(1.25*at[i-1]), at[i-1]+3600); at[i] != want {
			t.Errorf("check %d is at %v, want %v", i, at[i], want)
		}
	}

	var found Findings
	if (*Rechecks)(nil).AddTo(&found, 60); found != (Findings{}) {
		t.Errorf("without checks: %+v", found)
	}
}
