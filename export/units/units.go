// Package words says to people what a trace has found: sizes, rates and times in units that fit, verdicts in sentences, stacks in
// a line. All that shows results takes its words from here.
package units

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Bytes writes a size for people, with three significant digits.
func Bytes(bytes float64) string {
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

// Signed is Bytes with a sign.
func Signed(bytes float64) string {
	if bytes > 0 {
		return "+" + Bytes(bytes)
	}
	return Bytes(bytes)
}

// Count writes a count for people: 950, 12.3 k, 4.5 M.
func Count(n float64) string {
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

// Duration writes a duration without zero parts: 5m, 1h30m, 2.5s.
func Duration(d time.Duration) string {
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

// RoundedUp writes a positive number with two significant digits, never smaller than it is.
func RoundedUp(x float64) string {
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

// Span is a length for people, in seconds or steps: "45 s", "20 min", "3.5 h", "40 steps".
func Span(x float64, steps bool, round func(float64) float64) string {
	s := spanOf(x, steps)
	return s.number(x, round) + " " + s.unit
}

// SpanRange is the range between two lengths: "28 to 31 min".
func SpanRange(low, high float64, steps bool) string {
	s := spanOf(high, steps)
	from, to := s.number(low, math.Floor), s.number(high, math.Ceil)
	if from == to {
		return to + " " + s.unit
	}
	return from + " to " + to + " " + s.unit
}

// Point is a place on the axis of a series: "5 min", "step 90".
func Point(x float64, steps bool) string {
	if steps {
		return "step " + strconv.FormatFloat(x, 'f', -1, 64)
	}
	s := spanOf(x, false)
	return s.number(x, math.Round) + " " + s.unit
}

// Seconds is a length of time with tenths: "12.3 s".
func Seconds(seconds float64) string { return fmt.Sprintf("%.1f s", seconds) }

// PerMinute is a rate in MiB a minute; "-" where there is none.
func PerMinute(bytes *int64) string {
	if bytes == nil {
		return "-"
	}
	return fmt.Sprintf("%.2f", float64(*bytes)/(1<<20))
}

// Plural is a number with its noun.
func Plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// Limit is a share of 1 as somebody has set it: "3 %", "0.25 %".
func ExactPercent(share float64) string { return strconv.FormatFloat(100*share, 'g', 3, 64) + " %" }

// Pace is how often something happens: "12.3 k events/s", "4.2 steps/s", "0.08 steps/s".
func PerSecond(perSecond float64, what string) string {
	text := Count(perSecond)
	if perSecond > 0 && perSecond < 9.95 {
		text = fmt.Sprintf("%.*f", max(1, 1-int(math.Floor(math.Log10(perSecond)))), perSecond)
	}
	return text + " " + what + "/s"
}

// Percent is a share of 1: "1.2 %", "34 %".
func Percent(share float64) string {
	if share < 0.0995 {
		return fmt.Sprintf("%.1f %%", 100*share)
	}
	return fmt.Sprintf("%.0f %%", 100*share)
}
