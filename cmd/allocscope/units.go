package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/allocscope/allocscope/export/series"
)

// bytesValue is a flag that takes a size with a unit: 1, 64KiB, 2MiB, 1.5 GiB. K, KB and KiB all mean 1024 bytes.
type bytesValue uint64

// Type names the value in the help text.
func (b *bytesValue) Type() string { return "size" }

func (b *bytesValue) String() string {
	for i, unit := range []string{"GiB", "MiB", "KiB"} {
		if size := uint64(1) << (30 - 10*i); uint64(*b) >= size && uint64(*b)%size == 0 {
			return strconv.FormatUint(uint64(*b)/size, 10) + unit
		}
	}
	return strconv.FormatUint(uint64(*b), 10)
}

// Set parses a size.
func (b *bytesValue) Set(text string) error {
	number := strings.TrimRight(text, "KMGTkmgtiIbB ")
	unit := strings.ToLower(strings.TrimSpace(text[len(number):]))
	shift, ok := map[string]int{"": 0, "b": 0, "k": 10, "kb": 10, "kib": 10, "m": 20, "mb": 20, "mib": 20, "g": 30, "gb": 30, "gib": 30}[unit]
	value, err := strconv.ParseFloat(number, 64)
	if !ok || err != nil {
		return fmt.Errorf("%q is not a size (write 1, 64KiB, 2MiB)", text)
	}
	value *= float64(uint64(1) << shift)
	if !(value >= 1 && value <= 1<<30) || value != math.Trunc(value) {
		return fmt.Errorf("%q is not between 1 byte and 1 GiB", text)
	}
	*b = bytesValue(value)
	return nil
}

// durationValue is a flag that takes a duration with a unit, or seconds: 300, 5m, 1h30m.
type durationValue time.Duration

// Type names the value in the help text.
func (d *durationValue) Type() string { return "duration" }

func (d *durationValue) String() string {
	if *d == 0 {
		return ""
	}
	return shortDuration(time.Duration(*d))
}

// Set parses a duration.
func (d *durationValue) Set(text string) error {
	value, err := time.ParseDuration(text)
	if seconds, e := strconv.ParseFloat(text, 64); e == nil {
		value, err = time.Duration(seconds*float64(time.Second)), nil
	}
	if err != nil || value <= 0 {
		return fmt.Errorf("%q is not a duration (write 300, 90s, 5m, 1h30m)", text)
	}
	*d = durationValue(value)
	return nil
}

// shortDuration writes a duration without zero parts: 5m, 1h30m, 2.5s.
func shortDuration(d time.Duration) string {
	if d >= 10*time.Second {
		d = d.Round(time.Second)
	} else {
		d = d.Round(100 * time.Millisecond)
	}
	text := d.String()
	text = strings.TrimSuffix(text, "m0s")
	if len(text) < len(d.String()) {
		text += "m"
	}
	if short, ok := strings.CutSuffix(text, "h0m"); ok {
		text = short + "h"
	}
	return text
}

// formatBytes writes a size for people, with three significant digits.
func formatBytes(bytes float64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	i := 0
	for ; math.Abs(bytes) >= 1000 && i < len(units)-1; i++ {
		bytes /= 1024
	}
	switch size := math.Abs(bytes); {
	case i == 0 || size >= 100:
		return fmt.Sprintf("%.0f %s", bytes, units[i])
	case size >= 10:
		return fmt.Sprintf("%.1f %s", bytes, units[i])
	}
	return fmt.Sprintf("%.2f %s", bytes, units[i])
}

// formatSigned is formatBytes with a sign.
func formatSigned(bytes float64) string {
	if bytes > 0 {
		return "+" + formatBytes(bytes)
	}
	return formatBytes(bytes)
}

