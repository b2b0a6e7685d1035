package series

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

const (
	maxSize = 1 << 60 // bytes
	maxX    = 1e15    // seconds or steps
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
	if text == "" {
		return unit, true
	}

	if len(text) > len("seconds ") {
		return unit, false
	}

	unit, ok = units[strings.ToLower(text)]
	return unit, ok
}

var (
	wholePart    = regexp.MustCompile(`^[+-]?(?:[0-9]+(?:,[0-9]{3})*)?`)
	fractionPart = regexp.MustCompile(`^\.?[0-9]*(?:[eE][+-]?[0-9]+)?`)
)

// number parses the decimal number at the beginning of text, and returns its length, 0 if there is
// none. Commas may separate thousands. Words such as NaN are no numbers. A number that is out of
// range is infinite.
func number(text string) (value float64, length int) {
	if strings.Trim(text, "+-.0123456789") == "" {
		if value, err := strconv.ParseFloat(text, 64); err == nil {
			return value, len(text)
		}
	}

	n := len(wholePart.FindString(text))
	for n >= len(",000") && n < len(text) && isDigit(text[n]) { // ",000" has a fourth digit
		n -= len(",000")
	}

	n += len(fractionPart.FindString(text[n:]))

	value, err := strconv.ParseFloat(strings.ReplaceAll(text[:n], ",", ""), 64)
	if errors.Is(err, strconv.ErrSyntax) {
		return 0, 0
	}

	return value, n
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// ParseSize parses a size in bytes, with or without a unit: "32GB", "9,432 MiB", "4096". KB, MB and
// GB are powers of 1000; KiB, MiB, GiB and the bare letters are powers of 1024.
func ParseSize(text string) (bytes float64, err error) {
	return parseSize(strings.TrimSpace(text), 1)
}

// parseSize parses a cell in bytes. unit is that of numbers without one; 0: unknown.
func parseSize(cell string, unit float64) (float64, error) {
	value, n := number(cell)
	if n == 0 {
		return parseGap(cell, "size")
	}

	own, ok := unitOf(cell[n:], sizeUnits)
	switch {
	case !ok:
		return 0, notA("size", cell)
	case own != 0:
		unit = own
	}

	switch value *= unit; {
	case value < 0 || strings.HasPrefix(cell, "-") && unit == 0:
		return 0, fmt.Errorf("%s is negative", quote(cell))
	case unit == 0:
		return 0, errors.New("the unit of the sizes is unknown (say --unit bytes, KiB, MB, MiB, GB " +
			"or GiB)")
	case !(value <= maxSize):
		return 0, fmt.Errorf("%s is too large for a size", quote(cell))
	}

	return value, nil
}

// parseGap returns NaN for a cell without a value, and an error for any other text.
func parseGap(cell, what string) (float64, error) {
	switch strings.ToLower(cell[:min(len(cell), 5)]) {
	case "", "-", "nan", "na", "n/a", "null", "none", "?":
		return math.NaN(), nil
	}
	return 0, notA(what, cell)
}

func notA(what, cell string) error { return fmt.Errorf("%s is not a %s", quote(cell), what) }

// quote escapes text of the file, and truncates it.
func quote(cell string) string {
	const limit = 40
	if len(cell) > limit {
		return strconv.QuoteToASCII(cell[:limit]) + "…"
	}
	return strconv.QuoteToASCII(cell)
}

// xNames and yNames are the usual names of times and sizes, without units, the preferred ones
// first.
var (
	timeNames = strings.Fields("time elapsed elapsed_time timestamp ts t date datetime uptime " +
		"wall_time relative_time")
	stepNames = strings.Fields("step steps global_step iteration iterations iter it batch")
	xNames    = slices.Concat(timeNames,
		strings.Fields("seconds second secs sec s ms minutes min hours"), stepNames)
	yNames = strings.Fields(`rss vmrss resident resident_memory process_resident_memory rss_total total_rss
		uss private pss real mem memory memory_usage mem_usage used heap heap_size`)
)

// A name is the parsed name of a column.
type name struct {
	text string
	base string   // lower case, without the unit, words joined by "_"
	size float64  // bytes; 0: the name has no unit of size
	time timeUnit // zero: the name has no unit of time
}

// nameOf parses names such as "rss_mb", "Elapsed time (s)" and "rss (KiB)".
func nameOf(text string) name {
	words := strings.FieldsFunc(strings.ToLower(text), func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r)
	})
	n := name{text: text}
	if len(words) == 0 {
		return n
	}

	before, last := words[:len(words)-1], words[len(words)-1]
	if !strings.Contains("kmgt", last) { // these letters are no units in names
		n.size = sizeUnits[last]
	}

	unit := timeUnits[last]
	isStep := func(word string) bool { return !unit.steps && slices.Contains(stepNames, word) }
	if !slices.ContainsFunc(before, isStep) {
		n.time = unit
	}

	if len(before) > 0 && (n.size != 0 || n.time.explicit && !unit.steps) {
		words = before
	}

	n.base = strings.Join(words, "_")

	switch {
	case n.time.explicit:
	case slices.Contains(timeNames, n.base):
		n.time = timeUnit{seconds: 1}
	case slices.Contains(stepNames, n.base):
		n.time = timeUnits["steps"]
	}

	return n
}

// sizeUnit is the unit of sizes in bytes; 0: unknown. Some tools name another unit than they write:
// /proc writes KiB as kB, and psrecord MiB as MB.
func (n name) sizeUnit() float64 {
	switch {
	case n.base == "vmrss":
		return sizeUnits["kib"]
	case n.base == "real" && n.size == sizeUnits["mb"]:
		return sizeUnits["mib"]
	}
	return n.size
}

// findColumn returns the column that the user wants, or the one with the most usual name; -1 if
// none has such a name. The error is that the wanted column is not there.
func findColumn(columns []string, want string, usual []string) (int, error) {
	if want == "" {
		for _, base := range usual {
			hasBase := func(c string) bool { return nameOf(c).base == base }
			if i := slices.IndexFunc(columns, hasBase); i >= 0 {
				return i, nil
			}
		}
		return -1, nil
	}

	isWanted := func(c string) bool { return strings.EqualFold(c, want) }
	if i := slices.IndexFunc(columns, isWanted); i >= 0 {
		return i, nil
	}

	if i, err := strconv.Atoi(want); err == nil && i >= 1 && i <= len(columns) {
		return i - 1, nil
	}

	return -1, fmt.Errorf("find column %.40q: there are %s", want, columnList(columns))
}

// columnList names columns in an error.
func columnList(columns []string) string {
	const limit = 12
	var quoted []string
	for _, c := range columns[:min(limit, len(columns))] {
		quoted = append(quoted, quote(c))
	}

	if len(columns) > limit {
		quoted = append(quoted, fmt.Sprintf("%d more", len(columns)-limit))
	}

	return strings.Join(quoted, ", ")
}
