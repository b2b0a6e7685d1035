package series

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const (
	maxSize   = 1 << 60 // bytes
	maxX      = 1e15    // seconds or steps
	maxDigits = 128     // characters of a number
)

// sizeUnits are in bytes. KB, MB, … are powers of 1000. KiB, MiB, … are powers of 1024, and so are
// the bare letters, as in ps, top and docker.
var sizeUnits = map[string]float64{
	"b": 1, "byte": 1, "bytes": 1,
	"kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12,
	"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40,
	"ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30, "ti": 1 << 40,
	"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40,
}

// A timeUnit is the unit of X.
type timeUnit struct {
	seconds  float64 // 0: unknown, or steps
	steps    bool
	explicit bool // the name or the user states it
}

var timeUnits = map[string]timeUnit{
	"ns": in(1e-9), "us": in(1e-6), "ms": in(1e-3), "msec": in(1e-3),
	"s": in(1), "sec": in(1), "secs": in(1), "second": in(1), "seconds": in(1),
	"min": in(60), "mins": in(60), "minute": in(60), "minutes": in(60),
	"h": in(3600), "hour": in(3600), "hours": in(3600),
	"step": {steps: true, explicit: true}, "steps": {steps: true, explicit: true},
}

func in(seconds float64) timeUnit { return timeUnit{seconds: seconds, explicit: true} }

// unitOf looks up the unit that follows a number. No text is the zero unit.
func unitOf[U any](text string, units map[string]U) (unit U, ok bool) {
	text = strings.TrimSpace(text)
	unit, ok = units[strings.ToLower(text)]
	return unit, ok || text == ""
}

// thousands matches a number whose commas all separate groups of three digits.
var thousands = regexp.MustCompile(`^[+-]?[0-9]+(,[0-9]{3})+([.eE]|$)`)

// number parses the decimal number at the beginning of text, and returns its length, 0 if there is
// none. Commas may separate thousands. Words such as NaN are no numbers. A number that is out of
// range is infinite.
func number(text string) (value float64, length int) {
	rest := strings.TrimLeft(text, "+-.,0123456789eE")
	digits := text[:min(len(text)-len(rest), maxDigits)]
	commas := strings.Count(digits, ",")

	if commas > 0 && !thousands.MatchString(digits) {
		digits, _, _ = strings.Cut(digits, ",")
		commas = 0
	}

	digits = strings.ReplaceAll(digits, ",", "")
	for n := len(digits); n > 0; n-- {
		value, err := strconv.ParseFloat(digits[:n], 64)
		if !errors.Is(err, strconv.ErrSyntax) {
			return value, n + commas
		}
	}

	return 0, 0
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// ParseSize parses a size in bytes, with or without a unit: "32GB", "9,432 MiB", "4096". KB, MB and
// GB are powers of 1000; KiB, MiB, GiB and the bare letters are powers of 1024.
func ParseSize(text string) (bytes float64, err error) {
	return parseSize(strings.TrimSpace(text), 1)
}

// parseSize parses a cell in bytes, NaN if it is a gap. unit is the unit of numbers without one; 0:
// unknown.
func parseSize(cell string, unit float64) (float64, error) {
	value, n := number(cell)
	own, ok := unitOf(cell[n:], sizeUnits)

	switch {
	case isGap(cell):
		return math.NaN(), nil
	case n == 0 || !ok:
		return 0, notA("size", cell)
	case value < 0:
		return 0, fmt.Errorf("%s is negative", quote(cell))
	case own != 0:
		unit = own
	}

	switch bytes := value * unit; {
	case unit == 0:
		return 0, errors.New("the unit of the sizes is unknown (say --unit bytes, KiB, MB, MiB, " +
			"GB or GiB)")
	case bytes > maxSize:
		return 0, fmt.Errorf("%s is too large for a size", quote(cell))
	default:
		return bytes, nil
	}
}

// gaps are the cells without a value, in lower case.
var gaps = []string{"", "-", "nan", "na", "n/a", "null", "none", "?"}

func isGap(cell string) bool {
	isCell := func(gap string) bool { return strings.EqualFold(cell, gap) }
	return slices.ContainsFunc(gaps, isCell)
}

// isValue reports whether a cell is a number, with or without a unit, a date or a time of day.
func isValue(cell string) bool {
	_, n := number(cell)
	_, isSize := unitOf(cell[n:], sizeUnits)
	_, isTime := unitOf(cell[n:], timeUnits)
	return n > 0 && (isSize || isTime || strings.Trim(cell, "0123456789:.,+-/TZ ") == "")
}

func isText(cell string) bool { return !isGap(cell) && !isValue(cell) }

func notA(what, cell string) error { return fmt.Errorf("%s is not a %s", quote(cell), what) }

// quote escapes text of the file, and truncates it.
func quote(cell string) string {
	const limit = 40
	if len(cell) > limit {
		return strconv.QuoteToASCII(cell[:limit]) + "…"
	}
	return strconv.QuoteToASCII(cell)
}
