package words

import (
	"cmp"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/verdict"
)

// Labels of the blocks of a Result.
const (
	LabelWho     = "WHO"
	LabelWhere   = "WHERE"
	LabelHowFast = "HOW FAST"
	LabelHowSure = "HOW SURE"
	LabelDoNext  = "DO NEXT"
	LabelNote    = "NOTE"
)

const (
	// ResultWidth is the width of a Result in columns. Only a command may be longer.
	ResultWidth = 100
	// maxResultLines bounds the lines of a Result, the verdict and the empty line below it
	// included.
	maxResultLines = 15
	// labelWidth is the width of its labels.
	labelWidth = 10
)

// maxBlockLines bounds the lines of each block. The last one has the rest of maxResultLines.
var maxBlockLines = map[string]int{
	LabelWho: 2, LabelWhere: 3, LabelHowFast: 2, LabelHowSure: 2, LabelDoNext: 3, LabelNote: 2,
}

// A Result has the findings of a trace, for a reader in a hurry. The terminal, the report and
// summary.json show the same one.
type Result struct {
	// Name is the verdict, as Name writes it, and Class its class.
	Name  string
	Class verdict.Class
	// Subject is the process and how long it was traced.
	Subject string
	// Blocks in their order. None is empty.
	Blocks []Block
}

// A Block is one part of a Result: its label, and one entry a line.
type Block struct {
	Label string
	Lines []string
}

// A Place is where the commands of a Result are typed.
type Place struct {
	// Dir is the folder of the trace; empty: there is none yet.
	Dir string
	// Sudo is true where root's rights come from sudo.
	Sudo bool
}

// ResultOf returns the result of a trace. GPU memory takes the place of the RSS where it alone
// grows.
func ResultOf(s *summary.Summary, place Place) Result {
	if g := s.GPUInCharge(); g != nil {
		return gpuResultOf(s, g, place)
	}

	r := Result{Name: Name(s.Verdict), Class: s.Class, Subject: subjectOf(s, pidText(s))}
	r.add(LabelWho, whoLines(s))
	r.add(LabelWhere, whereLines(s))
	r.add(LabelHowFast, fastLines(s))
	r.add(LabelHowSure, sureLines(s))
	r.add(LabelDoNext, nextLines(s, place))
	r.add(LabelNote, noteLines(s, place))
	return r
}

// subjectOf is the process, and how long it was traced.
func subjectOf(s *summary.Summary, pid string) string {
	text := fmt.Sprintf("%s (PID %s), traced %s", commandText(s.Process), pid, clockText(s.DurationS))
	gaps := 0.0
	for _, g := range s.Gaps {
		gaps += g.ToS - g.FromS
	}
	if gaps > 0 {
		text += " with a gap of " + clockText(gaps)
	}
	return text
}

// shortSubject cuts a subject to a width, and of it the command: the PID and the duration stay.
func shortSubject(subject string, width int) string {
	at := max(0, strings.LastIndex(subject, " (PID "))
	command, rest := subject[:at], subject[at:]
	if room := width - ansi.StringWidth(rest); room >= minCommandChars {
		return ansi.Truncate(command, room, "...") + rest
	}
	return ansi.Truncate(subject, width, "...")
}

// pidText is the PID of the process, and the PID of the launcher that the user has named. WHO has
// more on a rank that is the outlier.
func pidText(s *summary.Summary) string {
	text := strconv.Itoa(s.Process.PID)
	if o := s.Outlier; o != nil && o.PID == s.Process.PID {
		return text + fmt.Sprintf(", rank %d of %d", o.Rank, o.Ranks)
	}
	if s.Asked != 0 && s.Asked != s.Process.PID {
		text += fmt.Sprintf(", started by %d", s.Asked)
	}
	return text + ranksText(s)
}

// VerdictResult returns the result of a series without a trace. limit names the memory limit.
func VerdictResult(v summary.Verdict, subject, limit string) Result {
	r := Result{Name: Name(v), Class: v.Class, Subject: subject}
	line := LimitLine(v, AtLimit)
	if line != "" {
		line += inParentheses(limit)
	}
	r.add(LabelHowFast, []string{Pace(v), joined(line, spikesLine(v))})
	r.add(LabelHowSure, Certainty(v))
	return r
}

// add adds a block of the lines that are not empty, if there is one.
func (r *Result) add(label string, lines []string) {
	lines = slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return line == "" })
	if len(lines) > 0 {
		r.Blocks = append(r.Blocks, Block{label, lines})
	}
}

