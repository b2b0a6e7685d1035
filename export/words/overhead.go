package words

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/units"
)

// OverheadLines say what tracing has cost, and what the trainer's own steps say of that. None where nothing was measured.
func OverheadLines(s *summary.Summary) []string {
	var lines []string
	if o := s.Overhead; o != nil && o.Share != nil {
		line := "overhead " + units.Percent(*o.Share) + " of the traced CPU time (" + OverheadLimit(o) + ")" + inProbes(o)
		if heap := HeapProbed(s); heap != "" {
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
func aboveLimit(s *summary.Summary) string {
	o := s.Overhead
	if o == nil || o.Share == nil || o.Limit <= 0 || *o.Share <= 1.1*o.Limit || !(s.DurationS > 0) {
		return ""
	}
	return fmt.Sprintf("above the limit: allocscope itself took %.3f of a core, and what is traced used %.2f", o.OwnS/s.DurationS, o.TracedS/s.DurationS)
}

// inProbes is the part that slows the traced processes down: ", 1.1 % in the probes".
func inProbes(o *summary.Overhead) string {
	if o.InProbesS == nil || !(o.TracedS > 0) {
		return ""
	}
	return ", " + units.Percent(*o.InProbesS/o.TracedS) + " in the probes"
}

// OverheadShort is what tracing costs in a few words: "overhead 1.9 %, heap in windows". Empty: it is not measured, and heap is watched
// all the time.
func OverheadShort(o *summary.Overhead) string {
	var parts []string
	if o != nil && o.Share != nil {
		parts = append(parts, "overhead "+units.Percent(*o.Share))
	}
	if o != nil && (o.Mode == summary.HeapBursts || o.Mode == summary.HeapOff) {
		parts = append(parts, HeapMode(o.Mode))
	}
	return strings.Join(parts, ", ")
}

// OverheadLimit is what tracing may cost: "limit 3 %", "no limit".
func OverheadLimit(o *summary.Overhead) string {
	if o == nil || o.Limit <= 0 {
		return "no limit"
	}
	return "limit " + units.ExactPercent(o.Limit)
}

// HeapMode is a mode of source heap: "heap in windows".
func HeapMode(mode string) string {
	switch mode {
	case summary.HeapBursts:
		return "heap in windows"
	case summary.HeapOff:
		return "heap not watched"
	}
	return "heap watched all the time"
}

// HeapWatched is when source heap was watched: "all the time", "in 11 windows, 5.4 s of 300 s". Empty: it was not attached, or it is
// not known.
func HeapProbed(s *summary.Summary) string {
	o := s.Overhead
	switch {
	case o == nil || !HeapKnown(s):
		return ""
	case o.Bursts == 0 && o.Mode == summary.HeapOff:
		return "at last not at all"
	case o.Bursts == 0 && o.Mode == summary.HeapBursts:
		return "for " + inSeconds(o.OpenS) + ", and no window since"
	case o.Bursts == 0:
		return "all the time"
	}
	text := fmt.Sprintf("in %s, %s of %s", units.Plural(o.Bursts, "window", "windows"), inSeconds(o.OpenS), inSeconds(s.DurationS))
	switch o.Mode {
	case summary.HeapFull:
		text += ", and at last all the time"
	case summary.HeapOff:
		text += ", and at last not at all"
	}
	return text
}

// FromWindows says what the holders of heap memory are known from: "11 windows of 0.5 s; what is younger than 60 s is not in". Empty:
// heap was watched all the time.
func FromBursts(o *summary.Overhead) string {
	if !o.InBursts() {
		return ""
	}
	text := fmt.Sprintf("%s of %s", units.Plural(o.Bursts, "window", "windows"), inSeconds(o.OpenS/float64(o.Bursts)))
	if o.LagS > 0 {
		text += "; what is younger than " + inSeconds(o.LagS) + " is not in"
	}
	return text
}

// NothingAccumulated says that nobody is named, and what a longer trace may name.
func NothingAccumulated(s *summary.Summary) string {
	text := "Nothing that was traced accumulated since the boundary."
	if from := FromBursts(s.Overhead); from != "" {
		text += " Heap memory is known from " + from + ": a longer trace may name who holds it."
	}
	return text
}

// StepLine compares the trainer's own steps: "step 182.1 ms before, 183.9 ms with heap probes: +1.0 %", or "step 182.3 ms between
// windows of the heap probes, 183.9 ms in all: +0.9 % (182.1 ms before them)". Empty: too few were seen.
func StepLine(o *summary.Overhead) string {
	change := StepChange(o)
	if change == "" {
		return ""
	}
	if !comparesBursts(o) {
		return fmt.Sprintf("step %s before, %s with heap probes: %s", stepTime(*o.StepBeforeS), stepTime(*o.StepSinceS), change)
	}
	line := fmt.Sprintf("step %s between windows of the heap probes, %s in all: %s", stepTime(*o.StepBetweenS), stepTime(*o.StepSinceS), change)
	if o.StepBeforeS != nil {
		line += " (" + stepTime(*o.StepBeforeS) + " before them)"
	}
	return line
}

// comparesWindows tells whether steps within windows and between them can be compared, of the same minutes.
func comparesBursts(o *summary.Overhead) bool { return o.InBursts() && o.StepBetweenS != nil }

// StepChange is by how much steps are longer with the probes: "+1.0 %". Empty: too few were seen.
func StepChange(o *summary.Overhead) string {
	if o == nil || o.StepSinceS == nil {
		return ""
	}
	without := o.StepBeforeS
	if comparesBursts(o) {
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

// HeapKnown tells that source heap was attached to any process, so that who holds heap memory is known; also where the summary
// names no sources.
func HeapKnown(s *summary.Summary) bool {
	isHeap := func(x summary.Source) bool { return x.Name == "heap" && x.State == summary.SourceAttached }
	return len(s.Sources) == 0 || slices.ContainsFunc(s.Sources, isHeap)
}
