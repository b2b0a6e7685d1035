package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

const mib = 1 << 20

// A table has a column for each tool, and some lines for each program.
type table struct {
	rows []Row
	runs []Run // each has a letter
}

func (t *table) row(program, tool string) (row Row, ok bool) {
	at := slices.IndexFunc(t.rows, func(r Row) bool { return r.Program == program && r.Tool == tool })
	if at < 0 {
		return row, false
	}
	return t.rows[at], true
}

// has reports whether a row is of a tool.
func (t *table) has(tool tool) bool {
	return slices.ContainsFunc(t.rows, func(r Row) bool { return r.Tool == tool.name })
}

// lines are the numbers of a program, each with its title.
var lines = []struct {
	title string
	text  func(p program, r Row) string
}{
	{"CPU, clock", ratios},
	{"cost; leak", cost},
}

// ratios are the CPU time of a step and its time by the clock.
func ratios(p program, r Row) string {
	switch {
	case p.ends && r.StepS != nil:
		return r.StepS.text("%.2f") + " s"
	case r.CPU == nil && r.Why != "":
		return "none: " + cellText(r.Why)
	case r.Clock == nil:
		return r.CPU.ratio()
	}
	return r.CPU.ratio() + ", " + (&Spread{Median: r.Clock.Median}).ratio()
}

// cost is the slow-down, the CPU time and memory of the tool, and its finding.
func cost(p program, r Row) string {
	var parts []string
	add := func(text string, isBold bool) {
		if isBold {
			text = "**" + text + "**"
		}
		parts = append(parts, text)
	}

	m := r.misses(p)
	if r.Slowed != nil {
		add(fmt.Sprintf("%.1f%%", r.Slowed.Median*100), m.slowed)
	}
	if r.Cores > 0 {
		add(fmt.Sprintf("%.3f", r.Cores), m.cores)
	}
	if bytes := r.ToolBytes + r.MapBytes + r.AddedBytes; bytes > 0 {
		add(fmt.Sprintf("%.0f MiB", float64(bytes)/mib), false)
	}
	if text := finding(r); text != "" {
		add(text, m.leak)
	}
	return strings.Join(parts, "; ")
}

// finding is the place of the leak in the reports, and its rate.
func finding(r Row) string {
	text := rankText(r.Ranks)
	if r.CPU != nil && r.Why != "" {
		text = cellText(r.Why)
	}
	if r.Rate != nil {
		text += ", " + r.Rate.ratio()
	}
	return text
}

// missed are the bounds of its program that a row is beyond.
type missed struct{ slowed, cores, leak bool }

// misses compares a row of allocscope with the bounds of its program.
func (r Row) misses(p program) (m missed) {
	at := slices.IndexFunc(tools, func(t tool) bool { return t.name == r.Tool })
	if at < 0 || !tools[at].own || tools[at].old || tools[at].extra {
		return m
	}

	m.slowed = p.slowed > 0 && r.Slowed != nil && r.Slowed.Median > p.slowed+r.Noise
	m.cores = p.cores > 0 && r.Cores > p.cores
	if p.rateError > 0 && len(r.Ranks) > 0 {
		isOther := func(rank int) bool { return rank != 1 }
		m.leak = slices.ContainsFunc(r.Ranks, isOther) || r.Rate == nil ||
			math.Abs(r.Rate.Median-1) > p.rateError
	}
	return m
}

// markdown is the table with the included tools of which there are rows.
func (t *table) markdown(include func(tool) bool) string {
	var columns []tool
	for _, tool := range tools {
		if include(tool) && t.has(tool) {
			columns = append(columns, tool)
		}
	}

	var text strings.Builder
	text.WriteString("| | | native |")
	for _, tool := range columns {
		text.WriteString(" " + tool.label + " |")
	}
	text.WriteString("\n|---|---|---|" + strings.Repeat("---|", len(columns)) + "\n")
	for _, p := range programs {
		text.WriteString(t.of(p, columns))
	}
	return text.String()
}

// of returns the lines of a program; empty: nothing was measured with these tools.
func (t *table) of(p program, columns []tool) string {
	var text strings.Builder
	alone, isAlone := t.row(p.name, native)
	head := "`" + p.name + "`"
	if isAlone && alone.StepS != nil {
		head += ", " + duration(alone.StepS.Median)
	}

	lettered := make([]bool, len(columns))
	for _, line := range lines {
		var cells []string
		for i, tool := range columns {
			r, ok := t.row(p.name, tool.name)
			if !ok {
				cells = append(cells, "")
				continue
			}

			cell := line.text(p, r)
			if cell != "" && !lettered[i] {
				cell += " " + t.letter(r.Run)
				lettered[i] = true
			}
			cells = append(cells, cell)
		}
		if strings.Join(cells, "") == "" {
			continue
		}

		noise := ""
		if isAlone {
			noise = line.text(p, alone)
		}
		fmt.Fprintf(&text, "| %s | %s | %s | %s |\n", head, line.title, noise,
			strings.Join(cells, " | "))
		head = ""
	}
	return text.String()
}

// letter returns the letter of a run, which the legend explains.
func (t *table) letter(r Run) string {
	at := slices.Index(t.runs, r)
	if at < 0 {
		at = len(t.runs)
		t.runs = append(t.runs, r)
	}
	return string(rune('a' + at))
}

// legend returns a line for each run of the table, which must have been written, and for each tool
// that is missing.
func (t *table) legend() string {
	var text strings.Builder
	for i, r := range t.runs {
		fmt.Fprintf(&text, "- %c: %s\n", 'a'+i, r)
	}
	for _, tool := range tools {
		if tool.missing != "" {
			fmt.Fprintf(&text, "- %s is not measured: %s\n", tool.label, tool.missing)
		}
	}
	return text.String()
}

// String is how and where something was measured.
func (r Run) String() string {
	var parts []string
	for _, part := range []string{r.Commit, r.Date, r.Machine, r.Note} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, "; ")
}

// rankText is the position of the leak in each report.
func rankText(ranks []int) string {
	if len(ranks) == 0 {
		return ""
	}

	first, best := 0, 0
	for _, rank := range ranks {
		if rank == 1 {
			first++
		}
		if rank > 0 && (best == 0 || rank < best) {
			best = rank
		}
	}
	switch {
	case first == len(ranks):
		return "first"
	case first > 0:
		return fmt.Sprintf("first in %d of %d", first, len(ranks))
	case best > 0:
		return fmt.Sprintf("no. %d", best)
	}
	return "not named"
}

// ratio is a number with its quartiles; empty: it is not known.
func (s *Spread) ratio() string {
	format := "%.2f"
	switch {
	case s == nil:
		return ""
	case s.Median >= 100:
		format = "%.0f"
	case s.Median >= 10:
		format = "%.1f"
	case s.Median < 2:
		format = "%.3f"
	}
	return s.text(format)
}

func (s *Spread) text(format string) string {
	if s.Low == 0 && s.High == 0 {
		return fmt.Sprintf(format, s.Median)
	}
	return fmt.Sprintf(format+" ("+format+"-"+format+")", s.Median, s.Low, s.High)
}

// cellText shortens a text for a cell of a Markdown table.
func cellText(text string) string {
	const maxLetters = 60
	text = strings.NewReplacer("|", "\\|", "\n", " ").Replace(text)
	if runes := []rune(text); len(runes) > maxLetters {
		return string(runes[:maxLetters]) + "…"
	}
	return text
}
