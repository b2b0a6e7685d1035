package flagvalue

import (
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

func TestIntervalParse(t *testing.T) {
	for text, want := range map[string]uint64{
		"1": 1, "4096": 4096, "1b": 1, "64K": 64 << 10, "64k": 64 << 10, "64KB": 64e3,
		"64KiB": 64 << 10, "64kib": 64 << 10,
		"2M": 2 << 20, "2MiB": 2 << 20, "1.5 MiB": 3 << 19, "2MB": 2e6, "0.5GB": 5e8, "0.5KiB": 512, "1GiB": 1 << 30,
		"auto": 0,
	} {
		size := Interval(7)
		if err := size.Set(text); err != nil || uint64(size) != want {
			t.Errorf("%q is %d, %v; want %d", text, size, err, want)
		}
	}
}

func TestOverheadParse(t *testing.T) {
	for text, want := range map[string]struct {
		share float64
		text  string
	}{
		"3%": {0.03, "3%"}, "3": {0.03, "3%"}, "3 %": {0.03, "3%"}, "0.5%": {0.005, "0.5%"},
		"10%": {0.1, "10%"}, "7": {0.07, "7%"}, "100%": {1, "100%"},
		"1e-3": {0.00001, "0.001%"}, "off": {0, "off"},
	} {
		again, o := Overhead(9), Overhead(9)
		if err := o.Set(text); err != nil || math.Abs(o.Share()-want.share) > 1e-12 ||
			o.String() != want.text {
			t.Errorf("%q is %v, printed as %q, %v; want %v, %q", text, o.Share(), o.String(), err,
				want.share, want.text)
		}

		if err := again.Set(o.String()); err != nil || again != o {
			t.Errorf("%q is printed as %q and parsed as %v, %v", text, o.String(), again, err)
		}
	}
}

func TestIntervalRoundTrip(t *testing.T) {
	for shift := range 33 {
		for _, value := range []uint64{1 << shift, 3 << shift, 1<<shift - 1} {
			if value < 1 || value > 1<<30 {
				continue
			}
			before, after := Interval(value), Interval(0)
			if err := after.Set(before.String()); err != nil || after != before {
				t.Errorf("%d is printed as %q and parsed as %d, %v", value, before.String(), after,
					err)
			}
		}
	}
}

func TestDurationParse(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"300": 5 * time.Minute, "0.5": 500 * time.Millisecond, "90s": 90 * time.Second,
		"5m": 5 * time.Minute, "1h30m": 90 * time.Minute, "100ms": 100 * time.Millisecond,
		"604800": 7 * 24 * time.Hour, "168h": 7 * 24 * time.Hour,
	} {
		var d Duration
		if err := d.Set(text); err != nil || time.Duration(d) != want {
			t.Errorf("%q is %s, %v; want %s", text, time.Duration(d), err, want)
		}
	}
}

func TestDurationRoundTrip(t *testing.T) {
	for _, want := range []string{
		"0.5s", "1s", "2.5s", "10s", "59s", "1m", "1m1s", "10m", "59m59s",
		"1h", "1h30m", "1h0m30s", "1h1m1s", "10h", "100h", "168h",
	} {
		var d Duration
		if err := d.Set(want); err != nil {
			t.Errorf("%s: %v", want, err)
		}
		if want = strings.Replace(want, "0.5s", "500ms", 1); d.String() != want {
			t.Errorf("%s is printed as %q", want, d.String())
		}
	}

	var none Duration
	if none.String() != "" {
		t.Errorf("no duration is printed as %q", none.String())
	}
}

func TestSizeRatePointParse(t *testing.T) {
	for text, want := range map[string]float64{
		"32GB": 32e9, "30 GiB": 30 << 30, "9,432MB": 9432e6,
		"4096": 4096,
	} {
		var size Size
		if err := size.Set(text); err != nil || size.Bytes != want || size.String() != text {
			t.Errorf("%q is %v, %v", text, size, err)
		}
	}

	for text, want := range map[string]Rate{
		"600MB/min": {600e6, time.Minute, ""},
		"1GiB/h":    {1 << 30, time.Hour, ""}, "5kb / s": {5e3, time.Second, ""},
		"2MB/step": {2e6, 0, ""},
	} {
		var rate Rate
		if want.text = text; rate.Set(text) != nil || rate != want || rate.String() != text {
			t.Errorf("%q is %+v", text, rate)
		}
	}

	for text, want := range map[string]Point{
		"300": {300, false, ""}, "0": {0, false, ""},
		"5m": {300, true, ""}, "1h30m": {5400, true, ""},
	} {
		var point Point
		if want.Text = text; point.Set(text) != nil || point != want || point.String() != text {
			t.Errorf("%q is %+v", text, point)
		}
	}
}

// A value that is refused is named, and changes nothing.
func TestRefused(t *testing.T) {
	interval, overhead, duration := Interval(7), Overhead(7), Duration(7)
	for _, c := range []struct {
		value pflag.Value
		says  string
		texts []string
	}{
		{&interval, "", []string{
			"", " ", "0", "-1", "Auto", "auto ", "off", "0KiB", "1.5", "0.3KiB", "1073741825", "1TiB",
			"many", "KiB", "1 2", "1XiB", "NaN", "Inf", "-Inf", "1e300", "0x10", "1KiBKiB",
		}},
		{&overhead, "write 3%, 0.5%, off", []string{
			"", " ", "%", "0", "0%", "-1", "-3%", "100.1%", "101", "1e300",
			"NaN", "Inf", "-Inf%", "little", "3%%", "3 % 4", "3 MiB", "OFF", "auto",
		}},
		{&duration, "", []string{
			"", "0", "0s", "-1", "-5m", "5 m", "5d", "long", "NaN", "Inf",
			"-Inf", "1e300", "1e-12", "9223372037",
		}},
		{&Size{7, "7"}, "", []string{"", "0", "-1GB", "GB", "many", "1e30", "NaN"}},
		{&Rate{bytes: 7}, "", []string{
			"", "5MB", "5MB/week", "/min", "0MB/min", "-5MB/min", "5/5/min",
		}},
		{&Point{number: 7}, "", []string{"", "-1", "-5m", "NaN", "Inf", "later", "1e300"}},
	} {
		held := reflect.ValueOf(c.value).Elem()
		before := held.Interface()
		for _, text := range c.texts {
			err := c.value.Set(text)
			if err == nil || held.Interface() != before || !strings.Contains(err.Error(), `"`+text+`"`) ||
				!strings.Contains(err.Error(), c.says) {
				t.Errorf("%q becomes %+v, %v", text, held, err)
			}
		}
	}
}
