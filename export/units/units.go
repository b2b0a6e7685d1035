// Package units writes numbers for people: sizes, rates, shares, counts and lengths of time. It is
// the one place for number formats, and imports nothing of the project, so that all packages can
// use it.
//
// A word that names several things at once, such as "k", follows its number after a space; the
// percent sign follows without one.
package units

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Bytes writes a size with three significant digits and a binary unit: "1.18 GiB".
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

// Signed writes a change of a size: "+1.18 GiB", "-5 B", "0 B".
func Signed(bytes float64) string {
	if bytes > 0 {
		return "+" + Bytes(bytes)
	}
	return Bytes(bytes)
}

// WholeMiB writes a size in whole mebibytes, however large: "1208 MiB".
func WholeMiB(bytes int64) string {
	return fmt.Sprintf("%d MiB", Round(float64(bytes)/(1<<20)))
}

// ExactBytes writes a size that a user has chosen, in the largest binary unit of which it is a
// multiple: "512KiB", "1GiB", "1000". The text can be parsed back.
func ExactBytes(bytes uint64) string {
	for i, unit := range []string{"GiB", "MiB", "KiB"} {
		if size := uint64(1) << (30 - 10*i); bytes >= size && bytes%size == 0 {
			return strconv.FormatUint(bytes/size, 10) + unit
		}
	}
	return strconv.FormatUint(bytes, 10)
}

// MiBPerMinute writes a rate in bytes per minute as a number of MiB, without the unit; "-" where
// bytes is nil.
func MiBPerMinute(bytes *int64) string {
	if bytes == nil {
		return "-"
	}
	return fmt.Sprintf("%.2f", float64(*bytes)/(1<<20))
}

// Count writes a number of things: "950", "12.3 k", "4.5 M".
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

// Plural writes a number with its noun: "1 arena", "12 arenas".
func Plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// PerSecond writes a frequency: "12.3 k events/s", "4.2 steps/s", "0.083 steps/s".
func PerSecond(perSecond float64, what string) string {
	text := Count(perSecond)
	if perSecond > 0 && perSecond < 9.95 {
		decimals := max(1, 1-int(math.Floor(math.Log10(perSecond))))
		text = fmt.Sprintf("%.*f", decimals, perSecond)
	}
	return text + " " + what + "/s"
}

// Percent writes a share of 1, with one decimal below ten percent: "1.2%", "34%".
func Percent(share float64) string {
	if share < 0.0995 {
		return fmt.Sprintf("%.1f%%", 100*share)
	}
	return WholePercent(share)
}

// WholePercent writes a share of 1 without decimals: "34%".
func WholePercent(share float64) string { return fmt.Sprintf("%.0f%%", 100*share) }

// ExactPercent writes a share of 1 that a user has chosen: "3%", "0.25%".
func ExactPercent(share float64) string {
	return strconv.FormatFloat(100*share, 'g', 3, 64) + "%"
}

// Interval joins the two ends of an interval: "460-464". Ends with a sign or a unit are joined by
// a word: "-0.1 to 0.3", "+1.00 MiB to +1.20 MiB".
func Interval(low, high string) string {
	if strings.ContainsAny(low+high, "-+ ") {
		return low + " to " + high
	}
	return low + "-" + high
}

// RoundedUp writes a positive number with two significant digits, never smaller than it is.
func RoundedUp(x float64) string {
	scale := math.Pow(10, 1-math.Floor(math.Log10(x)))
	rounded := math.Ceil(x*scale*(1-1e-12)) / scale
	return strconv.FormatFloat(rounded, 'f', max(0, int(math.Round(math.Log10(scale)))), 64)
}

// Fixed writes a number with the given number of decimals, and zero without a sign.
func Fixed(x float64, decimals int) string {
	text := strconv.FormatFloat(x, 'f', decimals, 64)
	if strings.Trim(text, "-0.") == "" {
		return strings.TrimPrefix(text, "-")
	}
	return text
}

// Round is the nearest whole number.
func Round(value float64) int64 { return int64(math.Round(value)) }

