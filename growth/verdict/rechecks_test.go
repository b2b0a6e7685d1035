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
		if at[0] != 90 {
			t.Errorf("the first check is at %v, want 90", at[0])
		}
		for i := 1; i < len(at); i++ {
			if want := math.Ceil(1.25 * at[i-1]); at[i] != want {
				t.Errorf("check %d is at %v, want %v", i, at[i], want)
			}
		}
		if want := 23; len(at) != want { // 1 + log(14400/90)/log(1.25)
			t.Errorf("%d checks in 4 hours, want %d", len(at), want)
		}
	})

	t.Run("a missed one is not made up for", func(t *testing.T) {
		rechecks := NewRechecks(InSeconds())
		if !rechecks.Due(1000) || rechecks.Due(1000) || rechecks.Due(1249) || !rechecks.Due(1250) {
			t.Error("after a check at 1000 the next is not the one at 1250")
		}
	})

	t.Run("three leaks in a row alarm once", func(t *testing.T) {
		rechecks := NewRechecks(InSeconds())
		for i, c := range []struct {
			class Class
			agree int
			alarm bool
		}{
			{ClassLeak, 1, false},
			{ClassLeak, 2, false},
			{ClassGrowing, 0, false},
			{ClassLeak, 1, false},
			{ClassLeak, 2, false},
			{ClassLeak, 3, true},
			{ClassLeak, 4, false},
			{ClassPlateau, 0, false},
			{ClassLeak, 1, false},
			{ClassLeak, 2, false},
			{ClassLeak, 3, false},
		} {
			alarm := rechecks.Add(Verdict{Class: c.class})
			agree, of := rechecks.Streak()
			if alarm != c.alarm || agree != c.agree || of != 3 {
				t.Errorf("check %d: alarm %v, %d of %d agree; want %v, %d of 3", i, alarm, agree,
					of, c.alarm, c.agree)
			}
		}
	})
}
