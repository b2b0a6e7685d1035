package words

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/allocscope/allocscope/export"
	"github.com/allocscope/allocscope/growth"
)

// WhereShort is Where for little room: the nearest frame of Python and the user's own code that called it; where there is no Python,
// Where without the file that the function is in.
func WhereShort(a export.Accumulation) string { return whereShort(a, Frame) }

// WhereBrief is WhereShort for less room still: the frames have lines, but no files.
func WhereBrief(a export.Accumulation) string { return whereShort(a, briefFrame) }

func whereShort(a export.Accumulation, text func(frame string) string) string {
	const most = 3
	first := slices.IndexFunc(a.Stack, pythonFrame.MatchString)
	if first < 0 {
		a.Module = ""
		return Where(a)
	}
	frames, between := a.Stack[first:], " < "
	if own := slices.IndexFunc(frames, isOwn); own > 1 {
		frames, between = append(frames[:1:1], frames[own:]...), " < ... < "
	}
	short := text(frames[0])
	if a.Kind != growth.KindHeap {
		short = fmt.Sprintf("[%s] %s", a.Kind, short)
	}
	for _, f := range frames[1:min(most, len(frames))] {
		short += between + text(f)
		between = " < "
	}
	return short
}

var installedFile = regexp.MustCompile(`/(site|dist)-packages/|/lib(64)?/python[0-9][^/]*/|^<`)

// isOwn tells whether a frame is Python that nobody has installed.
func isOwn(frame string) bool {
	m := pythonFrame.FindStringSubmatch(frame)
	return m != nil && !installedFile.MatchString(m[2])
}

// briefFrame is a frame with its line alone, and without the function that it was defined in.
func briefFrame(frame string) string {
	m := pythonFrame.FindStringSubmatch(frame)
	if m == nil {
		return Frame(frame)
	}
	const within = "<locals>."
	if i := strings.LastIndex(m[1], within); i >= 0 {
		m[1] = m[1][i+len(within):]
	}
	return m[1] + ":" + m[3]
}
