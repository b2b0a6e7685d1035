package controller

import (
	"fmt"
	"strconv"
)

// maxChanges bounds the changes that are kept until Changes is called.
const maxChanges = 256

// change notes a change and its reason, for people.
func (c *Controller) change(format string, arguments ...any) {
	c.changes = append(c.changes, Change{
		At: duration(c.now), Mode: c.mode,
		Text: fmt.Sprintf(format, arguments...),
	})
	c.changes = c.changes[max(0, len(c.changes)-maxChanges):]
}

// costText returns what the probes would take if they were always open.
func (c *Controller) costText(u cpuUse) string {
	source := "heap"
	if !c.options.Heap {
		source = "tensor"
	}
	return fmt.Sprintf("%s probes would take %s of the traced CPU time (%s)",
		source, percentText(u.share()), callsText(u.entries/max(u.elapsed, 1e-3)))
}

// percentText formats a share. Shares above 10 are all the same to a reader.
func percentText(share float64) string {
	switch {
	case share > 10:
		return "more than 1000%"
	case share >= 0.0995:
		return fmt.Sprintf("%.0f%%", 100*share)
	}
	return fmt.Sprintf("%.1f%%", 100*share)
}

// callsText formats a number of calls a second.
func callsText(rate float64) string {
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

func secondsText(seconds float64) string {
	if seconds < 1 {
		return strconv.FormatFloat(seconds, 'f', 1, 64) + " s"
	}
	return fmt.Sprintf("%.0f s", seconds)
}

// sizeText formats a number of bytes, which is a power of two where the controller chose it.
func sizeText(bytes uint64) string {
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
