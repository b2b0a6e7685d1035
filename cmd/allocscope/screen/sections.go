package screen

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/allocscope/allocscope/cmd/allocscope/console"
	"github.com/allocscope/allocscope/export/chart"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/export/words"
)

const (
	minProgressWidth, maxProgressWidth = 10, 20
	minNameWidth                       = 10 // of the name of a command, where it is cut
)

// headerLine names the process, the overhead where there is room, and the time.
func headerLine(s *State, width int) string {
	clock, about := clockText(s, width), aboutText(s)
	if cost := words.OverheadShort(s.Overhead); cost != "" && hasRoom(s, clock, cost, width) {
		about += "  " + cost
	}

	name := bold(safe(s.Command))
	if room := width - ansi.StringWidth(clock) - len(about) - 1; room >= minNameWidth {
		name = bold(fit(safe(s.Command), room))
	}

	name += dim(about)
	room := width - ansi.StringWidth(clock) - 1
	if room < minNameWidth {
		return fit(clock, width)
	}

	return left(name, room) + " " + clock
}

// hasRoom reports whether the header has room for one text more, without cutting any.
func hasRoom(s *State, clock, more string, width int) bool {
	needed := ansi.StringWidth(safe(s.Command)) + len(aboutText(s)) + ansi.StringWidth(clock)
	return needed+len("  ")+len(more)+1 <= width
}

// clockText is the time since tracing started, and a bar of how much of the trace that is.
func clockText(s *State, width int) string {
	clock := units.Duration(s.Elapsed.Truncate(time.Second))
	if s.Duration > 0 {
		clock += words.OfTrace(s.Duration, s.UntilSettled)
		if progressWidth := min(width/8, maxProgressWidth); progressWidth >= minProgressWidth {
			share := float64(s.Elapsed) / float64(s.Duration)
			progress := left(bar(share, progressWidth), progressWidth)
			clock += " " + colored(blue, progress) + dim("▏")
		}
	}
	return clock
}

// aboutText names the processes that are traced.
func aboutText(s *State) string {
	about := fmt.Sprintf("  PID %d", s.PID)
	if s.Processes > 1 {
		about += fmt.Sprintf(", %d processes (%d traced)", s.Processes, s.Traced)
	}
	return about
}

// rssSection is the RSS so far: a title with the numbers, the chart, and the time axis with its
// phases.
func rssSection(s *State, height int) section {
	most := max(5, min(5+(height-24)/2, 16))
	return section{2, most, 3, 3, func(width, height int) []string {
		if height > 3 {
			return append(rssChart(s, width, height-1), axisLine(s, width))
		}
		return rssChart(s, width, height)
	}}
}

const scaleWidth = 10 // of the sizes at the right of the chart

func rssChart(s *State, width, height int) []string {
	now := "unknown"
	if s.RSS >= 0 {
		now = units.Bytes(float64(s.RSS))
	}
	return chartOf("RSS", now, s.Curve, s.Elapsed, width, height)
}

// chartOf is a curve in so many lines: a title with the latest size, and a chart.
func chartOf(title, now string, c chart.Curve, elapsed time.Duration, width, height int) []string {
	note := ""
	if len(c.Points) > 0 {
		note = fmt.Sprintf("min %s, max %s", units.Bytes(float64(c.Min)),
			units.Bytes(float64(c.Max)))
	}

	lines := []string{rule(title+" "+now, note, width)}
	if len(c.Points) == 0 {
		return lines
	}

	chartScale, rows := chart.ScaleOf(c), height-1
	for i, line := range chart.Draw(c.Columns(width-scaleWidth, elapsed), chartScale, rows) {
		label := ""
		switch i {
		case 0:
			label = units.Bytes(float64(chartScale.High))
		case rows - 1:
			label = units.Bytes(float64(chartScale.Low))
		}
		lines = append(lines, colored(blue, line)+dim(right(label, scaleWidth)))
	}

	return lines
}

