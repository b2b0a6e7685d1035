package verdict

import (
	"math"
	"testing"
)

func TestRechecks(t *testing.T) {
	// A restart changes nothing.
	t.Run("become rarer", func(t *testing.T) {
		for _, c := range []struct {
			hours, longest float64 // longest in seconds; 0: no limit
			count          int     // 1 + log(14400/90)/log(1.25), and one each hour from then on
		}{{4, 0, 23}, {48, 3600, 67}} {
			rechecks := NewRechecks(InSeconds().Repeated())
			rechecks.Longest = c.longest
			var at []float64
			for elapsed := 0.0; elapsed < c.hours*3600; elapsed++ {
				if !rechecks.Due(elapsed) {
					continue
				}
				at = append(at, elapsed)
				if len(at) == 20 {
					again := NewRechecks(InSeconds())
					again.Longest = c.longest
					again.Resume(rechecks.Progress())
					rechecks = again
				}
			}

			for i := 1; i < len(at); i++ {
				want := math.Ceil(1.25 * at[i-1])
				if c.longest > 0 {
					want = min(want, at[i-1]+c.longest)
				}
				if at[i] != want {
					t.Errorf("check %d is at %v, want %v", i, at[i], want)
				}
			}
			if at[0] != 90 || len(at) != c.count {
				t.Errorf("%d checks in %v hours, the first at %v; want %d from 90 s on", len(at),
					c.hours, at[0], c.count)
			}
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

	t.Run("none", func(t *testing.T) {
		var found Findings
		if (*Rechecks)(nil).AddTo(&found, 60); found != (Findings{}) {
			t.Errorf("without checks: %+v", found)
		}
	})
}
