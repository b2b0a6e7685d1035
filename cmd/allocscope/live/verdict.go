package live

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/export/words"
)

const (
	leastProgress, mostProgress = 10, 20
	least                       = 10 // of the name of a command, where it is cut
)

// headerLine names the process, says what tracing costs, where there is room, and how long it has been traced.
func headerLine(s *State, width int) string {
	clock, about := clockText(s, width), aboutText(s)
	if cost := words.OverheadShort(s.Overhead); cost != "" && hasRoom(s, clock, cost, width) {
		about += "  " + cost
	}
	name := bold(safe(s.Command))
	if room := width - ansi.StringWidth(clock) - len(about) - 1; room >= least {
		name = bold(fit(safe(s.Command), room))
	}
	name += dim(about)
	room := width - ansi.StringWidth(clock) - 1
	if room < least {
		return fit(clock, width)
	}
	return left(name, room) + " " + clock
}

// hasRoom tells whether the header can say one thing more without any being cut.
func hasRoom(s *State, clock, more string, width int) bool {
	return ansi.StringWidth(safe(s.Command))+len(aboutText(s))+ansi.StringWidth(clock)+len("  ")+len(more)+1 <= width
}

// clockText says how long the process has been traced, and how far that is.
func clockText(s *State, width int) string {
	clock := units.Duration(s.Elapsed.Truncate(time.Second))
	if s.Duration > 0 {
		clock += " of " + units.Duration(s.Duration)
		if progressWidth := min(width/8, mostProgress); progressWidth >= leastProgress {
			share := float64(s.Elapsed) / float64(s.Duration)
			clock += " " + in(blue, left(bar(share, progressWidth), progressWidth)) + dim("▏")
		}
	}
	return clock
}

// aboutText says which processes are traced.
func aboutText(s *State) string {
	about := fmt.Sprintf("  PID %d", s.PID)
	if s.Processes > 1 {
		about += fmt.Sprintf(", %d processes (%d traced)", s.Processes, s.Traced)
	}
	return about
}

// rssSection is the size so far: a title with the numbers, the chart, and the axis of time with its phases.
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
	now := "not known"
	if s.RSS >= 0 {
		now = units.Bytes(float64(s.RSS))
	}
	return chartOf("RSS", now, s.Trail, s.Elapsed, width, height)
}

// chartOf is what a size is, and its course until now: a title, and lines down to a height.
func chartOf(title, now string, trail Trail, elapsed time.Duration, width, height int) []string {
	note := ""
	if len(trail.Points) > 0 {
		note = fmt.Sprintf("min %s, max %s", units.Bytes(float64(trail.Min)), units.Bytes(float64(trail.Max)))
	}
	lines := []string{rule(title+" "+now, note, width)}
	if len(trail.Points) == 0 {
		return lines
	}
	chartScale, rows := scaleOf(trail), height-1
	for i, line := range chart(trail.columns(width-scaleWidth, elapsed), chartScale, rows) {
		label := ""
		switch i {
		case 0:
			label = units.Bytes(float64(chartScale.high))
		case rows - 1:
			label = units.Bytes(float64(chartScale.low))
		}
		lines = append(lines, in(blue, line)+dim(right(label, scaleWidth)))
	}
	return lines
}

// axisLine is the time under the chart: the phases that were judged, each from where it begins, and the marks.
func axisLine(s *State, width int) string {
	cells := []rune(strings.Repeat("─", max(0, width-scaleWidth)))
	at := func(seconds float64) int { return int(seconds / s.Elapsed.Seconds() * float64(len(cells))) }
	if s.Verdict != nil {
		for _, p := range s.Verdict.Phases {
			if p.FromS == nil || p.ToS == nil {
				continue
			}
			from, room := max(0, at(*p.FromS)), min(at(*p.ToS), len(cells))
			if name := []rune("┴ " + string(p.Kind) + " "); from+len(name) <= room {
				copy(cells[from:], name)
			}
		}
	}
	for _, m := range s.Marks {
		i := max(0, at(m.AtS))
		for i < len(cells) && cells[i] != '─' { // a name is not written over
			i++
		}
		if i < len(cells) {
			cells[i] = '▲'
		}
	}
	return dim(string(cells) + right(units.Duration(s.Elapsed.Truncate(time.Second)), scaleWidth))
}

// verdictSection is what is judged so far, and what follows from it.
func verdictSection(s *State, width, height int) section {
	most := 3
	if height > 24 {
		most = mostOfVerdict
	}
	headline, rest := verdictLines(s)
	lines := append(broken(headline, width), wrapped(rest, width)...)
	if device := deviceVerdict(s.Device, width); len(device) > 0 {
		return section{2, min(len(lines)+len(device), 3*most/2), 2, 1, func(_, height int) []string { return shared(lines, device, height) }}
	}
	return section{1, min(len(lines), most), 2, 1, func(int, int) []string { return lines }}
}

const mostOfVerdict = 6

func verdictLines(s *State) (headline string, rest []string) {
	if s.Verdict == nil {
		headline = dim("So far nothing is judged: the first look is at " + units.Duration(s.JudgedAt))
	} else {
		lines := words.VerdictLines(*s.Verdict, words.AtLimit)
		headline = "So far: " + boldIn(colorOf(s.Verdict.Class), safe(lines[0]))
		rest = append(lines[1:], "judged at "+units.Duration(s.JudgedAt))
	}
	if s.Blame != "" {
		rest = slices.Insert(rest, min(1, len(rest)), "most by "+safe(s.Blame))
	}
	if s.Limit != "" {
		rest = append(rest, fmt.Sprintf("%s until the limit (%s)", units.Bytes(float64(s.Room)), s.Limit))
	}
	return headline, rest
}
