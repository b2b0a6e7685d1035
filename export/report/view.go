package report

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/growth/verdict"
)

// A view is the data of the template: text in the order of the page.
type view struct {
	Command, PID, Duration, Ended string
	// Started for people, and StartedISO for machines.
	Started, StartedISO string
	Sections            []section
	// Name and Class of the worst verdict, of RSS or GPU memory, and Result, the text that the
	// terminal prints under it.
	Name, Class string
	Result      []words.Block
	// Facts are the numbers that people look for first: rate, time to the limit, RSS at the start
	// and the end.
	Facts        []fact
	Suspects     []suspectView
	Diagnoses    []string
	Advice       []string
	HasTimeline  bool
	TimelineText string
	Phases       []phaseRow
	// Breakdowns of the RSS of the process, and of its tree where there are other processes.
	Breakdowns []breakdownView
	Rows       []rowView
	RowsNote   string
	// Spikes of RSS and the memory alive in them only; nil: there were none.
	Spikes *spikesView
	// Objects of the process, and who keeps what; nil: they are not known.
	Objects *objectsView
	// InBursts: the heap was sampled in bursts.
	InBursts bool
	// GPUMemory of the processes that have any.
	GPUMemory     []gpuView
	HasFlame      bool
	FlameNote     string
	Processes     []processView
	Groups        []string
	Outlier       []string
	Warnings      []string
	Sources       []sourceView
	Limits        []string
	CommandLine   string
	Setup         []fact
	PprofCommands string
}

type section struct{ ID, Title string }

// A verdictView is the verdict as a heading: Name is "LEAK", and Sentence the rest.
type verdictView struct {
	Class, Name, Sentence string
	Lines                 []string
}

type fact struct{ Name, Value, Note string }

// A suspectView is a suspect, with lines about who keeps its memory.
type suspectView struct {
	Share, Component, Where string
	Kept                    []string
}

type phaseRow struct{ From, To, Event, Rate string }

// A breakdownView is a breakdown as a waterfall. Its first line is the total at the baseline, and
// its last line that at the end.
type breakdownView struct {
	Title string
	Lines []breakdownLine
	Note  string
}

type breakdownLine struct {
	// Class is "total" of the first and the last line, "unexplained", or empty.
	Class, Label, Component, Start, Growth, Error, End string
	Bar                                                bar
}

// A bar lies in 1000 by 20 units.
type bar struct {
	// Class is "total", "grown" or "shrunk".
	Class       string
	From, Width float64
	// Whisker is the path of the interval; empty: there is none.
	Whisker string
}

type rowView struct {
	Component, Kind, Where                     string
	Stack                                      []frameView
	Rate, Interval, Share, Bytes, Objects, Age string
	RateValue, ShareValue, AgeValue            float64
	BytesValue, ObjectsValue                   int64
	// Trend in a word, and Spark its path in 100 by 24 units; empty: there are fewer than two
	// snapshots.
	Trend, Spark string
	// UndecidedReason of the trend; empty: it is decided.
	UndecidedReason string
}

// A rowTable is a table of rows with its label for screen readers.
type rowTable struct {
	Label string
	Rows  []rowView
}

// Table has the accumulating stacks.
func (v *view) Table() rowTable { return rowTable{"What accumulates, as a table", v.Rows} }

// Table has the stacks that accumulate on GPUs.
func (v gpuView) Table() rowTable { return rowTable{"What accumulates, " + v.Title, v.Rows} }

// A frameView has the class "python", "native" or "root".
type frameView struct{ Class, Text string }

type processView struct{ PID, Role, Command, Traced, Seen, Start, End, Verdict string }

type sourceView struct{ Name, PID, State, Reason string }

// viewOf makes the view of a sanitized summary.
func viewOf(s *summary.Summary, dir string, data pageData) *view {
	result := words.ResultOf(s, words.Place{Dir: dir, Sudo: true})
	v := &view{
		Command: commandOf(s), PID: strconv.Itoa(s.Process.PID),
		Duration: units.Seconds(s.DurationS), Ended: words.Ended(s),
		Started:    s.Started.Format("2 January 2006, 15:04:05 MST"),
		StartedISO: s.Started.Format(time.RFC3339),
		Name:       result.Name, Class: classOf(result.Class), Result: result.Blocks,
		Facts:    factsOf(s),
		Suspects: suspectsOf(s.Suspects, s.Keepers), Diagnoses: words.Diagnoses(s),
		Advice:     words.Advice(s),
		Breakdowns: breakdownsOf(s), Rows: rowsOf(s.Accumulating, s.SnapshotsS),
		RowsNote: words.RowsNote(s), InBursts: s.Overhead.InBursts(), Processes: processesOf(s),
		Outlier:  words.OutlierDetails(s.Outlier),
		Warnings: words.Warnings(s), Sources: sourcesOf(s), Limits: words.Limits(s),
		CommandLine: words.CommandLine(s.CommandLine), Setup: setupOf(s),
		PprofCommands: strings.Join(pprofCommandsOf(data), "\n"), GPUMemory: gpuViewsOf(s),
		Spikes: spikeMemoryOf(s), Objects: objectsOf(s),
	}

	for _, g := range s.Groups {
		v.Groups = append(v.Groups, words.Group(g))
	}

	if data.Timeline != nil {
		v.HasTimeline, v.TimelineText, v.Phases = true, timelineText(s, data.Timeline),
			phaseRowsOf(s)
	}

	v.HasFlame, v.FlameNote = data.hasFlame(), data.flameNote()
	v.Sections = sectionsOf(v)
	return v
}