// axisLine is the time axis under the chart: the judged phases, each from its start, and the marks.
func axisLine(s *State, width int) string {
	cells := []rune(strings.Repeat("─", max(0, width-scaleWidth)))
	at := func(seconds float64) int {
		return int(seconds / s.Elapsed.Seconds() * float64(len(cells)))
	}
	if s.Verdict != nil {
		for _, p := range s.Verdict.Phases {
			if p.From == nil || p.To == nil {
				continue
			}
			from, room := max(0, at(*p.From)), min(at(*p.To), len(cells))
			if name := []rune("┴ " + string(p.Kind) + " "); from+len(name) <= room {
				copy(cells[from:], name)
			}
		}
	}

	for _, m := range s.Marks {
		i := max(0, at(m.AtS))
		for i < len(cells) && cells[i] != '─' { // names are not overwritten
			i++
		}
		if i < len(cells) {
			cells[i] = '▲'
		}
	}

	return dim(string(cells) + right(units.Duration(s.Elapsed.Truncate(time.Second)), scaleWidth))
}

// verdictSection is the verdict so far, and its consequences.
func verdictSection(s *State, width, height int) section {
	most := 3
	if height > 24 {
		most = maxVerdictLines
	}

	headline, rest := verdictLines(s, width)
	lines := append(wrapText(headline, width), joinParts(rest, width)...)
	if gpu := gpuVerdictLines(s.GPU, width); len(gpu) > 0 {
		return section{2, min(len(lines)+len(gpu), 3*most/2), 2, 1, func(_, height int) []string {
			return shareLines(lines, gpu, height)
		}}
	}
	return section{1, min(len(lines), most), 2, 1, func(int, int) []string { return lines }}
}

const maxVerdictLines = 8

func verdictLines(s *State, width int) (headline string, rest []string) {
	if s.Verdict == nil {
		headline = dim(words.NoVerdictYet(s.JudgedAt))
	} else {
		lines := safeLines(words.VerdictLines(*s.Verdict, words.AtLimit))
		headline = "So far: " + boldIn(console.ColorOf(s.Verdict.Class), lines[0])
		rest = append(lines[1:], words.JudgedAt(s.JudgedAt))
	}

	about := []string{s.Diagnosis, s.Suspect}
	if s.Suspect != "" {
		about = append(about, words.KeptBy(s.Keeper, width)...)
	}
	about = slices.DeleteFunc(append(about, objectsLine(s, width)),
		func(line string) bool { return line == "" })
	rest = slices.Insert(rest, min(1, len(rest)), safeLines(about)...)
	if s.Limit != "" {
		rest = append(rest, words.Headroom(summary.Limit{Of: s.Limit, HeadroomBytes: s.Headroom}))
	}

	return headline, rest
}

// objectsLine names the types whose objects become more.
func objectsLine(s *State, width int) string {
	const about = "objects: "
	if types := words.GrownTypes(s.Objects, width-len(about)); types != "" {
		return about + types
	}
	return ""
}

// Widths of the columns of the breakdown.
const changeWidth, errorWidth, endWidth, maxKindWidth, minBarWidth = 10, 12, 10, 34, 6

// breakdownSection is a bar for each kind of memory: its part of the growth of RSS.
func breakdownSection(s *State) section {
	return section{5, 11, 6, 4, func(width, height int) []string {
		title := "What the growth of RSS is made of"
		if sum := s.Breakdown.Sum(); len(s.Breakdown.Kinds) > 0 {
			title += ": " + units.Signed(sum.Delta) + " " + words.Since(s.Since, s.Warm)
		}

		lines := []string{rule(title, "", width)}
		if len(s.Breakdown.Kinds) == 0 {
			return append(lines, dim("  not scanned yet"))
		}

		rows := s.Breakdown.Lines(max(0, height-3), s.Resident)
		largest := 0.0
		for _, row := range rows {
			largest = max(largest, math.Abs(row.Delta))
		}

		for _, row := range rows {
			lines = append(lines, breakdownLine(row, largest, width))
		}

		return lines
	}}
}

func breakdownLine(row words.BreakdownLine, largest float64, width int) string {
	margin := ""
	if row.Error > 0 {
		margin = " ± " + units.Bytes(row.Error)
	}

	line := right(units.Signed(row.Delta), changeWidth)
	kind := min(maxKindWidth, width/2)
	room := width - changeWidth - kind - 3
	if room >= endWidth+errorWidth+minBarWidth {
		line += dim(left(margin, errorWidth))
		room -= errorWidth
	}

	line += "  " + left(safe(row.Label), kind) + " "
	if room < endWidth {
		return line
	}

	color := red
	if row.Delta < 0 {
		color = green
	}

	bars := max(0, room-endWidth)
	line += colored(color, left(bar(share(row.Delta, largest), bars), bars))
	return line + dim(right(units.Bytes(row.End), endWidth))
}

