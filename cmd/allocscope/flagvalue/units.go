// Package flagvalue has the values of flags: sizes, rates, durations, rules and verdicts. A value
// that cannot be parsed leaves the flag as it was.
package flagvalue

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/allocscope/allocscope/export/series"
	"github.com/allocscope/allocscope/export/units"
)

// Interval is a sampling interval in bytes: 1, 64KiB, 2MB, 1.5 GiB, with the units of Size; or
// "auto", which is 0.
type Interval uint64

const autoInterval = "auto"

// Type implements pflag.Value.
func (b *Interval) Type() string { return "size" }

// String implements pflag.Value.
func (b *Interval) String() string {
	if *b == 0 {
		return autoInterval
	}
	return units.ExactBytes(uint64(*b))
}

// Set implements pflag.Value.
func (b *Interval) Set(text string) error {
	if text == autoInterval {
		*b = 0
		return nil
	}

	value, err := series.ParseSize(text)
	if err != nil || math.IsNaN(value) {
		return fmt.Errorf("%q is not a size (write auto, 1, 64KiB, 2MiB)", text)
	}

	if !(value >= 1 && value <= 1<<30) || value != math.Trunc(value) {
		return fmt.Errorf("%q is not between 1 byte and 1 GiB", text)
	}

	*b = Interval(value)
	return nil
}

// Overhead is a share of the traced CPU time in percent: 3%, 0.5, 10%; or "off", which is 0.
type Overhead float64

const overheadOff = "off"

// Type implements pflag.Value.
func (o *Overhead) Type() string { return "percent" }

// String implements pflag.Value.
func (o *Overhead) String() string {
	if *o == 0 {
		return overheadOff
	}
	return strconv.FormatFloat(float64(*o), 'f', -1, 64) + "%"
}

// Set implements pflag.Value.
func (o *Overhead) Set(text string) error {
	if text == overheadOff {
		*o = 0
		return nil
	}

	value, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(text, "%")), 64)
	if err != nil {
		return fmt.Errorf("%q is not a share of the CPU time (write 3%%, 0.5%%, off)", text)
	}

	if !(value > 0 && value <= 100) {
		return fmt.Errorf("%q is not above 0%% and at most 100%% (write 3%%, 0.5%%, off)", text)
	}

	*o = Overhead(value)
	return nil
}

// Share returns the limit as a share of 1; 0: no limit.
func (o Overhead) Share() float64 { return float64(o) / 100 }

// Share is a share of 1, in percent or as a number: 85%, 0.85.
type Share float64

// Type implements pflag.Value.
func (s *Share) Type() string { return "percent" }

// String implements pflag.Value.
func (s *Share) String() string {
	return strconv.FormatFloat(math.Round(float64(*s)*1e6)/1e4, 'f', -1, 64) + "%"
}

// Set implements pflag.Value.
func (s *Share) Set(text string) error {
	number, isPercent := strings.CutSuffix(text, "%")
	value, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if isPercent {
		value /= 100
	}
	if err != nil || !(value >= 0 && value < 1) {
		return fmt.Errorf("%q is not from 0%% to less than 100%% (write 85%%, 0.85)", text)
	}
	*s = Share(value)
	return nil
}

// Duration is a duration with a unit, or in seconds: 300, 5m, 1h30m. 0: none was given.
type Duration time.Duration

// Type implements pflag.Value.
func (d *Duration) Type() string { return "duration" }

// String implements pflag.Value.
func (d *Duration) String() string {
	if *d == 0 {
		return ""
	}
	return units.Duration(time.Duration(*d))
}

// Set implements pflag.Value.
func (d *Duration) Set(text string) error {
	value, err := time.ParseDuration(text)
	if seconds, e := strconv.ParseFloat(text, 64); e == nil {
		value, err = time.Duration(seconds*float64(time.Second)), nil
	}

	if err != nil || value <= 0 {
		return fmt.Errorf("%q is not a duration (write 300, 90s, 5m, 1h30m)", text)
	}

	*d = Duration(value)
	return nil
}

// Size is a size of any magnitude, with the units of files: GB is 10^9 bytes, GiB is 2^30.
type Size struct {
	Bytes float64 // 0: none was given
	text  string
}

// Type implements pflag.Value.
func (s *Size) Type() string { return "size" }

// String implements pflag.Value.
func (s *Size) String() string { return s.text }

// Set implements pflag.Value.
func (s *Size) Set(text string) error {
	bytes, err := series.ParseSize(text)
	if err != nil || !(bytes > 0) {
		return fmt.Errorf("%q is not a size (write 32GB, 30GiB, 500MB)", text)
	}
	*s = Size{bytes, text}
	return nil
}

// Rate is a growth rate: 10MB/min, 5MiB/step.
type Rate struct {
	bytes float64
	per   time.Duration // 0: per step
	text  string        // "": none was given
}

// Type implements pflag.Value.
func (r *Rate) Type() string { return "rate" }

// String implements pflag.Value.
func (r *Rate) String() string { return r.text }

// Set implements pflag.Value.
func (r *Rate) Set(text string) error {
	size, unit, _ := strings.Cut(text, "/")
	per, ok := map[string]time.Duration{
		"s": time.Second, "min": time.Minute, "h": time.Hour, "step": 0,
	}[strings.TrimSpace(unit)]
	bytes, err := series.ParseSize(size)
	if !ok || err != nil || !(bytes > 0) {
		return fmt.Errorf("%q is not a rate (write 10MB/min, 2GiB/h, 5MB/step)", text)
	}
	*r = Rate{bytes, per, text}
	return nil
}

// Point is a position on the axis of a series, or a length: 300, 5m, 1h30m. A number without a unit
// is in the unit of the series: seconds or steps.
type Point struct {
	number float64 // steps or seconds; seconds if timed
	timed  bool
	Text   string // "": none was given
}

// Type implements pflag.Value.
func (p *Point) Type() string { return "duration" }

// String implements pflag.Value.
func (p *Point) String() string { return p.Text }

// Set implements pflag.Value.
func (p *Point) Set(text string) error {
	number, err := strconv.ParseFloat(text, 64)
	timed := err != nil
	if timed {
		var length time.Duration
		length, err = time.ParseDuration(text)
		number = length.Seconds()
	}

	if err != nil || !(number >= 0 && number <= 1e12) {
		return fmt.Errorf("%q is neither a number nor a duration (write 300, 5m, 1h30m)", text)
	}

	*p = Point{number, timed, text}
	return nil
}