// Duration writes a duration as Go does, without parts that are zero: "5m", "1h30m", "2.5s".
func Duration(d time.Duration) string {
	if d >= 10*time.Second {
		d = d.Round(time.Second)
	} else {
		d = d.Round(100 * time.Millisecond)
	}

	text := d.String()
	if short, ok := strings.CutSuffix(text, "m0s"); ok {
		text = short + "m"
	}

	if short, ok := strings.CutSuffix(text, "h0m"); ok {
		text = short + "h"
	}

	return text
}

// Seconds writes a length of time with one decimal: "12.3 s".
func Seconds(seconds float64) string { return fmt.Sprintf("%.1f s", seconds) }

// ShortSeconds writes a length of time with a decimal, or two below a second, where they are not
// zero: "0.25 s", "5.4 s", "300 s".
func ShortSeconds(seconds float64) string {
	scale := 10.0
	if math.Abs(seconds) < 1 {
		scale = 100
	}
	return strconv.FormatFloat(math.Round(scale*seconds)/scale, 'f', -1, 64) + " s"
}

// Milliseconds writes a length of time, in seconds, to a hundredth of itself or better: "9.12 ms",
// "182.1 ms", "1.25 s".
func Milliseconds(seconds float64) string {
	switch {
	case seconds >= 10:
		return fmt.Sprintf("%.1f s", seconds)
	case seconds >= 1:
		return fmt.Sprintf("%.2f s", seconds)
	case seconds >= 0.01:
		return fmt.Sprintf("%.1f ms", 1000*seconds)
	}

	return fmt.Sprintf("%.2f ms", 1000*seconds)
}

// Span writes a length on the axis of a series, in seconds or training steps, in the unit in which
// it has about two digits: "45 s", "20 min", "3.5 h", "40 steps".
func Span(x float64, steps bool, round func(float64) float64) string {
	unit := spanUnitOf(x, steps)
	return unit.format(x, round) + " " + unit.name
}

// SpanRange writes the range between two lengths: "28-31 min".
func SpanRange(low, high float64, steps bool) string {
	unit := spanUnitOf(high, steps)
	from, to := unit.format(low, math.Floor), unit.format(high, math.Ceil)
	if from == to {
		return to + " " + unit.name
	}
	return Interval(from, to) + " " + unit.name
}

// Point writes a point on the axis of a series: "5 min", "step 90".
func Point(x float64, steps bool) string {
	if steps {
		return "step " + strconv.FormatFloat(x, 'f', -1, 64)
	}
	return Span(x, false, math.Round)
}

// A spanUnit is a unit of Span. Its size is in seconds, or in steps.
type spanUnit struct {
	name string
	size float64
}

func spanUnitOf(x float64, steps bool) spanUnit {
	const minute, hour, day = 60, 3600, 24 * 3600

	switch {
	case steps:
		return spanUnit{"steps", 1}
	case x < 2*minute:
		return spanUnit{"s", 1}
	case x < 2*hour:
		return spanUnit{"min", minute}
	case x < 3*day:
		return spanUnit{"h", hour}
	}

	return spanUnit{"days", day}
}

// format writes a length in the unit. Minutes, hours and days below ten have a decimal.
func (u spanUnit) format(x float64, round func(float64) float64) string {
	x /= u.size
	if u.size == 1 || x >= 10 {
		return strconv.FormatFloat(round(x), 'f', -1, 64)
	}
	return strconv.FormatFloat(round(10*x)/10, 'f', -1, 64)
}

// Thousands writes a whole number with commas: "10,512".
func Thousands(n int64) string {
	text := strconv.FormatInt(n, 10)
	start := 0
	if n < 0 {
		start = 1
	}
	for i := len(text) - 3; i > start; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// PerMinute writes the growth of a count: "+461/min", "+0.4/min".
func PerMinute(rate float64) string {
	if rate < 9.95 {
		return fmt.Sprintf("+%.1f/min", rate)
	}
	return "+" + Thousands(Round(rate)) + "/min"
}
