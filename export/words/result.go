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
	// ResultWidth is the width of a Result in columns, but for a terminal of another width. Only a
	// command may be longer.
	ResultWidth = 100
	// MinWidth is the width of the narrowest terminal for which a text is laid out.
	MinWidth = 40
	// maxResultLines bounds the lines of a Result, the verdict and the empty line below it
	// included.
	maxResultLines = 15
	// labelWidth is the width of its labels.
	labelWidth = 10
)

// maxBlockLines bounds the lines of each block. The last one has the rest of maxResultLines.
var maxBlockLines = map[string]int{
	LabelWho: 2, LabelWhere: 3, LabelHowFast: 2, LabelHowSure: 4, LabelDoNext: 3, LabelNote: 2,
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
	r.add(LabelWhere, whereLines(s, place))
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

// A layout is the lines of a result for so many columns.
type layout int

// room is the width of a row behind its label.
func (l layout) room() int { return int(l) - labelWidth }

// rows are how many rows hold as much text as so many rows of ResultWidth.
func (l layout) rows(n int) int {
	if l >= ResultWidth {
		return n
	}
	const usual = ResultWidth - labelWidth
	return (n*usual + l.room() - 1) / l.room()
}

// title are a title within the width. Of the subject the command is cut: the PID and the duration
// stay, on further lines where the first has no room for them.
func (l layout) title(name, shown, subject string) []string {
	room := int(l) - ansi.StringWidth(name) - 3
	at := strings.LastIndex(subject, " (PID ")
	if at < 0 {
		return []string{shown + "   " + middleCut(subject, room)}
	}

	command, rest := subject[:at], subject[at:]
	least := minCommandChars
	if l < ResultWidth { // there is a second line for the rest
		least = min(ansi.StringWidth(command), maxCommandChars/2)
	}
	if left := room - ansi.StringWidth(rest); left >= least {
		return []string{shown + "   " + shortCommand(command, left) + rest}
	}
	lines := []string{shown + "   " + shortCommand(command, room)}
	if room < minCommandChars {
		lines = []string{shown, "   " + shortCommand(command, int(l)-3)}
	}
	for _, row := range wrappedRows(rest[1:], "", int(l)-3) {
		lines = append(lines, "   "+row)
	}
	return lines
}

// cut takes the place of a part that is left out.
const cut = "..."

// shortCommand shortens a command to a width: first its last arguments go, then the middle of the
// rest.
func shortCommand(command string, width int) string {
	if ansi.StringWidth(command) <= width {
		return command
	}

	words := strings.Split(command, " ")
	const leastWords = 2 // the interpreter and its program
	for n := len(words) - 1; n >= leastWords; n-- {
		if text := strings.Join(words[:n], " ") + " " + cut; ansi.StringWidth(text) <= width {
			return text
		}
	}
	return middleCut(command, width)
}

// middleCut cuts the middle out of a text that is wider than so many columns: both of its ends tell
// more.
func middleCut(text string, width int) string {
	all := ansi.StringWidth(text)
	if all <= width || width <= len(cut) {
		return text
	}

	head := (width - len(cut) + 1) / 2
	tail := width - len(cut) - head
	return ansi.Truncate(text, head, "") + cut + ansi.TruncateLeft(text, all-tail, "")
}

// wordsCut cuts words out of the middle of a text that is wider than so many columns.
func wordsCut(text string, width int) string {
	left := ansi.StringWidth(text)
	if left <= width {
		return text
	}

	// Words of the head and of the tail remain, and three dots in place of those between.
	words := strings.Split(text, " ")
	head := len(words) / 2
	tail := len(words) - head - 1
	left += len(cut) - ansi.StringWidth(words[head])
	for head > 0 && tail > 0 {
		if left <= width {
			return strings.Join(slices.Concat(words[:head], []string{cut}, words[len(words)-tail:]), " ")
		}

		dropped := len(words) - tail
		if head > tail {
			head--
			dropped = head
		} else {
			tail--
		}
		left -= ansi.StringWidth(words[dropped]) + len(" ")
	}
	return middleCut(text, width)
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

// Lines returns the result in lines of so many columns, the verdict first: fifteen at most, or more
// where they are narrower than ResultWidth. name may colour the verdict; nil does not.
func (r Result) Lines(width int, name func(string) string) []string {
	l := layout(max(width, MinWidth))
	if name == nil {
		name = func(text string) string { return text }
	}

	lines := append(l.title(r.Name, name(r.Name), growth.Printable(r.Subject)), "")
	all := l.rows(maxResultLines)
	r = r.withoutCaller(all - len(lines))
	for _, b := range r.Blocks {
		room := all - len(lines)
		switch b.Label {
		case LabelHowSure: // its last line is the least, but for the last step
			room -= min(minSteps, len(r.Block(LabelDoNext))) + l.firstNoteLines(r)
		case LabelDoNext: // its last step is the least
			room -= l.firstNoteLines(r)
		}
		most := min(l.rows(maxBlockLines[b.Label]), room)
		if b.Label == LabelHowSure {
			b.Lines = compacted(b.Lines, most)
		}
		lines = append(lines, l.block(b, most)...)
	}
	return lines
}

// withoutCaller leaves the caller of a call site out where there is no room for all blocks, and
// WHERE says who keeps the memory.
func (r Result) withoutCaller(room int) Result {
	need := 0
	for _, b := range r.Blocks {
		most := maxBlockLines[b.Label]
		switch b.Label {
		case LabelDoNext:
			most = minSteps
		case LabelNote:
			most = 1
		}
		need += min(len(b.Lines), most)
	}

	r.Blocks = slices.Clone(r.Blocks)
	for i := range r.Blocks {
		b := &r.Blocks[i]
		last := len(b.Lines) - 1
		if b.Label == LabelWhere && need > room && !strings.HasSuffix(b.Lines[last], callerMark) {
			b.Lines = slices.DeleteFunc(slices.Clone(b.Lines), func(line string) bool {
				return strings.HasSuffix(line, callerMark)
			})
		}
	}
	return r
}

// compacted joins lines that follow one another, and fit in one row, until there are so many at
// most.
func compacted(lines []string, most int) []string {
	lines = slices.Clone(lines)
	for len(lines) > most {
		at, least := -1, ResultWidth-labelWidth+1
		for i := range len(lines) - 1 {
			if width := ansi.StringWidth(lines[i] + "; " + lines[i+1]); width < least {
				at, least = i, width
			}
		}
		if at < 0 {
			return lines
		}
		lines[at] += "; " + lines[at+1]
		lines = slices.Delete(lines, at+1, at+2)
	}
	return lines
}

// minSteps is the number of steps that always have room.
const minSteps = 2

// firstNoteLines are the lines of the first note, the most serious one.
func (l layout) firstNoteLines(r Result) int {
	notes := r.Block(LabelNote)
	first := Block{LabelNote, notes[:min(1, len(notes))]}
	return len(l.block(first, l.rows(maxBlockLines[LabelNote])))
}

// block wraps the entries of a block into so many lines at most. An entry that has no room loses
// words of its middle, and never a part of a command.
func (l layout) block(b Block, most int) []string {
	width := l.room()
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
		if b.Label == LabelDoNext && strings.Contains(entry, binary) {
			wrapped = append(wrapped, l.command(entry)...)
		} else {
			wrapped = append(wrapped, fittedRows(entry, width, max(1, last))...)
		}
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

// command is an entry with a command, in one piece. On a terminal that is narrower than ResultWidth
// it goes on behind backslashes, as a shell reads it.
func (l layout) command(entry string) []string {
	if l >= ResultWidth || ansi.StringWidth(entry) <= l.room() {
		return []string{entry}
	}
	entry, _, _ = strings.Cut(entry, "   # ")

	var rows []string
	room := l.room() - len(` \`)
	for i, word := range strings.Split(entry, " ") { // no word is cut: it may be a path
		last := len(rows) - 1
		if i > 0 && ansi.StringWidth(rows[last]+" "+word) <= room {
			rows[last] += " " + word
		} else {
			rows = append(rows, word)
		}
	}
	for i := range rows[:len(rows)-1] {
		rows[i] += ` \`
	}
	return rows
}

// fittedRows wraps an entry into so many rows at most.
func fittedRows(entry string, width, most int) []string {
	at := commandAt(entry)
	text, command := entry[:at], entry[at:]

	rows := wrappedRows(text, command, width)
	for room := ansi.StringWidth(text) - 1; len(rows) > most && room > 2*len(cut); room-- {
		rows = wrappedRows(wordsCut(text, room), command, width)
	}
	return rows
}

// wrappedRows wraps a text at its spaces, and puts a command behind it in one piece. A word that is wider
// than a row loses its middle.
func wrappedRows(text, command string, width int) []string {
	row, rows := "", []string{}
	for i, word := range strings.Split(text, " ") {
		word = middleCut(word, width)
		switch {
		case i == 0:
			row = word
		case row == "" && len(rows) > 0: // a row begins with a word
			row = word
		case ansi.StringWidth(row)+1+ansi.StringWidth(word) <= width:
			row += " " + word
		default:
			rows, row = append(rows, strings.TrimRight(row, " ")), word
		}
	}

	if ansi.StringWidth(row)+ansi.StringWidth(command) > width {
		return append(rows, strings.TrimRight(row, " "), command)
	}
	return append(rows, row+command)
}

// commandAt is where the command at the end of an entry begins; its length, where it has none.
func commandAt(entry string) int {
	for _, begin := range []string{"sudo " + binary, binary} {
		if at := strings.Index(entry, begin); at >= 0 {
			return at
		}
	}
	return len(entry)
}

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
		if before, _, _ := strings.Cut(argument, "/"); !strings.Contains(before, " ") {
			argument = filepath.Base(argument) // not a title such as "nginx: master process /usr/..."
		}
		words = append(words, argument)
	}
	text := strings.Join(words, " ")
	return shortCommand(growth.Printable(text), maxCommandChars)
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
	if g := s.ReplacedGroup(); g != nil && s.WhyCode == verdict.ReasonReplaced {
		return []string{replacedPace(g), limitText(s)}
	}
	pace, line := joined(Pace(s.Verdict), rssText(s)), joined(limitText(s), spikesOf(s))
	if len(pace) > room && s.Rate != nil {
		pace = strings.Replace(pace, "; "+perDay(*s.Rate), "", 1)
	}
	if len(pace) > room {
		pace = Pace(s.Verdict)
		if both := joined(rssText(s), line); len(both) <= room {
			line = both
		}
	}
	if len(line) > room {
		line = limitText(s)
		if s.Class == verdict.ClassSpikyPlateau {
			line = spikesOf(s)
		}
	}
	return []string{pace, line}
}

// rssText is the RSS at the start and the end: "RSS 306 -> 394 MiB".
func rssText(s *summary.Summary) string {
	isOther := s.Class == verdict.ClassWrongProcess || isElsewhere(s)
	if s.RSS.StartBytes == nil || s.RSS.EndBytes == nil || isOther {
		return ""
	}
	start, end := units.Bytes(float64(*s.RSS.StartBytes)), units.Bytes(float64(*s.RSS.EndBytes))
	isSame := start == end
	number, unit, _ := strings.Cut(start, " ")
	if strings.HasSuffix(end, " "+unit) {
		start = number
	}
	text := "RSS " + start + " -> " + end
	if !isSame && endsInSpike(s) {
		text += " (the end is in a spike)"
	}
	return text
}

// endsInSpike reports whether the last sample lies in a spike, and the RSS at the end with it.
func endsInSpike(s *summary.Summary) bool {
	if !s.HasHighSpikes() || len(s.Spikes.Spans) == 0 || len(s.Phases) == 0 {
		return false
	}
	spike, last := s.Spikes.Spans[len(s.Spikes.Spans)-1].To, s.Phases[len(s.Phases)-1].To
	if spike == nil || last == nil || *spike < *last {
		return false
	}

	level := *s.LevelBytes
	if s.Rate != nil && s.LevelAt != nil {
		level += *s.Rate / 60 * (*last - *s.LevelAt)
	}
	return float64(*s.RSS.EndBytes) > level+s.Spikes.HeightBytes/2
}

// spikesOf are the spikes, and the size that they reach.
func spikesOf(s *summary.Summary) string {
	switch {
	case s.Spikes == nil:
		return ""
	case s.LevelBytes == nil:
		return spikesLine(s.Verdict)
	case grows(s) && !s.HasHighSpikes():
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
	switch together := togetherText(s); {
	case s.EndedBeforeLimit:
		return "no forecast: the process has ended"
	case together != "":
		return together
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

	end := s.Started.Add(secondsOf(s.DurationS))
	at := end.Add(secondsOf(seconds))
	if at.YearDay() != end.YearDay() {
		return "about " + at.Format("15:04 on Jan 2")
	}
	return "about " + at.Format("15:04")
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