func share(part, whole float64) float64 {
	if whole == 0 {
		return 0
	}
	return math.Abs(part) / whole
}

// facts about the trace itself. width is the width of the header, which has the overhead where
// there is room.
func facts(s *State, width int) []string {
	var parts []string
	if s.Steps >= 0 {
		parts = append(parts, units.PerSecond(s.Steps, "steps"))
	}

	drops := fmt.Sprintf("drops %s", units.Count(float64(s.Drops)))
	if s.Drops > 0 {
		drops = colored(amber, drops)
	}

	parts = append(parts, units.PerSecond(s.Events, "events"), drops)
	if cost := words.OverheadShort(s.Overhead); cost != "" &&
		!hasRoom(s, clockText(s, width), cost, width) {
		parts = append(parts, cost)
	}

	return append(parts, fmt.Sprintf("allocscope %s CPU, %s", units.Percent(s.CPU),
		units.Bytes(float64(s.OwnRSS))))
}

// factSection has the facts.
func factSection(s *State, width int) section {
	lines := joinParts(facts(s, width), width)
	return section{1, len(lines), 5, 5, func(int, int) []string { return lines }}
}

// markSection has the latest marks, the newest first.
func markSection(s *State) section {
	return section{1, 1, 7, 6, func(width, _ int) []string {
		if s.MarkCount == 0 {
			return []string{dim("no marks")}
		}
		var parts []string
		for _, m := range slices.Backward(s.Marks) {
			parts = append(parts, markText(m))
		}
		return []string{joinParts(append([]string{markCount(s)}, parts...), 1<<20)[0]}
	}}
}

func markCount(s *State) string { return units.Plural(s.MarkCount, "mark", "marks") }

func markText(m summary.Mark) string {
	return units.Duration(time.Duration(m.AtS*float64(time.Second))) + " " + safe(m.Text)
}

// logSection has the last lines of the log.
func logSection(ui UIState) section {
	return section{1, 4, 8, 7, func(_, height int) []string { return logLines(ui, height) }}
}

func logLines(ui UIState, most int) []string {
	var lines []string
	for _, line := range ui.Log[max(0, len(ui.Log)-most):] {
		lines = append(lines, colored(amber, "▏")+safe(line))
	}
	return lines
}

// sideSection has the facts, the marks and the log, on a wide terminal.
func sideSection(s *State, ui UIState) section {
	return section{3, 11, 6, 4, func(width, height int) []string {
		lines := []string{rule("This trace", "", width)}
		lines = append(lines, joinParts(facts(s, ui.Width), width)...)
		if s.Drops > 0 {
			lines = append(lines, colored(amber, safe(s.DropReason)))
		}

		lines = append(lines, markSection(s).draw(width, 1)...)
		if room := height - len(lines); room > 0 {
			lines = append(lines, logLines(ui, room)...)
		}
		return lines
	}}
}

// footerLine names the keys, or shows the mark that is typed.
func footerLine(s *State, ui UIState, width int) string {
	switch {
	case ui.Leaving:
		return bold("ending the trace") + dim("  Ctrl-C again: no search for keepers; a third: no files")
	case ui.Writing:
		return bold("mark: ") + left(safe(ui.Draft)+"█", width-40) +
			dim("  Enter adds it  Esc cancels")
	case ui.Help:
		return key("?", "back") + key("q", "quit and write")
	}

	keys := key("q", "quit and write") + key("m", "mark")
	if s.Extension > 0 {
		keys += key("e", units.Duration(s.Extension)+" more")
	}
	keys += key("s", "sort: "+ui.Order.String())
	if s.GPU != nil {
		keys += key("g", map[bool]string{false: "GPU", true: "host"}[ui.ShowGPU])
	}
	return keys + key("↑↓", "scroll") + key("?", "help")
}

func key(name, does string) string { return bold(name) + " " + dim(does) + "   " }
