package units

import (
	"math"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestADurationIsRoundedToATenthBelowTenSecondsAndToSecondsAbove(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 1249 * time.Millisecond: "1.2s", 9949 * time.Millisecond: "9.9s", 9960 * time.Millisecond: "10s", 59600 * time.Millisecond: "1m",
		3599600 * time.Millisecond: "1h",
	} {
		if got := Duration(d); got != want {
			t.Errorf("%s is printed as %q, want %q", d, got, want)
		}
	}
}

func TestBytesArePrintedForPeople(t *testing.T) {
	for bytes, want := range map[float64]string{
		0: "0 B", 1: "1 B", 999: "999 B", 1000: "0.98 KiB", 1024: "1.00 KiB", 10240: "10.0 KiB", 102400: "100 KiB", 1 << 20: "1.00 MiB",
		1<<30 - 1: "1.00 GiB", 1 << 30: "1.00 GiB", -1 << 30: "-1.00 GiB", -5: "-5 B", 1 << 40: "1.00 TiB", 1 << 52: "4096 TiB",
	} {
		if got := Bytes(bytes); got != want {
			t.Errorf("%f is printed as %q, want %q", bytes, got, want)
		}
	}
	for bytes, want := range map[float64]string{0: "0 B", 1 << 20: "+1.00 MiB", -1 << 20: "-1.00 MiB"} {
		if got := Signed(bytes); got != want {
			t.Errorf("%f is printed as %q, want %q", bytes, got, want)
		}
	}
}

// Each printed size, read back, is within half a percent of the value: three digits are what people are promised.
func TestPrintedBytesAreCloseToTheValue(t *testing.T) {
	units := map[string]float64{"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
	for value := 100.0; value < 1e15; value *= 1.07 {
		number, unit, _ := strings.Cut(Bytes(math.Round(value)), " ")
		size, err := strconv.ParseFloat(number, 64)
		if size *= units[unit]; err != nil || math.Abs(size-value) > 0.006*value {
			t.Errorf("%f is printed as %s %s", value, number, unit)
		}
	}
}

func TestCountsArePrintedForPeople(t *testing.T) {
	for n, want := range map[float64]string{0: "0", 950: "950", 9999: "9999", 12345: "12.3 k", 4.5e6: "4.5 M", 7.25e9: "7.2 G"} {
		if got := Count(n); got != want {
			t.Errorf("%f is printed as %q, want %q", n, got, want)
		}
	}
}

func TestARateIsRoundedUpToTwoDigits(t *testing.T) {
	for x, want := range map[float64]string{3.2401: "3.3", 3.3: "3.3", 0.193: "0.20", 0.0511: "0.052", 138.1: "140", 99.5: "100", 1: "1.0", 1e-5: "0.000010", 1234: "1300"} {
		got := RoundedUp(x)
		if value, err := strconv.ParseFloat(got, 64); got != want || err != nil || value < x*(1-1e-9) {
			t.Errorf("%g becomes %s, want %s", x, got, want)
		}
	}
}

func TestLengthsArePrintedInFittingUnits(t *testing.T) {
	for x, want := range map[float64]string{0: "0 s", 89.6: "90 s", 120: "2 min", 150: "2.5 min", 1185: "20 min", 7200: "2 h", 12600: "3.5 h", 86400: "24 h", 5 * 86400: "5 days"} {
		if got := Span(x, false, math.Round); got != want {
			t.Errorf("%g s is printed as %q, want %q", x, got, want)
		}
	}
	if got := Span(39.2, true, math.Ceil); got != "40 steps" {
		t.Errorf("39.2 steps are printed as %q", got)
	}
	if got := SpanRange(1700, 1850, false); got != "28 to 31 min" {
		t.Errorf("printed as %q", got)
	}
	if got := SpanRange(1680, 1680, false); got != "28 min" {
		t.Errorf("printed as %q", got)
	}
}

func TestAPaceKeepsTwoDigitsWhereItIsSlow(t *testing.T) {
	for perSecond, want := range map[float64]string{
		0: "0 steps/s", 0.083: "0.083 steps/s", 0.25: "0.25 steps/s", 4.21: "4.2 steps/s", 9.96: "10 steps/s", 40: "40 steps/s", 12345: "12.3 k steps/s",
	} {
		if got := PerSecond(perSecond, "steps"); got != want {
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
