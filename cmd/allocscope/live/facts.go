package live

import (
	"fmt"
	"slices"
	"time"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/export/words"
)

// facts about the trace itself, in short. width is that of the header, which has one of them where there is room.
func facts(s *State, width int) []string {
	var parts []string
	if s.Steps >= 0 {
		parts = append(parts, units.PerSecond(s.Steps, "steps"))
	}
	drops := fmt.Sprintf("drops %s", units.Count(float64(s.Drops)))
	if s.Drops > 0 {
		drops = in(amber, drops)
	}
	parts = append(parts, units.PerSecond(s.Events, "events"), drops)
	if cost := words.OverheadShort(s.Overhead); cost != "" && !hasRoom(s, clockText(s, width), cost, width) {
		parts = append(parts, cost)
	}
	return append(parts, fmt.Sprintf("allocscope %s CPU, %s", units.Percent(s.CPU), units.Bytes(float64(s.OwnRSS))))
}

// factSection is the facts joined.
func factSection(s *State, width int) section {
	lines := wrapped(facts(s, width), width)
	return section{1, len(lines), 5, 5, func(int, int) []string { return lines }}
}

// markSection is the latest marks, the newest first.
func markSection(s *State) section {
	return section{1, 1, 7, 6, func(width, _ int) []string {
		if s.MarkCount == 0 {
			return []string{dim("no marks")}
		}
		var parts []string
		for _, m := range slices.Backward(s.Marks) {
			parts = append(parts, markText(m))
		}
		return []string{wrapped(append([]string{markCount(s)}, parts...), 1<<20)[0]}
	}}
}

func markCount(s *State) string { return units.Plural(s.MarkCount, "mark", "marks") }

func markText(m summary.Mark) string {
	return units.Duration(time.Duration(m.AtS*float64(time.Second))) + " " + safe(m.Text)
}

// logSection is the last lines that were logged.
func logSection(look Look) section {
	return section{1, 4, 8, 7, func(_, height int) []string { return logLines(look, height) }}
}

func logLines(look Look, most int) []string {
	var lines []string
	for _, line := range look.Log[max(0, len(look.Log)-most):] {
		lines = append(lines, in(amber, "▏")+safe(line))
	}
	return lines
}

// asideSection has on a wide terminal the facts, the marks and the log below each other.
func asideSection(s *State, look Look) section {
	return section{3, 11, 6, 4, func(width, height int) []string {
		lines := append([]string{rule("This trace", "", width)}, wrapped(facts(s, look.Width), width)...)
		if s.Drops > 0 {
			lines = append(lines, in(amber, safe(s.DropReason)))
		}
		lines = append(lines, markSection(s).draw(width, 1)...)
		if room := height - len(lines); room > 0 {
			lines = append(lines, logLines(look, room)...)
		}
		return lines
	}}
}
