package units

import (
	"math"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestBytes(t *testing.T) {
	for bytes, want := range map[float64]string{
		0: "0 B", 1: "1 B", 999: "999 B", 1000: "0.98 KiB", 1024: "1.00 KiB", 10240: "10.0 KiB",
		102400: "100 KiB", 1 << 20: "1.00 MiB", 1<<30 - 1: "1.00 GiB", -1 << 30: "-1.00 GiB",
		-5: "-5 B", 1 << 40: "1.00 TiB", 1 << 52: "4096 TiB",
	} {
		if got := Bytes(bytes); got != want {
			t.Errorf("%f is written %q, want %q", bytes, got, want)
		}
	}

	t.Run("three digits are right", func(t *testing.T) {
		units := map[string]float64{
			"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40,
		}
		for value := 100.0; value < 1e15; value *= 1.07 {
			number, unit, _ := strings.Cut(Bytes(math.Round(value)), " ")
			size, err := strconv.ParseFloat(number, 64)
			if size *= units[unit]; err != nil || math.Abs(size-value) > 0.006*value {
				t.Errorf("%f is written %s %s", value, number, unit)
			}
		}
	})
}

func TestNumbers(t *testing.T) {
	rate := int64(5 << 19)
	for want, got := range map[string]string{
		"0": Count(0), "950": Count(950), "9999": Count(9999), "12.3 k": Count(12345),
		"4.5 M": Count(4.5e6), "7.2 G": Count(7.25e9),
		"1 arena": Plural(1, "arena", "arenas"), "12 arenas": Plural(12, "arena", "arenas"),
		"1208 MiB": WholeMiB(1208<<20 + 9), "512KiB": ExactBytes(512 << 10),
		"1000": ExactBytes(1000),
		"0 B":  Signed(0), "+1.00 MiB": Signed(1 << 20), "-1.00 MiB": Signed(-1 << 20),
		"2.50": MiBPerMinute(&rate), "-": MiBPerMinute(nil),
		"0.0%": Percent(0), "1.2%": Percent(0.012), "10%": Percent(0.0996), "150%": Percent(1.5),
		"0.25%": ExactPercent(0.0025), "3%": ExactPercent(0.03),
		"460-464": Interval("460", "464"), "-0.1 to 0.3": Interval("-0.1", "0.3"),
		"0.00": Fixed(-0.001, 2), "-0.01": Fixed(-0.009, 2),
		"0 steps/s": PerSecond(0, "steps"), "0.083 steps/s": PerSecond(0.083, "steps"),
		"4.2 steps/s": PerSecond(4.21, "steps"), "10 steps/s": PerSecond(9.96, "steps"),
		"12.3 k steps/s": PerSecond(12345, "steps"),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestRoundedUp(t *testing.T) {
	for x, want := range map[float64]string{
		3.2401: "3.3", 3.3: "3.3", 0.193: "0.20", 0.0511: "0.052", 138.1: "140", 99.5: "100",
		1: "1.0", 1e-5: "0.000010", 1234: "1300",
	} {
		got := RoundedUp(x)
		if value, err := strconv.ParseFloat(got, 64); got != want || err != nil ||
			value < x*(1-1e-9) {
			t.Errorf("%g becomes %s, want %s", x, got, want)
		}
	}
}

func TestTimes(t *testing.T) {
	const ms = time.Millisecond
	for want, got := range map[string]string{
		"0s": Duration(0), "1.2s": Duration(1249 * ms), "9.9s": Duration(9949 * ms),
		"10s": Duration(9960 * ms), "1m": Duration(59600 * ms), "1h": Duration(3599600 * ms),
		"1h30m": Duration(90 * time.Minute), "0.25 s": ShortSeconds(0.25),
		"300 s":   ShortSeconds(300),
		"9.12 ms": Milliseconds(0.00912), "182.1 ms": Milliseconds(0.1821),
		"1.25 s": Milliseconds(1.25),
		"0 s":    Span(0, false, math.Round), "90 s": Span(89.6, false, math.Round),
		"2 min": Span(120, false, math.Round), "2.5 min": Span(150, false, math.Round),
		"20 min": Span(1185, false, math.Round), "2 h": Span(7200, false, math.Round),
		"3.5 h": Span(12600, false, math.Round), "24 h": Span(86400, false, math.Round),
		"5 days": Span(5*86400, false, math.Round), "40 steps": Span(39.2, true, math.Ceil),
		"28-31 min": SpanRange(1700, 1850, false), "28 min": SpanRange(1680, 1680, false),
		"step 90": Point(90, true), "5 min": Point(300, false),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestName(t *testing.T) {
	for name, want := range map[string]string{
		"train.py": "train.py", "a\x1b[31mb\n": "a?[31mb?", "a\xffb": "a?b", "\u202eexe": "?exe",
		strings.Repeat("ä", 151): strings.Repeat("ä", 150) + "…",
	} {
		if got := Name(name); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestThousands(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0", 999: "999", 1000: "1,000", 10_512: "10,512", 1_234_567: "1,234,567",
		-999: "-999", -1000: "-1,000",
	} {
		if got := Thousands(n); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
}
