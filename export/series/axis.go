package series

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"time"
)

// A notation is how times are written.
type notation string

const (
	notNoted notation = "" // no time has been read yet
	numbers  notation = "a number"
	dates    notation = "a date"
	clocks   notation = "hours, minutes and seconds"
)

// epoch is where seconds are taken for dates: nothing runs for 30 years.
const epoch = 1e9

// An axis reads the times of a file. How they are written, the first one tells.
type axis struct {
	timeUnit
	span     bool // clocks count from a beginning; false: they are times of day
	age      bool // times are the age of the process
	absolute bool // times are dates or times of day, whose beginning is of no interest
	noted    notation
	layout   string  // of dates
	last     float64 // seconds or steps
	days     float64 // in seconds, that times of day have passed
}

// newAxis takes the unit from the user, else from the name of the column.
func newAxis(column string, o Options) *axis {
	name := nameOf(column)
	a := &axis{timeUnit: name.time, span: name.base != "time" && name.base != "timestamp"}
	if o.XUnit != "" {
		a.timeUnit = timeUnits[o.XUnit]
	}
	return a
}

// parse reads a time in seconds, or a step. The error says what cannot be read, or that the unit cannot be told.
func (a *axis) parse(cell []byte) (float64, error) {
	value, n := number(cell)
	switch {
	case len(cell) == 0:
		return 0, errors.New("the time is missing")
	case n == len(cell):
		return a.number(value)
	case isDate(cell):
		return a.date(cell)
	case bytes.IndexByte(cell, ':') >= 0:
		return a.clock(cell)
	}
	unit, ok := unitAt(cell[n:], timeUnits)
	if n == 0 || !ok || unit.steps {
		return 0, notA("time", cell)
	}
	a.seconds = 1
	return a.keep(numbers, value*unit.seconds)
}

// number reads a plain number. A large one is a date, in seconds or in parts of them, unless the unit is told.
func (a *axis) number(value float64) (float64, error) {
	if a.noted == notNoted && !a.steps && value >= epoch && !a.explicit {
		a.seconds = 1
		for limit := 1e11; value >= limit && limit < 1e18; limit *= 1e3 { // nanoseconds are the smallest
			a.seconds /= 1e3
		}
	}
	switch {
	case a.steps:
		return a.keep(numbers, value)
	case a.seconds == 0:
		return 0, errors.New("seconds or steps cannot be told (say --x-unit s, ms, min, h or steps)")
	case a.noted == notNoted:
		a.absolute = value*a.seconds >= epoch
	}
	return a.keep(numbers, value*a.seconds)
}

var dateLayouts = []string{
	time.RFC3339, "2006-01-02T15:04:05", "2006-01-02T15:04:05Z0700", "2006-01-02 15:04:05", "2006-01-02 15:04:05Z07:00",
	"2006-01-02 15:04:05Z0700", "2006/01/02 15:04:05",
}

// isDate tells a date from other text by its year.
func isDate(cell []byte) bool {
	return len(cell) >= 10 && cell[4] == cell[7] && (cell[4] == '-' || cell[4] == '/') && cell[0] >= '0' && cell[0] <= '9'
}

// date reads a date and a time of day; without a zone it is taken for UTC.
func (a *axis) date(cell []byte) (float64, error) {
	layouts := dateLayouts
	if a.layout != "" {
		layouts = []string{a.layout}
	}
	for _, layout := range layouts {
		if t, err := time.Parse(layout, string(cell[:min(len(cell), 64)])); err == nil {
			a.layout, a.absolute = layout, true
			return a.keep(dates, float64(t.Unix())+float64(t.Nanosecond())/1e9)
		}
	}
	return 0, notA("date", cell)
}

// clock reads [days-][hours:]minutes:seconds, with a fraction after a point or a comma.
func (a *axis) clock(cell []byte) (float64, error) {
	rest, fraction := cell, 0.0
	if i := bytes.IndexAny(cell, ".,"); i >= 0 {
		value, n := number(append([]byte("0."), cell[i+1:]...))
		if n != len(cell)-i+1 {
			return 0, notA("time", cell)
		}
		rest, fraction = cell[:i], value
	}
	days, clock, ok := bytes.Cut(rest, []byte("-"))
	if !ok {
		days, clock = []byte("0"), rest
	}
	value, n := number(days)
	parts := bytes.Split(clock, []byte(":"))
	if ok && len(parts) != 3 || len(parts) < 2 || len(parts) > 3 || n != len(days) {
		return 0, notA("time", cell)
	}
	if value *= 24; len(parts) == 2 {
		parts = append([][]byte{[]byte("0")}, parts...)
	}
	for i, most := range []float64{maxX, 60, 60} {
		part, n := number(parts[i])
		if n == 0 || n != len(parts[i]) || part < 0 || part >= most {
			return 0, notA("time", cell)
		}
		if i > 0 {
			value *= 60
		}
		value += part
	}
	return a.keepClock(value + fraction)
}

// keepClock brings times of day in order: one that falls by more than half a day is one of the next day.
func (a *axis) keepClock(seconds float64) (float64, error) {
	const day = 24 * 3600
	a.absolute = !a.span && !a.age
	if a.absolute {
		if a.noted == clocks && seconds+a.days < a.last-day/2 {
			a.days += day
		}
		seconds += a.days
	}
	return a.keep(clocks, seconds)
}

// keep checks a time against those before.
func (a *axis) keep(noted notation, value float64) (float64, error) {
	switch {
	case !(math.Abs(value) <= maxX):
		return 0, errors.New("the time is out of range")
	case a.noted != notNoted && a.noted != noted:
		return 0, fmt.Errorf("the time is %s, and %s in the lines above", noted, a.noted)
	case a.age && a.noted != notNoted && value < a.last:
		return 0, errors.New("the age of the process falls: it is another one (cut the file there)")
	}
	a.noted, a.last = noted, value
	return value, nil
}
