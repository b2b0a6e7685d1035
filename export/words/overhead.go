package words

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/allocscope/allocscope/export"
)

// OverheadLines say what tracing has cost, and what the trainer's own steps say of that. None where nothing was measured.
func OverheadLines(s *export.Summary) []string {
	var lines []string
	if o := s.Overhead; o != nil && o.Share != nil {
		line := "overhead " + Percent(*o.Share) + " of the traced CPU time (" + OverheadLimit(o) + ")" + inProbes(o)
		if heap := HeapWatched(s); heap != "" {
			line += ": heap " + heap
		}
		lines = append(lines, line)
	}
	if line := aboveLimit(s); line != "" {
		lines = append(lines, line)
	}
	if line := StepLine(s.Overhead); line != "" {
		lines = append(lines, line)
	}
	return lines
}

// aboveLimit says what a cost that exceeds its limit by more than a tenth is a share of: what is always on does not shrink with what is
// traced. Empty: it does not.
func aboveLimit(s *export.Summary) string {
	o := s.Overhead
	if o == nil || o.Share == nil || o.Limit <= 0 || *o.Share <= 1.1*o.Limit || !(s.DurationS > 0) {
		return ""
	}
	return fmt.Sprintf("above the limit: allocscope itself took %.3f of a core, and what is traced used %.2f", o.OwnS/s.DurationS, o.TracedS/s.DurationS)
}

// inProbes is the part that slows the traced processes down: ", 1.1 % in the probes".
func inProbes(o *export.Overhead) string {
	if o.InProbesS == nil || !(o.TracedS > 0) {
		return ""
	}
	return ", " + Percent(*o.InProbesS/o.TracedS) + " in the probes"
}

// OverheadShort is what tracing costs in a few words: "overhead 1.9 %, heap in windows". Empty: it is not measured, and heap is watched
// all the time.
func OverheadShort(o *export.Overhead) string {
	var parts []string
	if o != nil && o.Share != nil {
		parts = append(parts, "overhead "+Percent(*o.Share))
	}
	if o != nil && (o.Mode == export.HeapWindows || o.Mode == export.HeapOff) {
		parts = append(parts, HeapMode(o.Mode))
	}
	return strings.Join(parts, ", ")
}

// OverheadLimit is what tracing may cost: "limit 3 %", "no limit".
func OverheadLimit(o *export.Overhead) string {
	if o == nil || o.Limit <= 0 {
		return "no limit"
	}
	return "limit " + Limit(o.Limit)
}

// Limit is a share of 1 as somebody has set it: "3 %", "0.25 %".
func Limit(share float64) string { return strconv.FormatFloat(100*share, 'g', 3, 64) + " %" }

// HeapMode is a mode of source heap: "heap in windows".
func HeapMode(mode string) string {
	switch mode {
	case export.HeapWindows:
		return "heap in windows"
	case export.HeapOff:
		return "heap not watched"
	}
	return "heap watched all the time"
}

// HeapWatched is when source heap was watched: "all the time", "in 11 windows, 5.4 s of 300 s". Empty: it was not attached, or it is
// not known.
func HeapWatched(s *export.Summary) string {
	o := s.Overhead
	switch {
	case o == nil || !HeapKnown(s):
		return ""
	case o.Windows == 0 && o.Mode == export.HeapOff:
		return "at last not at all"
	case o.Windows == 0 && o.Mode == export.HeapWindows:
		return "for " + inSeconds(o.OpenS) + ", and no window since"
	case o.Windows == 0:
		return "all the time"
	}
	text := fmt.Sprintf("in %s, %s of %s", Plural(o.Windows, "window", "windows"), inSeconds(o.OpenS), inSeconds(s.DurationS))
	switch o.Mode {
	case export.HeapFull:
		text += ", and at last all the time"
	case export.HeapOff:
		text += ", and at last not at all"
	}
	return text
}

// FromWindows says what the holders of heap memory are known from: "11 windows of 0.5 s; what is younger than 60 s is not in". Empty:
// heap was watched all the time.
func FromWindows(o *export.Overhead) string {
	if !o.InWindows() {
		return ""
	}
	text := fmt.Sprintf("%s of %s", Plural(o.Windows, "window", "windows"), inSeconds(o.OpenS/float64(o.Windows)))
	if o.LagS > 0 {
		text += "; what is younger than " + inSeconds(o.LagS) + " is not in"
	}
	return text
}

// NothingAccumulated says that nobody is named, and what a longer trace may name.
func NothingAccumulated(s *export.Summary) string {
	text := "Nothing that was traced accumulated since the boundary."
	if from := FromWindows(s.Overhead); from != "" {
		text += " Heap memory is known from " + from + ": a longer trace may name who holds it."
	}
	return text
}

// StepLine compares the trainer's own steps: "step 182.1 ms before, 183.9 ms with heap probes: +1.0 %", or "step 182.3 ms between
// windows of the heap probes, 183.9 ms in all: +0.9 % (182.1 ms before them)". Empty: too few were seen.
func StepLine(o *export.Overhead) string {
	change := StepChange(o)
	if change == "" {
		return ""
	}
	if !comparesWindows(o) {
		return fmt.Sprintf("step %s before, %s with heap probes: %s", stepTime(*o.StepBeforeS), stepTime(*o.StepSinceS), change)
	}
	line := fmt.Sprintf("step %s between windows of the heap probes, %s in all: %s", stepTime(*o.StepBetweenS), stepTime(*o.StepSinceS), change)
	if o.StepBeforeS != nil {
		line += " (" + stepTime(*o.StepBeforeS) + " before them)"
	}
	return line
}

// comparesWindows tells whether steps within windows and between them can be compared, of the same minutes.
func comparesWindows(o *export.Overhead) bool { return o.InWindows() && o.StepBetweenS != nil }

// StepChange is by how much steps are longer with the probes: "+1.0 %". Empty: too few were seen.
func StepChange(o *export.Overhead) string {
	if o == nil || o.StepSinceS == nil {
		return ""
	}
	without := o.StepBeforeS
	if comparesWindows(o) {
		without = o.StepBetweenS
	}
	if without == nil {
		return ""
	}
	percent := math.Round(1000*(*o.StepSinceS / *without)-1000) / 10
	if !(math.Abs(percent) < 1e6) { // forged
		return ""
	}
	return fmt.Sprintf("%+.1f %%", percent+0) // -0 + 0 is +0
}

// stepTime is a length with a hundredth of itself or better: "9.12 ms", "182.1 ms", "1.25 s".
func stepTime(s float64) string {
	switch {
	case s >= 10:
		return fmt.Sprintf("%.1f s", s)
	case s >= 1:
		return fmt.Sprintf("%.2f s", s)
	case s >= 0.01:
		return fmt.Sprintf("%.1f ms", 1000*s)
	}
	return fmt.Sprintf("%.2f ms", 1000*s)
}

// inSeconds is a length with tenths, below a second with hundredths, as far as they are not zero: "0.5 s", "5.4 s", "300 s".
func inSeconds(s float64) string {
	scale := 10.0
	if math.Abs(s) < 1 {
		scale = 100
	}
	return strconv.FormatFloat(math.Round(scale*s)/scale, 'f', -1, 64) + " s"
}
