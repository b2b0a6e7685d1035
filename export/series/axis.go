package series

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// The notations of times. A file has one.
const (
	numbers = "a number"
	dates   = "a date"
	clocks  = "hours, minutes and seconds"
)

// minEpoch is the number from which on seconds count from 1970: nothing runs for 30 years.
const minEpoch = 1e9

// An axis parses the times of a file.
type axis struct {
	timeUnit
	isSpan   bool     // clocks count from a start; false: they are times of day
	isAge    bool     // times are the age of the process
	isDate   bool     // times are dates or times of day, which count from the first sample
	notation string   // of the times so far; empty: there were none
	layouts  []string // of dates: all, or the layout of the first one
	last     float64  // seconds or steps
	days     float64  // seconds of the days that times of day have passed
}

// newAxis takes the unit from the options, else from the name of the column.
func newAxis(column name, o Options) *axis {
	a := &axis{timeUnit: column.time, layouts: dateLayouts}
	a.isSpan = column.base != "time" && column.base != "timestamp"
	if o.XUnit != "" {
		a.timeUnit = timeUnits[strings.ToLower(o.XUnit)]
	}
	return a
}

// parse parses a time in seconds, or a step, and checks it against those above.
func (a *axis) parse(cell string) (x float64, err error) {
	notation := numbers
	switch {
	case cell == "":
		return 0, errors.New("the time is missing")
	case startsWithDate(cell):
		notation = dates
		x, err = a.date(cell)
	case strings.Contains(cell, ":"):
		notation = clocks
		x, err = a.clock(cell)
	default:
		x, err = a.number(cell)
	}

	isFirst := a.notation == ""
	switch {
	case err != nil:
		return 0, err
	case !(math.Abs(x) <= maxX):
		return 0, errors.New("the time is out of range")
	case !isFirst && a.notation != notation:
		return 0, fmt.Errorf("the time is %s, and %s in the lines above", notation, a.notation)
	case !isFirst && a.isAge && x < a.last:
		return 0, errors.New("the age of the process falls: it is another one (cut the file there)")
	}

	a.notation, a.last = notation, x
	return x, nil
}

// number parses a number. A large one is a date, in seconds, milliseconds, microseconds or
// nanoseconds since 1970, unless the unit is explicit.
func (a *axis) number(cell string) (float64, error) {
	value, n := number(cell)
	unit, ok := unitOf(cell[n:], timeUnits)
	switch {
	case n == 0 || !ok || unit.steps:
		return 0, notA("time", cell)
	case n < len(cell):
		return value * unit.seconds, nil
	case a.steps:
		return value, nil
	}

	isFirst := a.notation == ""
	if isFirst && !a.explicit && value >= minEpoch {
		a.seconds = 1
		for limit := 1e11; value >= limit && limit < 1e18; limit *= 1e3 {
			a.seconds /= 1e3
		}
	}

	if a.seconds == 0 {
		return 0, errors.New("the unit of the times is unknown (say --x-unit s, ms, min, h " +
			"or steps)")
	}

	if isFirst {
		a.isDate = value*a.seconds >= minEpoch
	}

	return value * a.seconds, nil
}

var dateLayouts = []string{
	time.RFC3339, "2006-01-02T15:04:05", "2006-01-02T15:04:05Z0700", "2006-01-02 15:04:05",
	"2006-01-02 15:04:05Z07:00", "2006-01-02 15:04:05Z0700", "2006/01/02 15:04:05",
}

// startsWithDate recognises a date by its year.
func startsWithDate(cell string) bool {
	return len(cell) >= 10 && cell[4] == cell[7] && (cell[4] == '-' || cell[4] == '/') &&
		isDigit(cell[0])
}

// date parses a date and a time of day, in UTC without a zone.
func (a *axis) date(cell string) (float64, error) {
	for i, layout := range a.layouts {
		if t, err := time.Parse(layout, cell[:min(len(cell), 64)]); err == nil {
			a.layouts, a.isDate = a.layouts[i:i+1], true
			return float64(t.Unix()) + float64(t.Nanosecond())/1e9, nil
		}
	}
	return 0, notA("date", cell)
}

var clockPattern = regexp.MustCompile(
	`^(?:(?:([0-9]+)-)?([0-9]+):)?([0-5]?[0-9]):([0-5]?[0-9](?:[.,][0-9]+)?)$`)

// clock parses [[days-]hours:]minutes:seconds, with a fraction after a point or a comma. A time of
// day that falls by more than half a day is one of the next day.
func (a *axis) clock(cell string) (float64, error) {
	m := clockPattern.FindStringSubmatch(cell)
	if m == nil {
		return 0, notA("time", cell)
	}

	const day = 24 * 3600
	seconds := 0.0
	for i, unit := range []float64{day, 3600, 60, 1} {
		value, _ := strconv.ParseFloat(strings.Replace("0"+m[i+1], ",", ".", 1), 64)
		seconds += value * unit
	}

	a.isDate = !a.isSpan && !a.isAge
	if a.isDate {
		if seconds+a.days < a.last-day/2 {
			a.days += day
		}
		seconds += a.days
	}

	return seconds, nil
}