// Block returns the lines of a block; nil: there is none.
func (r Result) Block(label string) []string {
	for _, b := range r.Blocks {
		if b.Label == label {
			return b.Lines
		}
	}
	return nil
}

// Text returns the result as summary.json has it.
func (r Result) Text() summary.ResultText {
	return summary.ResultText{
		Verdict: r.Name, Subject: r.Subject, Who: r.Block(LabelWho), Where: r.Block(LabelWhere),
		HowFast: r.Block(LabelHowFast), HowSure: r.Block(LabelHowSure),
		DoNext: r.Block(LabelDoNext), Note: r.Block(LabelNote),
	}
}

// Lines returns the result for a terminal, the verdict first. name may colour the verdict; nil does
// not.
func (r Result) Lines(name func(string) string) []string {
	if name == nil {
		name = func(text string) string { return text }
	}

	room := ResultWidth - len(r.Name) - 3
	lines := []string{name(r.Name) + "   " + shortSubject(growth.Printable(r.Subject), room), ""}
	for _, b := range r.Blocks {
		room := maxResultLines - len(lines)
		if b.Label == LabelDoNext { // its last step is the least
			room -= r.firstNoteLines()
		}
		lines = append(lines, b.lines(min(maxBlockLines[b.Label], room))...)
	}
	return lines
}

// firstNoteLines are the lines of the first note, the most serious one.
func (r Result) firstNoteLines() int {
	notes := r.Block(LabelNote)
	first := Block{LabelNote, notes[:min(1, len(notes))]}
	return len(first.lines(maxBlockLines[LabelNote]))
}

// lines wraps the entries of a block into so many lines at most. The last line that has room is cut,
// except for a command.
func (b Block) lines(most int) []string {
	const width = ResultWidth - labelWidth
	var wrapped []string
	for i, entry := range b.Lines {
		entry = growth.Printable(entry)
		if b.Label == LabelDoNext && len(b.Lines) > 1 {
			entry = fmt.Sprintf("%d. %s", i+1, entry)
		}

		last := most - len(wrapped)
		if last <= 0 {
			break
		}
		if b.Label != LabelNote { // the first note is shown whole
			last -= len(b.Lines) - i - 1
		}
		rows := strings.Split(unglued(ansi.Wrap(glued(entry), width, " ")), "\n")
		switch {
		case b.Label == LabelDoNext && strings.Contains(entry, binary):
			rows = []string{entry}
		case len(rows) > max(1, last):
			cut := ansi.Truncate(strings.Join(rows[max(1, last)-1:], " "), width, "...")
			rows = append(rows[:max(1, last)-1], cut)
		}
		wrapped = append(wrapped, rows...)
	}

	for i, row := range wrapped {
		label := ""
		if i == 0 {
			label = b.Label
		}
		wrapped[i] = fmt.Sprintf("%-*s%s", labelWidth, label, row)
	}
	return wrapped
}

// noBreak is a space at which no line is broken.
const noBreak = "\u00a0"

// glued keeps a command at the end of an entry in one piece.
func glued(entry string) string {
	i := strings.Index(entry, "sudo "+binary)
	if i < 0 {
		i = strings.Index(entry, binary)
	}
	if i < 0 {
		return entry
	}
	return entry[:i] + strings.ReplaceAll(entry[i:], " ", noBreak)
}

func unglued(text string) string { return strings.ReplaceAll(text, noBreak, " ") }

// joined joins texts that are not empty.
func joined(texts ...string) string {
	texts = slices.DeleteFunc(texts, func(text string) bool { return text == "" })
	return strings.Join(texts, "; ")
}

// maxCommandChars bounds the command line of the process, and minCommandChars is the least part of
// it in a title.
const maxCommandChars, minCommandChars = 60, 12

// commandText is the command line of a process, without folders.
func commandText(p summary.Process) string {
	if len(p.Arguments) == 0 {
		return p.Command
	}
	var words []string
	for _, argument := range p.Arguments {
		words = append(words, filepath.Base(argument))
	}
	text := strings.Join(words, " ")
	return ansi.Truncate(growth.Printable(text), maxCommandChars, "...")
}

// maxClock is the longest time in seconds that is written as one on a clock.
const maxClock = 1e9

func secondsOf(seconds float64) time.Duration {
	return time.Duration(seconds * float64(time.Second))
}

// clockText is a length of time with its seconds: "4m44s".
func clockText(seconds float64) string {
	if !(seconds < maxClock) {
		return units.Span(seconds, false, math.Round)
	}
	return units.Duration(secondsOf(seconds))
}