// formatCount writes a count for people: 950, 12.3 k, 4.5 M.
func formatCount(n float64) string {
	switch {
	case n >= 1e9:
		return fmt.Sprintf("%.1f G", n/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%.1f M", n/1e6)
	case n >= 1e4:
		return fmt.Sprintf("%.1f k", n/1e3)
	}
	return fmt.Sprintf("%.0f", n)
}

// roundedUp writes a positive number with two significant digits, never smaller than it is.
func roundedUp(x float64) string {
	scale := math.Pow(10, 1-math.Floor(math.Log10(x)))
	return strconv.FormatFloat(math.Ceil(x*scale*(1-1e-12))/scale, 'f', max(0, int(math.Round(math.Log10(scale)))), 64)
}

// A lengthUnit is a unit for lengths of time, or of steps, for people.
type lengthUnit struct {
	unit string
	size float64 // seconds or steps
}

// spanOf chooses the unit in which a length has about two digits.
func spanOf(x float64, steps bool) lengthUnit {
	const minute, hour, day = 60, 3600, 24 * 3600
	switch {
	case steps:
		return lengthUnit{"steps", 1}
	case x < 2*minute:
		return lengthUnit{"s", 1}
	case x < 2*hour:
		return lengthUnit{"min", minute}
	case x < 3*day:
		return lengthUnit{"h", hour}
	}
	return lengthUnit{"days", day}
}

// number writes a length in the unit, rounded by round: in tenths below ten, else whole.
func (s lengthUnit) number(x float64, round func(float64) float64) string {
	x /= s.size
	if s.unit == "steps" || s.unit == "s" || x >= 10 {
		return strconv.FormatFloat(round(x), 'f', -1, 64)
	}
	return strconv.FormatFloat(round(10*x)/10, 'f', -1, 64)
}

// spanText is a length for people, in seconds or steps: "45 s", "20 min", "3.5 h", "40 steps".
func spanText(x float64, steps bool, round func(float64) float64) string {
	s := spanOf(x, steps)
	return s.number(x, round) + " " + s.unit
}

// spanRange is the range between two lengths: "28 to 31 min".
func spanRange(low, high float64, steps bool) string {
	s := spanOf(high, steps)
	from, to := s.number(low, math.Floor), s.number(high, math.Ceil)
	if from == to {
		return to + " " + s.unit
	}
	return from + " to " + to + " " + s.unit
}

// pointText is a place on the axis of a series: "5 min", "step 90".
func pointText(x float64, steps bool) string {
	if steps {
		return "step " + strconv.FormatFloat(x, 'f', -1, 64)
	}
	s := spanOf(x, false)
	return s.number(x, math.Round) + " " + s.unit
}

// sizeValue is a flag that takes a size of any magnitude, with the units of files: GB is 10^9 bytes, GiB is 2^30.
type sizeValue struct {
	bytes float64 // 0: none was given
	text  string
}

// Type names the value in the help text.
func (s *sizeValue) Type() string { return "size" }

func (s *sizeValue) String() string { return s.text }

// Set parses a size.
func (s *sizeValue) Set(text string) error {
	bytes, err := series.ParseSize(text)
	if err != nil || !(bytes > 0) {
		return fmt.Errorf("%q is not a size (write 32GB, 30GiB, 500MB)", text)
	}
	*s = sizeValue{bytes, text}
	return nil
}

// rateValue is a flag that takes a rate: 10MB/min, 5MiB/step.
type rateValue struct {
	bytes float64
	per   time.Duration // 0: per step
	text  string        // "": none was given
}

// Type names the value in the help text.
func (r *rateValue) Type() string { return "rate" }

func (r *rateValue) String() string { return r.text }

// Set parses a rate.
func (r *rateValue) Set(text string) error {
	size, unit, _ := strings.Cut(text, "/")
	per, ok := map[string]time.Duration{"s": time.Second, "min": time.Minute, "h": time.Hour, "step": 0}[strings.TrimSpace(unit)]
	bytes, err := series.ParseSize(size)
	if !ok || err != nil || !(bytes > 0) {
		return fmt.Errorf("%q is not a rate (write 10MB/min, 2GiB/h, 5MB/step)", text)
	}
	*r = rateValue{bytes, per, text}
	return nil
}

// pointValue is a flag that takes a place on the axis of a series, or a length: 300, 5m, 1h30m. A number without a unit is in the
// series' own unit: seconds or steps.
type pointValue struct {
	number float64 // steps or seconds; seconds if timed
	timed  bool
	text   string // "": none was given
}

// Type names the value in the help text.
func (p *pointValue) Type() string { return "duration" }

func (p *pointValue) String() string { return p.text }

// Set parses a place or a length.
func (p *pointValue) Set(text string) error {
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
	*p = pointValue{number, timed, text}
	return nil
}
