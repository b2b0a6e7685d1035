package words

import (
	"fmt"
	"math"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/allocscope/allocscope/export/profile"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/verdict"
)

// Process is one line about a process of the tree, whose EndBytes are known.
func Process(p summary.TreeProcess) string {
	text := fmt.Sprintf("PID %d, %s (%s): %s", p.PID, Role(p), p.Command,
		units.Bytes(float64(*p.EndBytes)))
	if p.Verdict != "" {
		text += ", " + ClassText(p.Verdict)
	}

	return text
}

// Role is the role of a process, with its rank if it has one.
func Role(p summary.TreeProcess) string {
	if p.Rank != nil {
		return fmt.Sprintf("rank %d", *p.Rank)
	}
	return RoleName(p.Role)
}

// Group is one line about the workers of one role: "20 compile workers: 400 MiB RSS each, 1.10 GiB
// together (900 MiB private), stable".
func Group(g summary.Group) string {
	text := workersText(&g, g.Processes)
	if g.EachBytes != nil {
		text += fmt.Sprintf(": %s RSS each", units.Bytes(float64(*g.EachBytes)))
	}

	if g.PrivateBytes != nil && g.PSSBytes != nil {
		text += fmt.Sprintf(", %s together (%s private)",
			units.Bytes(float64(*g.PSSBytes)), units.Bytes(float64(*g.PrivateBytes)))
	}

	switch g.Verdict {
	case verdict.ClassPlateau, verdict.ClassSpikyPlateau:
		text += ", stable"
	case verdict.ClassLeak, verdict.ClassGrowing, verdict.ClassFillsUp, verdict.ClassSaturating:
		text += ", " + growthWords[g.Verdict]
		if g.RateBytesPerMin != nil {
			text += fmt.Sprintf(" by %s/min private", units.Bytes(*g.RateBytesPerMin))
		}
	}

	return text
}

var growthWords = map[verdict.Class]string{
	verdict.ClassLeak: "LEAKING", verdict.ClassGrowing: "growing",
	verdict.ClassFillsUp:    "filling up",
	verdict.ClassSaturating: "growing less and less,",
}

// maxSuspectCallers is the number of callers that a suspect is shown with.
const maxSuspectCallers = 2

// Suspect is the lowest common function of stacks with its lines and its nearest callers. Where
// that is the user's code, it is followed by the library's function that it calls: "load
// (train.py:47) < main (train.py:60), calls Image.resize".
func Suspect(c summary.Suspect) string {
	text := suspectFrame(c) + callersText(c.Callers[:min(maxSuspectCallers, len(c.Callers))])

	if len(c.Path) > 1 && summary.IsUserCode(c.Path[0]) && !summary.IsUserCode(c.Path[1]) {
		if m := profile.FrameWithLine.FindStringSubmatch(c.Path[1]); m != nil {
			text += ", calls " + m[1]
		}
	}

	if c.Explains < 0.995 {
		text += fmt.Sprintf(" (%s of it)", units.WholePercent(c.Explains))
	}
	if c.Sites > 0 {
		text += fmt.Sprintf("; the largest of %d call sites", c.Sites)
	}
	if c.CommonCaller != "" {
		text += ", common caller " + Frame(c.CommonCaller)
	}
	if c.NewCodePerMin > 0 {
		text += fmt.Sprintf("; recompiles: %.1f newly mapped kernels a minute", c.NewCodePerMin)
	}

	return text
}

// suspectFrame is the function of a suspect, with the share of each line if there are several:
// "evaluate (job.py:31 60%, :33 40%)".
func suspectFrame(c summary.Suspect) string {
	text := Frame(c.Function)
	if len(c.Lines) < 2 {
		return text
	}

	text = strings.TrimSuffix(text, ")")
	for i, l := range c.Lines {
		if i > 0 {
			text += fmt.Sprintf(", :%d", l.Line)
		}
		text += " " + units.WholePercent(l.Share)
	}

	return text + ")"
}

// maxCallers is the number of callers of a stack that are shown in a line.
const maxCallers = 3

// Where is an allocation site in a line: the function with its file, and its nearest callers.
// Callers with source lines are preferred, such as the Python frames.
func Where(a summary.Accumulation) string {
	text := a.Function
	switch {
	case len(a.Stack) > 0 && profile.FrameWithLine.MatchString(a.Stack[0]):
		text = Frame(a.Stack[0])
	case a.Module != "" && !strings.Contains(text, "+0x"):
		text += " (" + filepath.Base(a.Module) + ")"
	}

	if a.Kind != growth.KindHeap {
		text = fmt.Sprintf("[%s] %s", a.Kind, text)
	}

	callers := a.Stack[min(1, len(a.Stack)):]
	first := slices.IndexFunc(callers, profile.FrameWithLine.MatchString)
	switch {
	case first < 0:
		return text + callersText(callers[:min(maxCallers, len(callers))])
	case first > 1:
		text += callersText(callers[:1]) + " < ..."
	default:
		text += callersText(callers[:first])
	}

	return text + callersText(callers[first:min(first+maxCallers, len(callers))])
}

func callersText(frames []string) (text string) {
	for _, f := range frames {
		text += " < " + Frame(f)
	}
	return text
}

// WhereShort is Where for narrow columns: the nearest frame with a line, and the user's own code
// that called it. Without such frames it is Where without the file of the function.
func WhereShort(a summary.Accumulation) string { return whereShort(a, Frame) }