// fastLines are the rate, and when the limit is met.
func fastLines(s *summary.Summary) []string {
	const room = ResultWidth - labelWidth
	pace, line := joined(Pace(s.Verdict), rssText(s)), joined(limitText(s), spikesOf(s))
	if len(pace) > room {
		pace = Pace(s.Verdict)
	}
	if grows(s) && len(line) > room {
		line = limitText(s)
	}
	return []string{pace, line}
}

// rssText is the RSS at the start and the end: "RSS 306 -> 394 MiB".
func rssText(s *summary.Summary) string {
	if s.RSS.StartBytes == nil || s.RSS.EndBytes == nil || s.Class == verdict.ClassWrongProcess {
		return ""
	}
	start, end := units.Bytes(float64(*s.RSS.StartBytes)), units.Bytes(float64(*s.RSS.EndBytes))
	number, unit, _ := strings.Cut(start, " ")
	if strings.HasSuffix(end, " "+unit) {
		start = number
	}
	return "RSS " + start + " -> " + end
}

// minSpikeShare is the height of spikes, as a share of the level, that is worth a word beside
// growth.
const minSpikeShare = 0.1

// spikesOf are the spikes, and the size that they reach.
func spikesOf(s *summary.Summary) string {
	switch {
	case s.Spikes == nil:
		return ""
	case s.LevelBytes == nil:
		return spikesLine(s.Verdict)
	case grows(s) && s.Spikes.HeightBytes < minSpikeShare**s.LevelBytes:
		return ""
	case grows(s):
		return "peaks of +" + units.Bytes(s.Spikes.HeightBytes)
	}
	text := spikesLine(s.Verdict)
	if m := s.SpikeMemory; m != nil && m.PeriodS != nil {
		text += fmt.Sprintf(", one each %s", clockText(*m.PeriodS))
	}
	highest := *s.LevelBytes + s.Spikes.HeightBytes
	if s.RSS.PeakBytes != nil && !s.RSS.PeakBefore {
		highest = max(highest, float64(*s.RSS.PeakBytes))
	}
	return text + ", up to " + units.Bytes(highest)
}

// limitText is when the limit is met, by the clock where that is soon, and which limit it is.
func limitText(s *summary.Summary) string {
	text := LimitLine(s.Verdict, AtLimit)
	switch {
	case s.EndedBeforeLimit:
		return "no forecast: the process has ended"
	case s.Class == verdict.ClassFillsUp:
		return fillsBeforeLimit(s)
	case text == "" && s.Class == verdict.ClassPlateau && s.WhyCode == verdict.ReasonNoGrowth:
		return "memory does not run out at this rate"
	case text == "":
		return ""
	}

	var about []string
	if s.ToLimit != nil {
		about = append(about, clockAt(s, *s.ToLimit))
	}
	if s.Limit != nil {
		about = append(about, LimitName(*s.Limit))
	}
	return text + inParentheses(joined(about...))
}

// fillsBeforeLimit is how much of the memory limit is left when it is full.
func fillsBeforeLimit(s *summary.Summary) string {
	if s.Limit == nil || s.Fill == nil {
		return ""
	}
	left := float64(s.Limit.HeadroomBytes) - s.Fill.LeftBytes
	return fmt.Sprintf("the limit is not met: %s are left then%s", units.Bytes(max(0, left)),
		inParentheses(LimitName(*s.Limit)))
}

// clockAt is the time of day so many seconds after the end of the trace; empty where that is no
// time of this day or the next one.
func clockAt(s *summary.Summary, seconds float64) string {
	if seconds <= 0 || !(seconds < 24*60*60) || s.Started.IsZero() || !(s.DurationS < maxClock) {
		return ""
	}
	return "about " + s.Started.Add(secondsOf(s.DurationS+seconds)).Format("15:04")
}

// LimitName names a memory limit, and its size or the memory left below it.
func LimitName(l summary.Limit) string {
	size := " " + units.Bytes(float64(l.Bytes))
	if l.Bytes <= 0 {
		size = ", " + units.Bytes(float64(l.HeadroomBytes)) + " left"
	}
	switch l.Of {
	case growth.LimitCgroup:
		return "container limit" + size
	case growth.LimitHigh:
		return "memory.high of the container" + size
	case growth.LimitMachine:
		return "machine RAM" + size
	}
	return cmp.Or(limitNames[l.Of], l.Of) + size
}

// sureLines are the proof of the verdict, and how much of the growth its call sites account for.
func sureLines(s *summary.Summary) []string {
	certainty := Certainty(s.Verdict)
	if s.WhyCode == verdict.ReasonFragmentation {
		certainty = fragmentationLines(s)
	}
	return []string{strings.Join(certainty, "; "), accountLine(s)}
}
