package growth

import (
	"math"
	"testing"
)

func TestLooksBeginEarlyAndComeEverMoreSeldom(t *testing.T) {
	looks := NewLooks(InSeconds().Repeated())
	var at []float64
	for elapsed := range 4 * 3600 {
		if looks.Due(float64(elapsed)) {
			at = append(at, float64(elapsed))
		}
	}
	if at[0] != 90 {
		t.Errorf("the first look is at %v, want 90", at[0])
	}
	for i := 1; i < len(at); i++ {
		if want := math.Ceil(1.25 * at[i-1]); at[i] != want {
			t.Errorf("look %d is at %v, want %v", i, at[i], want)
		}
	}
	if want := 23; len(at) != want { // 1 + log(14400/90)/log(1.25)
		t.Errorf("%d looks in 4 hours, want %d", len(at), want)
	}
}

func TestAMissedLookIsNotMadeUpFor(t *testing.T) {
	looks := NewLooks(InSeconds())
	if !looks.Due(1000) || looks.Due(1000) || looks.Due(1249) || !looks.Due(1250) {
		t.Error("after a look at 1000 the next is not the one at 1250")
	}
}

func TestTheAlarmIsRaisedOnceByThreeLeaksInARow(t *testing.T) {
	looks := NewLooks(InSeconds())
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
		alarm := looks.Add(Verdict{Class: c.class})
		agree, of := looks.Agreeing()
		if alarm != c.alarm || agree != c.agree || of != 3 {
			t.Errorf("look %d: alarm %v, %d of %d agree; want %v, %d of 3", i, alarm, agree, of, c.alarm, c.agree)
		}
	}
}
