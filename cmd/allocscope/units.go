package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
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
