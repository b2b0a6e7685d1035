package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/allocscope/allocscope/export/series"
	"github.com/allocscope/allocscope/export/units"
)

// intervalValue is a flag that takes a size with a unit: 1, 64KiB, 2MiB, 1.5 GiB; or "auto", which is 0. K, KB and KiB all mean 1024
// bytes.
type intervalValue uint64

const auto = "auto"

// Type names the value in the help text.
func (b *intervalValue) Type() string { return "size" }

func (b *intervalValue) String() string {
	if *b == 0 {
		return auto
	}
	for i, unit := range []string{"GiB", "MiB", "KiB"} {
		if size := uint64(1) << (30 - 10*i); uint64(*b) >= size && uint64(*b)%size == 0 {
			return strconv.FormatUint(uint64(*b)/size, 10) + unit
		}
	}
	return strconv.FormatUint(uint64(*b), 10)
}

// Set parses a size.
func (b *intervalValue) Set(text string) error {
	if text == auto {
		*b = 0
		return nil
	}
	number := strings.TrimRight(text, "KMGTkmgtiIbB ")
	unit := strings.ToLower(strings.TrimSpace(text[len(number):]))
	shift, ok := map[string]int{"": 0, "b": 0, "k": 10, "kb": 10, "kib": 10, "m": 20, "mb": 20, "mib": 20, "g": 30, "gb": 30, "gib": 30}[unit]
	value, err := strconv.ParseFloat(number, 64)
	if !ok || err != nil {
		return fmt.Errorf("%q is not a size (write auto, 1, 64KiB, 2MiB)", text)
	}
	value *= float64(uint64(1) << shift)
	if !(value >= 1 && value <= 1<<30) || value != math.Trunc(value) {
		return fmt.Errorf("%q is not between 1 byte and 1 GiB", text)
	}
	*b = intervalValue(value)
	return nil
}

// overheadValue is a flag that takes a share of the traced CPU time in percent: 3%, 0.5, 10%; or "off", which is 0.
type overheadValue float64

const off = "off"

// Type names the value in the help text.
func (o *overheadValue) Type() string { return "percent" }

func (o *overheadValue) String() string {
	if *o == 0 {
		return off
	}
	return strconv.FormatFloat(float64(*o), 'f', -1, 64) + "%"
}

// Set parses a share.
func (o *overheadValue) Set(text string) error {
	if text == off {
		*o = 0
		return nil
	}
	value, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(text, "%")), 64)
	if err != nil {
		return fmt.Errorf("%q is not a share of the CPU time (write 3%%, 0.5%%, off)", text)
	}
	if !(value > 0 && value <= 100) {
		return fmt.Errorf("%q is not above 0 %% and at most 100 %% (write 3%%, 0.5%%, off)", text)
	}
	*o = overheadValue(value)
	return nil
}

// share of 1; 0: no limit.
func (o overheadValue) share() float64 { return float64(o) / 100 }

// durationValue is a flag that takes a duration with a unit, or seconds: 300, 5m, 1h30m.
type durationValue time.Duration

// Type names the value in the help text.
func (d *durationValue) Type() string { return "duration" }

func (d *durationValue) String() string {
	if *d == 0 {
		return ""
	}
	return units.Duration(time.Duration(*d))
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
