package words

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/units"
)

// OverheadLines describes the overhead of tracing, and how it changed the training steps. It is
// empty where neither was measured.
func OverheadLines(s *summary.Summary) []string {
	var lines []string
	if share, note := OverheadParts(s); share != "" {
		lines = append(lines, "overhead "+share+" "+note)
	}

	for _, line := range []string{aboveLimit(s), StepLine(s.Overhead)} {
		if line != "" {
			lines = append(lines, line)
		}
	}

	return lines
}

// OverheadParts are the overhead as a share, and what it is a share of: "5.5%" and "of the traced
// CPU time (limit 3%)", with the part in the probes and the bursts. They are empty where the
// overhead was not measured.
func OverheadParts(s *summary.Summary) (share, note string) {
	o := s.Overhead
	if o == nil || o.Share == nil {
		return "", ""
	}

	note = "of the traced CPU time (" + OverheadLimit(o) + ")" + inProbes(o)
	if heap := HeapProbed(s); heap != "" {
		note += ": heap probed " + heap
	}

	return units.Percent(*o.Share), note
}

// maxExcess is the factor by which the overhead may exceed its limit without an explanation.
const maxExcess = 1.1

// aboveLimit explains an overhead that exceeds its limit: the part of allocscope that is always on
// does not shrink with what it traces. It is empty where the overhead is within the limit.
func aboveLimit(s *summary.Summary) string {
	o := s.Overhead
	if o == nil || o.Share == nil || o.Limit <= 0 || *o.Share <= maxExcess*o.Limit ||
		!(s.DurationS > 0) {
		return ""
	}
	return fmt.Sprintf("above the limit: allocscope itself used %.3f of a core, the traced "+
		"processes %.2f",
		o.OwnS/s.DurationS, o.TracedS/s.DurationS)
}

// inProbes is the part of the overhead that slows the traced processes down.
func inProbes(o *summary.Overhead) string {
	if o.InProbesS == nil || !(o.TracedS > 0) {
		return ""
	}
	return ", " + units.Percent(*o.InProbesS/o.TracedS) + " in the probes"
}

// OverheadShort is the overhead in a few words: "overhead 1.9%, heap sampled in bursts". It is
// empty where the overhead was not measured and the heap is probed all the time.
func OverheadShort(o *summary.Overhead) string {
	if o == nil {
		return ""
	}

	var parts []string
	if o.Share != nil {
		parts = append(parts, "overhead "+units.Percent(*o.Share))
	}

	if o.Mode == summary.HeapBursts || o.Mode == summary.HeapOff {
		parts = append(parts, HeapMode(o.Mode))
	}

	return strings.Join(parts, ", ")
}

// OverheadLimit is the limit of the overhead: "limit 3%", "no limit".
func OverheadLimit(o *summary.Overhead) string {
	if o == nil || o.Limit <= 0 {
		return "no limit"
	}
	return "limit " + units.ExactPercent(o.Limit)
}

// Sampling is how allocations are sampled: "one sample every 512 KiB", "every allocation".
func Sampling(interval uint64) string {
	if interval <= 1 {
		return "every allocation"
	}
	return "one sample every " + units.Bytes(float64(interval))
}

// HeapMode describes a mode of source heap, one of the constants summary.Heap….
func HeapMode(mode string) string {
	switch mode {
	case summary.HeapBursts:
		return "heap sampled in bursts"
	case summary.HeapOff:
		return "heap not probed"
	}
	return "heap probed all the time"
}

// HeapKnown reports whether source heap was attached to any process, so that allocation sites of
// the heap are known. A summary that names no sources counts as attached.
func HeapKnown(s *summary.Summary) bool {
	isHeap := func(x summary.Source) bool {
		return x.Name == "heap" && x.State == summary.SourceAttached
	}
	return len(s.Sources) == 0 || slices.ContainsFunc(s.Sources, isHeap)
}

// HeapProbed is when the heap was probed: "all the time", "in 11 bursts, 5.4 s of 300 s". It is
// empty where source heap was not attached, and where nothing is known.
func HeapProbed(s *summary.Summary) string {
	o := s.Overhead
	switch {
	case o == nil || !HeapKnown(s):
		return ""
	case o.Bursts == 0 && o.Mode == summary.HeapOff:
		return "at first, not in the end"
	case o.Bursts == 0 && o.Mode == summary.HeapBursts:
		return "for " + units.ShortSeconds(o.OpenS) + ", without a burst since"
	case o.Bursts == 0:
		return "all the time"
	}

	text := fmt.Sprintf("in %s, %s of %s", units.Plural(o.Bursts, "burst", "bursts"),
		units.ShortSeconds(o.OpenS), units.ShortSeconds(s.DurationS))
	switch o.Mode {
	case summary.HeapFull:
		text += ", all the time in the end"
	case summary.HeapOff:
		text += ", not at all in the end"
	}

	return text
}

// FromBursts names the bursts that allocation sites of the heap are known from: "11 bursts of
// 0.5 s, without objects younger than 60 s". It is empty where the heap was probed all the time.
func FromBursts(o *summary.Overhead) string {
	if !o.InBursts() {
		return ""
	}

	text := fmt.Sprintf("%s of %s", units.Plural(o.Bursts, "burst", "bursts"),
		units.ShortSeconds(o.OpenS/float64(o.Bursts)))
	if o.LagS > 0 {
		text += ", without objects younger than " + units.ShortSeconds(o.LagS)
	}

	return text
}

// StepLine compares the training steps with and without probes: "step 182.1 ms before, 183.9 ms
// with heap probes: +1.0%". In bursts it compares the steps of the same minutes. It is empty where
// too few steps were seen.
func StepLine(o *summary.Overhead) string {
	change := StepChange(o)
	if change == "" {
		return ""
	}

	if !comparesBursts(o) {
		return fmt.Sprintf("step %s before, %s with heap probes: %s",
			units.Milliseconds(*o.StepBeforeS), units.Milliseconds(*o.StepSinceS), change)
	}

	line := fmt.Sprintf("step %s between bursts of the heap probes, %s in all: %s",
		units.Milliseconds(*o.StepBetweenS), units.Milliseconds(*o.StepSinceS), change)
	if o.StepBeforeS != nil {
		line += " (" + units.Milliseconds(*o.StepBeforeS) + " before them)"
	}

	return line
}

// comparesBursts reports whether steps within bursts can be compared with those between them.
func comparesBursts(o *summary.Overhead) bool { return o.InBursts() && o.StepBetweenS != nil }

// maxStepPercent bounds the change of the step time that a forged summary can show.
const maxStepPercent = 1e6

// StepChange is how much longer the training steps are with the probes: "+1.0%". It is empty where
// too few were seen.
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
	if !(math.Abs(percent) < maxStepPercent) {
		return ""
	}

	return fmt.Sprintf("%+.1f%%", percent+0) // -0 + 0 is +0
}