// commandOf is the command line of the process, or its name.
func commandOf(s *summary.Summary) string {
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
		shown     bool
	}
	parts := []part{
		{"verdict", "Verdict", true},
		{"timeline", "Timeline", v.HasTimeline},
		{"breakdown", "RSS breakdown", len(v.Breakdowns) > 0},
		{"accumulating", "What accumulates", true},
		{"spikes", "Spikes", v.Spikes != nil},
		{"objects", "Objects", v.Objects != nil},
	}

	for _, d := range v.GPUMemory {
		parts = append(parts, part{d.ID, d.Title, true})
	}

	parts = append(
		parts, part{"flame", "Flame graph", v.HasFlame}, part{"processes", "Processes", true},
		part{"losses", "Losses and limits", true},
		part{"reproduce", "Reproduce", true},
	)

	var sections []section
	for _, p := range parts {
		if p.shown {
			sections = append(sections, section{p.id, p.title})
		}
	}

	return sections
}

// classes are the classes with a colour.
var classes = []verdict.Class{
	verdict.ClassLeak, verdict.ClassSuspected, verdict.ClassGrowing, verdict.ClassFillsUp,
	verdict.ClassSaturating,
	verdict.ClassPlateau, verdict.ClassSpikyPlateau,
	verdict.ClassTooShort, verdict.ClassWrongProcess,
}

func verdictOf(judged summary.Verdict) verdictView {
	return verdictView{
		Class: classOf(judged.Class), Name: words.Name(judged), Sentence: words.Pace(judged),
		Lines: words.VerdictLines(judged, words.AtGPULimit)[1:],
	}
}

// classOf is the name of a class in the style sheet. A class of another version has none.
func classOf(class verdict.Class) string {
	if !slices.Contains(classes, class) {
		class = verdict.ClassTooShort
	}
	return string(class)
}

// minSuspectShare is the share of the growth from which on a suspect is listed.
const minSuspectShare = 0.01

func suspectsOf(all []summary.Suspect, keepers []summary.Keeper) []suspectView {
	var suspects []suspectView
	for _, c := range all {
		share := units.Signed(float64(c.BytesPerMin)) + "/min"
		if c.Share != nil {
			if *c.Share < minSuspectShare {
				continue
			}
			share = units.WholePercent(min(*c.Share, 1)) + " of the growth"
		}
		kept := words.KeptBy(summary.KeeperOf(keepers, &c), maxKeptChars)
		suspects = append(suspects, suspectView{share, c.Component, words.Suspect(c), kept})
	}

	return suspects
}

// factsOf are the numbers that people look for first.
func factsOf(s *summary.Summary) []fact {
	facts := verdictFacts(s.Verdict, "Out of memory", s.Limit)
	if r := s.RSS; r.StartBytes != nil {
		facts = append(facts, fact{"RSS at the start", units.Bytes(float64(*r.StartBytes)), ""})
	}

	if r := s.RSS; r.BaselineBytes != nil {
		facts = append(facts, fact{
			"RSS at the baseline", units.Bytes(float64(*r.BaselineBytes)),
			secondsNote("after ", s.BaselineS),
		})
	}

	if r := s.RSS; r.EndBytes != nil {
		facts = append(facts, fact{
			"RSS at the end", units.Bytes(float64(*r.EndBytes)), "",
		})
	}

	if s.Steps != nil {
		f := fact{
			"Training steps", units.Count(float64(s.Steps.Count)),
			units.Count(s.Steps.PerMin) + "/min",
		}
		if s.Steps.GrowthBytesPerStep != nil {
			f.Note += ", " + units.Signed(float64(*s.Steps.GrowthBytesPerStep)) + " a step"
		}

		facts = append(facts, f)
	}

	return append(facts, overheadFacts(s)...)
}

func secondsNote(before string, seconds *float64) string {
	if seconds == nil {
		return ""
	}
	return before + units.Seconds(*seconds)
}

// verdictFacts are the rate and the time to a limit, with its condition and the headroom.
func verdictFacts(v summary.Verdict, name string, limit *summary.Limit) []fact {
	var facts []fact
	if rate, interval := words.RateParts(v); rate != "" {
		facts = append(facts, fact{"Rate", rate, interval})
	}

	when, note := words.TimeToLimit(v)
	if limit != nil && note != "" {
		note += "; "
	}
	if limit != nil {
		note += words.Headroom(*limit)
	}

	if when != "" {
		facts = append(facts, fact{name, when, note})
	}

	return facts
}

// timelineText describes the chart in two sentences, and in two more the GPU memory.
func timelineText(s *summary.Summary, t *timelineData) string {
	sentences := []string{words.Headline(s.Verdict) + "."}
	if rss := t.Series[0]; rss.Unit == "bytes" && !isGPUCurve(rss.Key) {
		if curve := curveText(rss, t.TimeS); curve != "" {
			sentences = append([]string{curve}, sentences...)
		}
	}

	if gpu := gpuText(s, t); gpu != "" {
		sentences = append(sentences, gpu)
	}

	return strings.Join(sentences, " ")
}
