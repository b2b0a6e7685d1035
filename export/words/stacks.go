package words

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/allocscope/allocscope/export"
	"github.com/allocscope/allocscope/growth"
)

// Process is one line about a process of the tree.
func Process(p export.TreeProcess) string {
	role := string(p.Role)
	if p.Rank != nil {
		role = fmt.Sprintf("rank %d", *p.Rank)
	}
	text := fmt.Sprintf("PID %d, %s (%s): %s", p.PID, role, p.Command, Bytes(float64(*p.EndBytes)))
	if p.Verdict != "" {
		text += ", " + strings.ReplaceAll(string(p.Verdict), "-", " ")
	}
	return text
}

// Group is one line about workers: "20 compile workers: 400 MiB RSS each, 1.10 GiB together (900 MiB private), stable".
func Group(g export.Group) string {
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
		text += fmt.Sprintf(": %s RSS each", Bytes(float64(*g.EachBytes)))
	}
	if g.PrivateBytes != nil && g.PSSBytes != nil {
		text += fmt.Sprintf(", %s together (%s private)", Bytes(float64(*g.PSSBytes)), Bytes(float64(*g.PrivateBytes)))
	}
	switch g.Verdict {
	case growth.ClassPlateau, growth.ClassSpikyPlateau:
		text += ", stable"
	case growth.ClassLeak, growth.ClassGrowing, growth.ClassSaturating:
		text += ", " + growthWord[g.Verdict]
		if g.RateBytesPerMin != nil {
			text += fmt.Sprintf(" by %s/min private", Bytes(*g.RateBytesPerMin))
		}
	}
	return text
}

// growthWord says that something grows.
var growthWord = map[growth.Class]string{
	growth.ClassLeak: "LEAKING", growth.ClassGrowing: "growing", growth.ClassSaturating: "growing less and less,",
}

// Culprit is where the stacks of an owner meet, with its nearest callers.
func Culprit(c export.Culprit) string {
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

// PerMinute is a rate in MiB a minute; "-" where there is none.
func PerMinute(bytes *int64) string {
	if bytes == nil {
		return "-"
	}
	return fmt.Sprintf("%.2f", float64(*bytes)/(1<<20))
}

// Where is the function that holds, the file it is in, and its nearest callers: those of Python, if there are any, with
// their lines.
func Where(a export.Accumulation) string {
	const natives, pythons = 3, 3
	text := a.Function
	switch {
	case len(a.Stack) > 0 && pythonFrame.MatchString(a.Stack[0]):
		text = Frame(a.Stack[0])
	case a.Module != "" && !strings.Contains(text, "+0x"):
		text += " (" + filepath.Base(a.Module) + ")"
	}
	if a.Kind != "heap" {
		text = fmt.Sprintf("[%s] %s", a.Kind, text)
	}
	callers := a.Stack[min(1, len(a.Stack)):]
	first := slices.IndexFunc(callers, pythonFrame.MatchString)
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

var pythonFrame = regexp.MustCompile(`^(.*) \((.*):(\d+)\)$`) // as export.StackText writes it

// Frame is a frame without the folders of its file; of a library no name at all.
func Frame(frame string) string {
	if m := pythonFrame.FindStringSubmatch(frame); m != nil {
		return fmt.Sprintf("%s (%s:%s)", m[1], filepath.Base(m[2]), m[3])
	}
	name, _, _ := strings.Cut(frame, " (/")
	return name
}

// End is why a trace ended, by one of the constants export.Ended….
func End(ended string) string {
	switch ended {
	case export.EndedDuration:
		return "as long as asked for"
	case export.EndedInterrupt:
		return "interrupted"
	}
	return ended
}

// Seconds is a length of time with tenths: "12.3 s".
func Seconds(seconds float64) string { return fmt.Sprintf("%.1f s", seconds) }
