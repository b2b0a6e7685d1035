package report

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/allocscope/allocscope/export"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/growth"
)

// viewOf is what the page shows of a summary that is tamed.
func viewOf(s *export.Summary, data pageData) *view {
	v := &view{
		Command: commandOf(s), PID: strconv.Itoa(s.Process.PID), Duration: words.Seconds(s.DurationS), Ended: words.End(s.Ended),
		Started: s.Started.Format("2 January 2006, 15:04:05 MST"), StartedISO: s.Started.Format(time.RFC3339),
		Verdict: verdictOf(s.Verdict, words.AtLimit), Facts: factsOf(s), Culprits: culpritsOf(s.Culprits), Advice: adviceOf(s),
		Books: booksOf(s), Rows: rowsOf(s.Accumulating, s.SnapshotsS), RowsNote: rowsNote(s), InWindows: s.Overhead.InWindows(), Processes: processesOf(s),
		Warnings: s.Warnings, Sources: sourcesOf(s), Limits: limitsOf(s), CommandLine: words.CommandLine(s.CommandLine), Setup: setupOf(s),
		PprofCommands: strings.Join(pprofCommandsOf(data), "\n"), Devices: devicesOf(s),
	}
	for _, g := range s.Groups {
		v.Groups = append(v.Groups, words.Group(g))
	}
	if data.Timeline != nil {
		v.HasTimeline, v.TimelineText, v.Phases = true, timelineText(s, data.Timeline), phaseRowsOf(s)
	}
	v.HasFlame, v.FlameNote = data.hasFlame(), data.flameNote()
	v.Sections = sectionsOf(v)
	return v
}

// commandOf is the command line of the process, or its name.
func commandOf(s *export.Summary) string {
	const longest = 120 // characters of a heading
	text := []rune(strings.Join(s.Process.Arguments, " "))
	switch {
	case len(text) == 0:
		return s.Process.Command
	case len(text) > longest:
		return string(text[:longest]) + "…"
	}
	return string(text)
}

func pidText(pid int) string { return "PID " + strconv.Itoa(pid) }

func sectionsOf(v *view) []section {
	type part struct {
		id, title string
		there     bool
	}
	parts := []part{
		{"verdict", "Verdict", true},
		{"timeline", "Timeline", v.HasTimeline},
		{"ledger", "Ledger", len(v.Books) > 0},
		{"accumulating", "What accumulates", true},
	}
	for _, d := range v.Devices {
		parts = append(parts, part{d.ID, d.Title, true})
	}
	parts = append(
		parts, part{"flame", "Flame graph", v.HasFlame}, part{"processes", "Processes", true}, part{"losses", "Losses and limits", true},
		part{"reproduce", "Reproduce", true},
	)
	var sections []section
	for _, p := range parts {
		if p.there {
			sections = append(sections, section{p.id, p.title})
		}
	}
	return sections
}

// classes are those that have a colour.
var classes = []growth.Class{
	growth.ClassLeak, growth.ClassSuspected, growth.ClassGrowing, growth.ClassSaturating, growth.ClassPlateau, growth.ClassSpikyPlateau,
	growth.ClassTooShort, growth.ClassWrongProcess,
}

func verdictOf(judged export.Verdict, limit string) verdictView {
	lines := words.VerdictLines(judged, limit)
	v := verdictView{Class: string(growth.ClassTooShort), Lines: lines[1:]}
	if slices.Contains(classes, judged.Class) {
		v.Class = string(judged.Class)
	}
	v.Name, v.Sentence = words.SplitHeadline(lines[0])
	return v
}

func culpritsOf(all []export.Culprit) []culpritView {
	var culprits []culpritView
	for _, c := range all {
		share := words.Signed(float64(c.BytesPerMin)) + "/min"
		if c.Share != nil {
			share = fmt.Sprintf("%.0f %% of the growth", 100**c.Share)
		}
		culprits = append(culprits, culpritView{share, c.Owner, words.Culprit(c)})
	}
	return culprits
}

func adviceOf(s *export.Summary) []string {
	var advice []string
	for _, a := range s.Advice {
		if a.Process != 0 && a.Process != s.Process.PID {
			a.Text = pidText(a.Process) + ": " + a.Text
		}
		advice = append(advice, a.Text)
	}
	return advice
}

// factsOf are the numbers that people look for first.
func factsOf(s *export.Summary) []fact {
	var facts []fact
	if rate := words.Rate(s.Verdict); s.RateBytesPerMin != nil || s.RateBytesPerStep != nil {
		value, interval, _ := strings.Cut(rate, " (")
		facts = append(facts, fact{"Rate", value, strings.TrimSuffix(interval, ")")})
	}
	if line := words.LimitLine(s.Verdict, words.AtLimit); line != "" {
		when, pace, _ := strings.Cut(strings.TrimPrefix(line, words.AtLimit+" "), " if ")
		facts = append(facts, fact{"Memory is full", when, limitNote(s, pace)})
	}
	if r := s.RSS; r.StartBytes != nil {
		facts = append(facts, fact{"RSS at the start", words.Bytes(float64(*r.StartBytes)), ""})
	}
	if r := s.RSS; r.BoundaryBytes != nil {
		facts = append(facts, fact{"RSS at the boundary", words.Bytes(float64(*r.BoundaryBytes)), secondsNote("after ", s.BoundaryS)})
	}
	if r := s.RSS; r.EndBytes != nil {
		f := fact{"RSS at the end", words.Bytes(float64(*r.EndBytes)), ""}
		if r.GrowthBytesPerMin != nil {
			f.Note = words.Signed(float64(*r.GrowthBytesPerMin)) + "/min since the boundary"
		}
		facts = append(facts, f)
	}
	if s.Steps != nil {
		f := fact{"Training steps", words.Count(float64(s.Steps.Count)), words.Count(s.Steps.PerMin) + "/min"}
		if s.Steps.GrowthBytesPerStep != nil {
			f.Note += ", " + words.Signed(float64(*s.Steps.GrowthBytesPerStep)) + " a step"
		}
		facts = append(facts, f)
	}
	return append(facts, overheadFacts(s)...)
}

func secondsNote(before string, seconds *float64) string {
	if seconds == nil {
		return ""
	}
	return before + words.Seconds(*seconds)
}

// limitNote says under what condition the limit is met, and how far it was at the end.
func limitNote(s *export.Summary, condition string) string {
	var notes []string
	if condition != "" {
		notes = append(notes, "if "+condition)
	}
	if s.Limit != nil {
		notes = append(notes, words.Bytes(float64(s.Limit.RoomBytes))+" of room in the "+s.Limit.Of)
	}
	return strings.Join(notes, "; ")
}

// timelineText says the chart in two sentences, and in two more what is on GPUs.
func timelineText(s *export.Summary, t *timelineData) string {
	sentences := []string{words.Headline(s.Verdict) + "."}
	if rss := t.Series[0]; rss.Unit == "bytes" && !isDevice(rss.Key) {
		if course := courseText(rss, t.TimeS); course != "" {
			sentences = append([]string{course}, sentences...)
		}
	}
	if device := deviceText(s, t); device != "" {
		sentences = append(sentences, device)
	}
	return strings.Join(sentences, " ")
}
