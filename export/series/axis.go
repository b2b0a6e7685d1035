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
	isSpan   bool    // clocks count from a start; false: they are times of day
	isAge    bool    // times are the age of the process
	isDate   bool    // times are dates or times of day, which count from the first sample
	notation string  // of the times so far; empty: there were none
	layout   string  // of dates
	last     float64 // seconds or steps
	days     float64 // seconds of the days that times of day have passed
}

// newAxis takes the unit from the options, else from the name of the column.
func newAxis(column string, o Options) *axis {
	n := nameOf(column)
	a := &axis{timeUnit: n.time, isSpan: n.base != "time" && n.base != "timestamp"}
	if o.XUnit != "" {
		a.timeUnit = timeUnits[o.XUnit]
	}
	return a
}

// parse parses a time in seconds, or a step.
func (a *axis) parse(cell string) (float64, error) {
	value, n := number(cell)
	switch {
	case cell == "":
		return 0, errors.New("the time is missing")
	case n == len(cell):
		return a.number(value)
	case startsWithDate(cell):
		return a.date(cell)
	case strings.Contains(cell, ":"):
		return a.clock(cell)
	}

	unit, ok := unitOf(cell[n:], timeUnits)
	if n == 0 || !ok || unit.steps {
		return 0, notA("time", cell)
	}

	a.seconds = 1
	return a.keep(numbers, value*unit.seconds)
}

// number converts a number. A large one is a date, in seconds, milliseconds, microseconds or
// nanoseconds since 1970, unless a unit is explicit.
func (a *axis) number(value float64) (float64, error) {
	isFirst := a.notation == ""
	if isFirst && !a.steps && value >= minEpoch && !a.explicit {
		a.seconds = 1
		for limit := 1e11; value >= limit && limit < 1e18; limit *= 1e3 {
			a.seconds /= 1e3
		}
	}

	switch {
	case a.steps:
		return a.keep(numbers, value)
	case a.seconds == 0:
		return 0, errors.New("the unit of the times is unknown (say --x-unit s, ms, min, h or steps)")
	case isFirst:
		a.isDate = value*a.seconds >= minEpoch
	}

	return a.keep(numbers, value*a.seconds)
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
	layouts := dateLayouts
	if a.layout != "" {
		layouts = []string{a.layout}
	}

	for _, layout := range layouts {
		if t, err := time.Parse(layout, cell[:min(len(cell), 64)]); err == nil {
			a.layout, a.isDate = layout, true
			return a.keep(dates, float64(t.Unix())+float64(t.Nanosecond())/1e9)
		}
	}

	return 0, notA("date", cell)
}

var clockPattern = regexp.MustCompile(`^(?:(?:([0-9]+)-)?([0-9]+):)?([0-9]{1,2}):([0-9]{1,2})(?:[.,]([0-9]+))?$`)

// clock parses [[days-]hours:]minutes:seconds, with a fraction after a point or a comma. A time of
// day that falls by more than half a day is one of the next day.
func (a *axis) clock(cell string) (float64, error) {
	m := clockPattern.FindStringSubmatch(cell)
	if m == nil {
		return 0, notA("time", cell)
	}

	part := func(text string) float64 {
		value, _ := strconv.ParseFloat("0"+text, 64)
		return value
	}
	if part(m[3]) >= 60 || part(m[4]) >= 60 {
		return 0, notA("time", cell)
	}

	const day = 24 * 3600
	fraction, _ := strconv.ParseFloat("0."+m[5]+"0", 64)
	seconds := part(m[1])*day + part(m[2])*3600 + part(m[3])*60 + part(m[4]) + fraction
	a.isDate = !a.isSpan && !a.isAge

	if a.isDate {
		if a.notation == clocks && seconds+a.days < a.last-day/2 {
			a.days += day
		}
		seconds += a.days
	}

	return a.keep(clocks, seconds)
}

// keep checks a time against the last one.
func (a *axis) keep(notation string, value float64) (float64, error) {
	switch {
	case !(math.Abs(value) <= maxX):
		return 0, errors.New("the time is out of range")
	case a.notation != "" && a.notation != notation:
		return 0, fmt.Errorf("the time is %s, and %s in the lines above", notation, a.notation)
	case a.isAge && a.notation != "" && value < a.last:
		return 0, errors.New("the age of the process falls: it is another one (cut the file there)")
	}

	a.notation, a.last = notation, value
	return value, nil
}
