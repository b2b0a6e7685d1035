package words

import "testing"

func TestAPaceKeepsTwoDigitsWhereItIsSlow(t *testing.T) {
	for perSecond, want := range map[float64]string{
		0: "0 steps/s", 0.083: "0.083 steps/s", 0.25: "0.25 steps/s", 4.21: "4.2 steps/s", 9.96: "10 steps/s", 40: "40 steps/s", 12345: "12.3 k steps/s",
	} {
		if got := Pace(perSecond, "steps"); got != want {
			t.Errorf("%v a second reads %q, want %q", perSecond, got, want)
		}
	}
}

func TestASmallShareHasADecimal(t *testing.T) {
	for share, want := range map[float64]string{0: "0.0 %", 0.012: "1.2 %", 0.0996: "10 %", 0.34: "34 %", 1.5: "150 %"} {
		if got := Percent(share); got != want {
			t.Errorf("%v reads %q, want %q", share, got, want)
		}
	}
}
