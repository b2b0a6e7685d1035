package report

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/allocscope/allocscope/export"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/growth"
)

// viewOf is what the page shows of a summary that is tamed.
func viewOf(s *export.Summary, timeline *timelineData, flame *flameData) *view {
	v := &view{
		Command: commandOf(s), PID: strconv.Itoa(s.Process.PID), Duration: words.Seconds(s.DurationS), Ended: words.End(s.Ended),
		Started: s.Started.Format("2 January 2006, 15:04:05 MST"), StartedISO: s.Started.Format(time.RFC3339),
		Verdict: verdictOf(s), Facts: factsOf(s), Culprits: culpritsOf(s), Advice: adviceOf(s),
		Books: booksOf(s), Rows: rowsOf(s), RowsNote: rowsNote(s), InWindows: s.Overhead.InWindows(), Processes: processesOf(s),
		Warnings: s.Warnings, Sources: sourcesOf(s), Limits: limitsOf(s), CommandLine: words.CommandLine(s.CommandLine), Setup: setupOf(s),
		PprofCommands: strings.Join(pprofCommands, "\n"),
	}
	for _, g := range s.Groups {
		v.Groups = append(v.Groups, words.Group(g))
	}
	if timeline != nil {
		v.HasTimeline, v.TimelineText, v.Phases = true, timelineText(s, timeline), phaseRowsOf(s)
	}
	if flame != nil {
		v.HasFlame, v.FlameNote = true, flame.Note
	}
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
	var sections []section
	for _, s := range []struct {
		id, title string
		there     bool
	}{
		{"verdict", "Verdict", true},
		{"timeline", "Timeline", v.HasTimeline},
		{"ledger", "Ledger", len(v.Books) > 0},
		{"accumulating", "What accumulates", true},
		{"flame", "Flame graph", v.HasFlame},
		{"processes", "Processes", true},
		{"losses", "Losses and limits", true},
		{"reproduce", "Reproduce", true},
	} {
		if s.there {
			sections = append(sections, section{s.id, s.title})
		}
	}
	return sections
}

// classes are those that have a colour.
var classes = []growth.Class{
	growth.ClassLeak, growth.ClassSuspected, growth.ClassGrowing, growth.ClassSaturating, growth.ClassPlateau, growth.ClassSpikyPlateau,
	growth.ClassTooShort, growth.ClassWrongProcess,
}

func verdictOf(s *export.Summary) verdictView {
	lines := words.VerdictLines(s.Verdict, words.AtLimit)
	v := verdictView{Class: string(growth.ClassTooShort), Lines: lines[1:]}
	if slices.Contains(classes, s.Class) {
		v.Class = string(s.Class)
	}
	v.Name, v.Sentence = words.SplitHeadline(lines[0])
	return v
}

func culpritsOf(s *export.Summary) []culpritView {
	var culprits []culpritView
	for _, c := range s.Culprits {
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

// timelineText says the chart in two sentences.
func timelineText(s *export.Summary, t *timelineData) string {
	rss := t.Series[0]
	var first, last, most *int64
	var mostAt float64
	for i, value := range rss.Values {
		if value == nil {
			continue
		}
		if first == nil {
			first = value
		}
		if last = value; most == nil || *value > *most {
			most, mostAt = value, t.TimeS[i]
		}
	}
	if first == nil || rss.Unit != "bytes" {
		return words.Headline(s.Verdict) + "."
	}
	over := rss.Label + " over " + words.Span(t.TimeS[len(t.TimeS)-1], false, math.Round) + ": "
	peak := words.Bytes(float64(*most))
	if words.Bytes(float64(*first)) != peak || words.Bytes(float64(*last)) != peak {
		peak = fmt.Sprintf("%s at first, %s at last, at most %s after %s", words.Bytes(float64(*first)), words.Bytes(float64(*last)), peak,
			words.Span(mostAt, false, math.Round))
	} else {
		peak = "never more than " + peak
	}
	return over + peak + ". " + words.Headline(s.Verdict) + "."
}

// phaseRowsOf are phases, spikes, marks and changes of the probes, in the order of time.
func phaseRowsOf(s *export.Summary) []phaseRow {
	type timed struct {
		at float64
		phaseRow
	}
	var all []timed
	span := func(from, to float64, what, rate string) {
		all = append(all, timed{from, phaseRow{words.Seconds(from), words.Seconds(to), what, rate}})
	}
	for _, p := range s.Phases {
		rate := ""
		if p.RateBytesPerMin != nil {
			rate = words.Signed(*p.RateBytesPerMin) + "/min"
		}
		if p.FromS != nil && p.ToS != nil {
			span(*p.FromS, *p.ToS, phaseText(p.Kind), rate)
		}
	}
	for _, spike := range spikesOf(s) {
		span(spike.FromS, spike.ToS, "spike", "")
	}
	for _, m := range s.Marks {
		all = append(all, timed{m.AtS, phaseRow{words.Seconds(m.AtS), "", "mark: " + m.Text, ""}})
	}
	for _, c := range changesIn(s) {
		all = append(all, timed{c.AtS, phaseRow{words.Seconds(c.AtS), "", "probes: " + c.Text, ""}})
	}
	slices.SortStableFunc(all, func(a, b timed) int {
		switch {
		case a.at < b.at:
			return -1
		case a.at > b.at:
			return 1
		}
		return 0
	})
	var rows []phaseRow
	for _, row := range all {
		rows = append(rows, row.phaseRow)
	}
	return rows
}
