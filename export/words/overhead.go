package words

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/growth"
)

// OverheadLines describes the overhead of tracing, and how it changed the training steps. It is
// empty where neither was measured.
func OverheadLines(s *summary.Summary) []string {
	var lines []string
	if slowdown, note := OverheadParts(s); slowdown != "" {
		lines = append(lines, "slows the job by "+slowdown+" "+note)
	}
	if line := StepLine(s.Overhead); line != "" {
		lines = append(lines, line)
	}
	return lines
}

// OverheadParts are the slow-down of the job by the probes, and facts beside it: "0.9%" and "(limit
// 3%); allocscope itself: 0.014 of a core while tracing", with the bursts. They are empty where the
// overhead was not measured.
func OverheadParts(s *summary.Summary) (slowdown, note string) {
	o := s.Overhead
	if o == nil || o.Slowdown == nil {
		return "", ""
	}

	note = "(" + OverheadLimit(o) + waiting(s) + inShim(s) + ")" + ownCPU(s)
	if heap := HeapProbed(s); heap != "" {
		note += "; heap probed " + heap
	}

	return units.Percent(*o.Slowdown), note
}

// minPartShare is the share of the time from which on a part of the slow-down is said.
const minPartShare = 0.001

// waiting is the part of the slow-down that a thread has waited while its memory was read.
func waiting(s *summary.Summary) string {
	return partOfSlowdown(s, s.Overhead.WaitedS, "waits while its memory is read")
}

// inShim is the part of the slow-down by the shim's own work.
func inShim(s *summary.Summary) string { return partOfSlowdown(s, s.Overhead.ShimS, "in the shim") }

func partOfSlowdown(s *summary.Summary, part *float64, what string) string {
	seconds := s.DurationS - s.BeganS()

	if part == nil || !(*part >= minPartShare*seconds && seconds > 0) {
		return ""
	}

	return "; " + units.Percent(min(*part/seconds, *s.Overhead.Slowdown)) + " " + what
}

// maxExcess is the factor by which a limit may be exceeded without a word.
const maxExcess = 1.1

// isOwnAbove reports whether allocscope itself has taken more than its limit.
func isOwnAbove(o *summary.Overhead) bool {
	return o.OwnExcessS > (maxExcess-1)*o.OwnLimitS
}

// ownCPU is the CPU time of allocscope itself.
func ownCPU(s *summary.Summary) string {
	o, seconds := s.Overhead, s.DurationS-s.BeganS()
	if !(seconds > 0) {
		return ""
	}

	text := "; allocscope itself: " + once(o) +
		fmt.Sprintf("%.3f of a core while tracing", o.OwnS/seconds)
	if isOwnAbove(o) {
		text += fmt.Sprintf(" (above its limit of %.3f)", o.OwnLimitS/seconds)
	}
	if n := o.LeftOutSnapshots; n > 0 {
		text += ", with " + units.Plural(n, "snapshot", "snapshots") + " left out to save CPU time"
	}
	return text
}

// once is the CPU time that allocscope takes however long the trace is: "start 1.2 s, search 2.1 s,
// end 0.4 s of CPU once; ".
func once(o *summary.Overhead) string {
	var parts []string
	for _, part := range []struct {
		name    string
		seconds float64
	}{{"start", o.StartS}, {"search", max(o.SearchS, o.SearchAtEndS)}, {"end", o.EndS}} {
		if part.seconds >= minOnceS {
			parts = append(parts, fmt.Sprintf("%s %.1f s", part.name, part.seconds))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return strings.Join(parts, ", ") + " of CPU once; "
}

// minOnceS is the least CPU time of the start, the search or the end that is said.
const minOnceS = 0.05

// OverheadShort is the overhead in a few words: "slows the job by 1.9%, heap sampled in bursts". It
// is empty where the overhead was not measured and the heap is probed all the time.
func OverheadShort(o *summary.Overhead) string {
	if o == nil {
		return ""
	}

	var parts []string
	if o.Slowdown != nil {
		parts = append(parts, "slows the job by "+units.Percent(*o.Slowdown))
	}

	if o.Mode == growth.HeapBursts || o.Mode == growth.HeapOff {
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

// HeapMode describes a mode of source heap.
func HeapMode(mode growth.HeapMode) string {
	switch mode {
	case growth.HeapBursts:
		return "heap sampled in bursts"
	case growth.HeapOff:
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
	case o.Bursts == 0 && o.Mode == growth.HeapOff:
		return "at first, not in the end"
	case o.Bursts == 0 && o.Mode == growth.HeapBursts:
		return "for " + units.ShortSeconds(o.OpenS) + ", without a burst since"
	case o.Bursts == 0:
		return "all the time"
	}

	text := fmt.Sprintf("in %s, %s of %s", units.Plural(o.Bursts, "burst", "bursts"),
		units.ShortSeconds(o.OpenS), units.ShortSeconds(s.DurationS-s.BeganS()))
	switch o.Mode {
	case growth.HeapFull:
		text += ", all the time in the end"
	case growth.HeapOff:
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
