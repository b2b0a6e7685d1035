package controller

import (
	"fmt"
	"strconv"
)

// mostChanges that nobody has asked for are kept.
const mostChanges = 256

// change notes what has been changed and why.
func (g *Governor) change(format string, arguments ...any) {
	g.changes = append(g.changes, Change{At: duration(g.now), Mode: g.mode, Text: fmt.Sprintf(format, arguments...)})
	g.changes = g.changes[max(0, len(g.changes)-mostChanges):]
}

// would says what the probes would take if they were always open.
func (g *Governor) would(s spending) string {
	source := "heap"
	if !g.options.Heap {
		source = "tensor"
	}
	return fmt.Sprintf("%s probes would take %s of the traced CPU time (%s)", source, percent(s.share()), calls(s.entries/max(s.elapsed, 1e-3)))
}

// percent of a part; more than ten times the whole need not be told apart.
func percent(part float64) string {
	switch {
	case part > 10:
		return "more than 1000 %"
	case part >= 0.0995:
		return fmt.Sprintf("%.0f %%", 100*part)
	}
	return fmt.Sprintf("%.1f %%", 100*part)
}

// calls a second.
func calls(rate float64) string {
	switch {
	case rate >= 999_500:
		return fmt.Sprintf("%.1f M calls/s", rate/1e6)
	case rate >= 9_950:
		return fmt.Sprintf("%.0f k calls/s", rate/1e3)
	case rate >= 999.5:
		return fmt.Sprintf("%.1f k calls/s", rate/1e3)
	}
	return fmt.Sprintf("%.0f calls/s", rate)
}

// span is a time in seconds.
func span(seconds float64) string {
	if seconds < 1 {
		return strconv.FormatFloat(seconds, 'f', 1, 64) + " s"
	}
	return fmt.Sprintf("%.0f s", seconds)
}

// size in bytes, a power of two where it was chosen.
func size(bytes uint64) string {
	if bytes >= 1<<20 {
		return fmt.Sprintf("%d MiB", bytes>>20)
	}
	return fmt.Sprintf("%d KiB", bytes>>10)
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
