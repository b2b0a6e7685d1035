package words

import (
	"fmt"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/growth"
)

// Process is one line about a process of the tree.
func Process(p summary.TreeProcess) string {
	role := string(p.Role)
	if p.Rank != nil {
		role = fmt.Sprintf("rank %d", *p.Rank)
	}
	text := fmt.Sprintf("PID %d, %s (%s): %s", p.PID, role, p.Command, units.Bytes(float64(*p.EndBytes)))
	if p.Verdict != "" {
		text += ", " + strings.ReplaceAll(string(p.Verdict), "-", " ")
	}
	return text
}

// Group is one line about workers: "20 compile workers: 400 MiB RSS each, 1.10 GiB together (900 MiB private), stable".
func Group(g summary.Group) string {
	text := fmt.Sprintf("%d %s", g.Processes, g.Role)
	switch {
	case g.Role == growth.RoleOther && g.Processes == 1:
		text = "1 other process"
	case g.Role == growth.RoleOther:
		text += " processes"
	case g.Processes != 1:
		text += "s"
	}
	if g.EachBytes != nil {
		text += fmt.Sprintf(": %s RSS each", units.Bytes(float64(*g.EachBytes)))
	}
	if g.PrivateBytes != nil && g.PSSBytes != nil {
		text += fmt.Sprintf(", %s together (%s private)", units.Bytes(float64(*g.PSSBytes)), units.Bytes(float64(*g.PrivateBytes)))
	}
	switch g.Verdict {
	case growth.ClassPlateau, growth.ClassSpikyPlateau:
		text += ", stable"
	case growth.ClassLeak, growth.ClassGrowing, growth.ClassSaturating:
		text += ", " + growthWords[g.Verdict]
		if g.RateBytesPerMin != nil {
			text += fmt.Sprintf(" by %s/min private", units.Bytes(*g.RateBytesPerMin))
		}
	}
	return text
}

// growthWord says that something grows.
var growthWords = map[growth.Class]string{
	growth.ClassLeak: "LEAKING", growth.ClassGrowing: "growing", growth.ClassSaturating: "growing less and less,",
}

// Culprit is where the stacks of an owner meet, with its nearest callers.
func Suspect(c summary.Suspect) string {
	const around = 2
	text := Frame(c.Function)
	for _, f := range c.Callers[:min(around, len(c.Callers))] {
		text += " < " + Frame(f)
	}
	if c.Explains < 0.995 {
		text += fmt.Sprintf(" (%.0f %% of it)", 100*c.Explains)
	}
	return text
}

// Where is the function that holds, the file it is in, and its nearest callers: those of Python, if there are any, with
// their lines.
func Where(a summary.Accumulation) string {
	const natives, pythons = 3, 3
	text := a.Function
	switch {
	case len(a.Stack) > 0 && frameWithLine.MatchString(a.Stack[0]):
		text = Frame(a.Stack[0])
	case a.Module != "" && !strings.Contains(text, "+0x"):
		text += " (" + filepath.Base(a.Module) + ")"
	}
	if a.Kind != "heap" {
		text = fmt.Sprintf("[%s] %s", a.Kind, text)
	}
	callers := a.Stack[min(1, len(a.Stack)):]
	first := slices.IndexFunc(callers, frameWithLine.MatchString)
	if first < 0 {
		return text + callersText(callers[:min(natives, len(callers))])
	}
	if first > 1 {
		text += callersText(callers[:1]) + " < ..."
	} else {
		text += callersText(callers[:first])
	}
	return text + callersText(callers[first:min(first+pythons, len(callers))])
}

func callersText(frames []string) (text string) {
	for _, f := range frames {
		text += " < " + Frame(f)
	}
	return text
}

var frameWithLine = regexp.MustCompile(`^(.*) \((.*):(\d+)\)$`) // as export.StackText writes it

// Frame is a frame without the folders of its file; of a library no name at all.
func Frame(frame string) string {
	if m := frameWithLine.FindStringSubmatch(frame); m != nil {
		return fmt.Sprintf("%s (%s:%s)", m[1], filepath.Base(m[2]), m[3])
	}
	name, _, _ := strings.Cut(frame, " (/")
	return name
}

// End is why a trace ended, by one of the constants export.Ended….
func End(ended string) string {
	switch ended {
	case summary.EndedDuration:
		return "as long as asked for"
	case summary.EndedInterrupt:
		return "interrupted"
	}
	return ended
}

// WhereShort is Where for little room: the nearest frame of Python and the user's own code that called it; where there is no Python,
// Where without the file that the function is in.
func WhereShort(a summary.Accumulation) string { return whereShort(a, Frame) }

// WhereBrief is WhereShort for less room still: the frames have lines, but no files.
func WhereBrief(a summary.Accumulation) string { return whereShort(a, briefFrame) }

func whereShort(a summary.Accumulation, text func(frame string) string) string {
	const most = 3
	first := slices.IndexFunc(a.Stack, frameWithLine.MatchString)
	if first < 0 {
		a.Module = ""
		return Where(a)
	}
	frames, between := a.Stack[first:], " < "
	if own := slices.IndexFunc(frames, isUserCode); own > 1 {
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
func isUserCode(frame string) bool {
	m := frameWithLine.FindStringSubmatch(frame)
	return m != nil && !installedFile.MatchString(m[2])
}

// briefFrame is a frame with its line alone, and without the function that it was defined in.
func briefFrame(frame string) string {
	m := frameWithLine.FindStringSubmatch(frame)
	if m == nil {
		return Frame(frame)
	}
	const within = "<locals>."
	if i := strings.LastIndex(m[1], within); i >= 0 {
		m[1] = m[1][i+len(within):]
	}
	return m[1] + ":" + m[3]
}

// FrameClass tells frames apart, as export.StackText writes them: "root" stands for memory without a holder, or for a stack that is
// cut; "python" and "native" are functions.
func FrameClass(frame string) string {
	if strings.HasPrefix(frame, "[") && strings.HasSuffix(frame, "]") {
		return "root"
	}
	if m := frameWithLine.FindStringSubmatch(frame); m != nil {
		if ext := path.Ext(m[2]); ext == ".py" || ext == ".pyx" || strings.HasPrefix(m[2], "<") {
			return "python"
		}
	}
	return "native"
}