// WhereBrief is WhereShort for still narrower columns: frames have lines, but no files.
func WhereBrief(a summary.Accumulation) string { return whereShort(a, briefFrame) }

func whereShort(a summary.Accumulation, text func(frame string) string) string {
	first := slices.IndexFunc(a.Stack, profile.FrameWithLine.MatchString)
	if first < 0 {
		a.Module = ""
		return Where(a)
	}

	frames, between := a.Stack[first:], " < "
	if own := slices.IndexFunc(frames, summary.IsUserCode); own > 1 {
		frames, between = append(frames[:1:1], frames[own:]...), " < ... < "
	}

	short := text(frames[0])
	if a.Kind != growth.KindHeap {
		short = fmt.Sprintf("[%s] %s", a.Kind, short)
	}

	for _, f := range frames[1:min(maxCallers, len(frames))] {
		short += between + text(f)
		between = " < "
	}

	return short
}

// Frame is a frame without the directories of its file. A library is not named at all.
func Frame(frame string) string {
	if m := profile.FrameWithLine.FindStringSubmatch(frame); m != nil {
		return fmt.Sprintf("%s (%s:%s)", m[1], filepath.Base(m[2]), m[3])
	}
	name, _, _ := strings.Cut(frame, " (/")
	return name
}

// briefFrame is a frame with its line alone, and without the function that encloses it.
func briefFrame(frame string) string {
	m := profile.FrameWithLine.FindStringSubmatch(frame)
	if m == nil {
		return Frame(frame)
	}

	const within = "<locals>."
	if i := strings.LastIndex(m[1], within); i >= 0 {
		m[1] = m[1][i+len(within):]
	}

	return m[1] + ":" + m[3]
}

// FrameClass is the CSS class of a frame, as profile.StackText writes it: "python" or "native" for
// a function, "root" for memory without a stack and for the mark of a truncated stack.
func FrameClass(frame string) string {
	if strings.HasPrefix(frame, "[") && strings.HasSuffix(frame, "]") {
		return "root"
	}

	if m := profile.FrameWithLine.FindStringSubmatch(frame); m != nil {
		if ext := path.Ext(m[2]); ext == ".py" || ext == ".pyx" || strings.HasPrefix(m[2], "<") {
			return "python"
		}
	}

	return "native"
}

// Ended is why a trace ended, with the limit of the cgroup that the target has met.
func Ended(s *summary.Summary) string {
	if s.Ended == summary.EndedOutOfMemory && s.Limit != nil && s.Limit.Of == growth.LimitCgroup {
		return End(s.Ended) + ", limit " + units.Bytes(float64(s.Limit.Bytes))
	}
	return End(s.Ended)
}

// RunningText says when a result was written, while the trace ran.
func RunningText(s *summary.Summary) string {
	text := End(s.Ended) + ", " + clockText(s.DurationS) + " after its start"
	if s.RanOnS > 0 {
		text += ", " + clockText(s.RanOnS) + " before its last sample"
	}
	return text + ": it still runs, or was killed"
}

// End is why a trace ended, by one of the constants summary.Ended….
func End(ended string) string {
	switch ended {
	case summary.EndedDuration:
		return "completed"
	case summary.EndedSettled:
		return "settled"
	case summary.EndedInterrupt:
		return "interrupted"
	case summary.EndedExit:
		return "target exited"
	case summary.EndedOutOfMemory:
		return "target killed: out of memory"
	case summary.EndedRunning:
		return "written while the trace ran"
	}

	return ended
}

// Undecided explains the largest stacks whose trend is undecided, up to limit of them: the cause,
// and how to decide it.
func Undecided(accumulating []summary.Accumulation, limit int) []string {
	var lines []string
	for _, a := range accumulating {
		if a.Trend == growth.TrendUndecided && len(lines) < limit {
			lines = append(lines, fmt.Sprintf("cache or leak, undecided: %s %s: %s; %s",
				Where(a), units.Signed(float64(a.Bytes)), undecidedReason(a), undecidedRemedy(a)))
		}
	}

	return lines
}

// UndecidedText explains why the trend of a stack is undecided, and how to decide it. It is empty
// where the trend is decided.
func UndecidedText(a summary.Accumulation) string {
	if a.UndecidedReason == "" {
		return ""
	}
	return "cache or leak, undecided: " + undecidedReason(a) + "; " + undecidedRemedy(a)
}

var undecidedReasons = map[growth.UndecidedReason]string{
	growth.UndecidedFewSamples:   "too few of its objects were seen",
	growth.UndecidedFewBursts:    "all objects that were seen come from one or two bursts",
	growth.UndecidedUnseenDeaths: "most of it may have been freed unseen",
	growth.UndecidedSizeClass:    "other growing objects of the same size may have taken their place",
	growth.UndecidedHeapGrowth:   "the heap has not grown by as much",
}

func undecidedReason(a summary.Accumulation) string {
	if a.Untrackable != "" {
		return a.Untrackable
	}
	if reason, ok := undecidedReasons[a.UndecidedReason]; ok {
		return reason
	}
	return "whether its objects are alive cannot be seen from outside"
}

// minRemedySeconds is the shortest time that a remedy recommends to trace for.
const minRemedySeconds = 60

func undecidedRemedy(a summary.Accumulation) string {
	const full = "full tracing (--overhead off) decides it"
	if a.LongerS == nil {
		return "only " + full
	}
	longer := units.Span(math.Max(minRemedySeconds, *a.LongerS), false, math.Ceil)
	return "trace " + longer + " more, or with a larger --overhead; " + full
}
