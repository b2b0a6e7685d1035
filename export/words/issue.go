package words

import (
	"fmt"
	"slices"
	"strings"

	"github.com/allocscope/allocscope/export/profile"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/growth"
)

// CurveLine describes a size over time: "RSS in 3m: 78.5 MiB at first, 700 MiB at last, 702 MiB at
// most".
func CurveLine(what string, first, last, most int64, seconds float64) string {
	size := func(bytes int64) string { return units.Bytes(float64(bytes)) }
	return what + " in " + clockText(seconds) + ": " + size(first) + " at first, " + size(last) +
		" at last, " + size(most) + " at most"
}

// StackHead is the growth of a stack: "Pillow (pil), +57.0 MiB/min, 97% of the growth of all stacks,
// accumulating".
func StackHead(a summary.Accumulation) string {
	parts := []string{Component(a.Component), units.Signed(float64(a.Bytes))}
	if a.BytesPerMin != nil {
		parts[1] = units.Signed(float64(*a.BytesPerMin)) + "/min"
	}
	parts = append(parts, units.WholePercent(a.Share)+" of the growth of all stacks")
	if a.Trend != "" {
		parts = append(parts, string(a.Trend))
	}
	if a.Kind != growth.KindHeap {
		parts = append(parts, string(a.Kind))
	}
	return strings.Join(parts, ", ")
}

// StackSites are the frames of a stack in so many lines, four at least, the innermost first. The
// frames between are left out where the first one of the user's own code and its caller have no room
// otherwise.
func StackSites(stack []string, most int) (sites []string) {
	own := -1
	for i, frame := range stack {
		if summary.IsUserCode(frame) && own < 0 {
			own = len(sites)
		}
		if profile.FrameWithLine.MatchString(frame) || strings.Contains(frame, " (/") {
			frame = siteText(summary.Suspect{}, frame)
		}
		if len(sites) == 0 || sites[len(sites)-1] != frame {
			sites = append(sites, frame)
		}
		if FrameClass(stack[i]) == "python" && !slices.ContainsFunc(stack[i+1:], isPython) {
			break // the frames that call Python say nothing
		}
	}

	if own < 0 || own+1 < most {
		return sites[:min(len(sites), most)]
	}

	const least = 4 // the innermost frame, the mark of the cut, the user's frame and its caller
	inner, called := 1+(most-least)/2, (most-least+1)/2
	outer := sites[own-called : min(len(sites), own+2)]
	return slices.Concat(sites[:inner], []string{cut}, outer)
}

func isPython(frame string) bool { return FrameClass(frame) == "python" }

// GapLines name the losses of a trace, then the limits of its numbers, in so many lines at most.
// missing are sentences about files that could not be read.
func GapLines(s *summary.Summary, missing []string, most int) (lines []string) {
	gaps := slices.Concat(Warnings(s), missing, Limits(s))
	for i, gap := range gaps {
		rows := wrappedRows(gap, "", ResultWidth-2)
		isLast := i == len(gaps)-1
		if n := len(lines) + len(rows); n > most || n == most && !isLast {
			return append(lines, fmt.Sprintf("- and %d more", len(gaps)-i))
		}
		lines = append(lines, "- "+rows[0])
		for _, row := range rows[1:] {
			lines = append(lines, "  "+row)
		}
	}
	return lines
}

// SinceBaseline is the time from which growth counts: " since 30s"; empty: it is not known.
func SinceBaseline(baseline *float64) string {
	if baseline == nil {
		return ""
	}
	return " since " + clockText(*baseline)
}
