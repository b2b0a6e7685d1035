package series

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

const (
	maxSize = 1 << 60 // bytes
	maxX    = 1e15    // seconds or steps
)

// sizeUnits in bytes. KB, MB, … are powers of 1000, KiB, MiB, … of 1024, and so are the bare letters, as in ps, top and docker.
var sizeUnits = map[string]float64{
	"b": 1, "byte": 1, "bytes": 1,
	"kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12,
	"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40,
	"ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30, "ti": 1 << 40,
	"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40,
}

// A timeUnit is what one on an axis stands for.
type timeUnit struct {
	seconds  float64 // 0: not told, or steps
	steps    bool
	explicit bool // told, not usual
}

var timeUnits = map[string]timeUnit{
	"ns": in(1e-9), "us": in(1e-6), "ms": in(1e-3), "msec": in(1e-3), "s": in(1), "sec": in(1), "secs": in(1), "second": in(1), "seconds": in(1),
	"min": in(60), "mins": in(60), "minute": in(60), "minutes": in(60), "h": in(3600), "hour": in(3600), "hours": in(3600),
	"step": {steps: true, explicit: true}, "steps": {steps: true, explicit: true},
}

func in(seconds float64) timeUnit { return timeUnit{seconds: seconds, explicit: true} }

func sizeUnit(name string) (bytes float64, ok bool) {
	bytes, ok = sizeUnits[strings.ToLower(name)]
	return bytes, ok
}

// unitAt reads the unit that follows a number, of sizes or of times, whatever its case. Nothing is the zero unit.
func unitAt[U any](text []byte, units map[string]U) (unit U, ok bool) {
	text = bytes.TrimSpace(text)
	if len(text) == 0 {
		return unit, true
	}
	var lower [8]byte
	if len(text) > len(lower) {
		return unit, false
	}
	for i, c := range text {
		if c >= 'A' && c <= 'Z' {
			c += 'a' - 'A'
		}
		lower[i] = c
	}
	unit, ok = units[string(lower[:len(text)])]
	return unit, ok
}

// ParseSize reads a size with its unit, in bytes: "32GB", "9,432 MiB", "4096". KB, MB and GB are powers of 1000; KiB, MiB, GiB
// and the bare letters are powers of 1024; no unit is bytes.
func ParseSize(text string) (bytes float64, err error) {
	bytes, err = parseSize([]byte(strings.TrimSpace(text)), 1)
	return bytes, err
}

// errNoUnit says that neither the file nor the user tells the unit of sizes.
var errNoUnit = errors.New("the unit of the sizes is not told (say --unit bytes, KiB, MB, MiB, GB or GiB)")

// parseSize reads a cell in bytes. unit is that of numbers that carry none; 0: unknown.
func parseSize(cell []byte, unit float64) (float64, error) {
	value, n := number(cell)
	if n == 0 {
		return gap(cell, "size")
	}
	if n < len(cell) {
		own, ok := unitAt(cell[n:], sizeUnits)
		if !ok {
			return 0, notA("size", cell)
		}
		if own != 0 {
			unit = own
		}
	}
	if value < 0 {
		return 0, fmt.Errorf("%s is negative", quote(cell))
	}
	if unit == 0 {
		return 0, errNoUnit
	}
	if value *= unit; !(value <= maxSize) {
		return 0, fmt.Errorf("%s is too large for a size", quote(cell))
	}
	return value, nil
}

// gap is NaN where a cell says that there is no value, an error where it says something else.
func gap(cell []byte, what string) (float64, error) {
	switch strings.ToLower(string(cell[:min(len(cell), 5)])) {
	case "", "-", "nan", "na", "n/a", "null", "none", "?":
		return math.NaN(), nil
	}
	return 0, notA(what, cell)
}

func notA(what string, cell []byte) error { return fmt.Errorf("%s is not a %s", quote(cell), what) }

// quote escapes what a file says and cuts it short.
func quote(cell []byte) string {
	const most = 40
	if len(cell) > most {
		return strconv.QuoteToASCII(string(cell[:most])) + "…"
	}
	return strconv.QuoteToASCII(string(cell))
}
