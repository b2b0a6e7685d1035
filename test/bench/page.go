package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	resultsFile = "results.json" // in this folder
	pageFile    = "docs/internals/performance.md"
)

// writePage writes the page from the folder of this package.
func writePage() error {
	results, err := readResults(resultsFile)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join("..", "..", pageFile), []byte(pageOf(results)), 0o644)
}

const introduction = `# What tracing costs

"make bench" and the campaigns below measure it. "test/bench/results.json" has their numbers, of
which "go generate ./test/bench" makes this page. Ratios hold elsewhere and move by a tenth from run
to run, absolute times do not.

## Programs

Each program of "test/bench/plan.go" (with its step's native CPU time) runs natively and with each
tool by turns: medians, and in brackets quartiles, of the parts of all stretches. Native is a
stretch compared with its neighbours. **CPU, clock**: the time of a step, times native; of "true"
the seconds from its start to its end. **cost**: CPU time added, as a share of the elapsed time;
cores for the tool itself; RAM of the tool, its BPF maps, and the program because of it. **leak**:
the place of the injected line in the report, and its rate, times true. Bold numbers miss a bound:
3% beyond the noise; 0.02 of a core, 0.03 beside trainers and "loop", which never wait; in storms
the leak is first, with a rate within a fifth.

`

// pageOf is the page of the results.
func pageOf(results Results) string {
	var text strings.Builder
	text.WriteString(strings.ReplaceAll(introduction, `"`, "`"))

	t := table{rows: results.Rows}
	text.WriteString(t.markdown(func(tool tool) bool { return !tool.extra }) + "\n")
	isExtra := func(tool tool) bool { return tool.extra }
	if slices.ContainsFunc(tools, func(tool tool) bool { return tool.extra && t.has(tool) }) {
		text.WriteString("Other flags, and other tools:\n\n" + t.markdown(isExtra) + "\n")
	}
	text.WriteString(t.legend())

	for _, c := range results.Campaigns {
		text.WriteString("\n" + c.section())
	}
	return text.String()
}

// section is a heading, and the text and the table of a campaign.
func (c Campaign) section() string {
	about := c.String() + "."
	if c.By != "" {
		about = "`" + c.By + "`; " + about
	}
	parts := []string{"## " + c.Title, wrapped(about + " " + c.Text)}

	if len(c.Columns) > 0 {
		var table strings.Builder
		fmt.Fprintf(&table, "| %s |\n|%s", strings.Join(c.Columns, " | "),
			strings.Repeat("---|", len(c.Columns)))
		for _, row := range c.Rows {
			fmt.Fprintf(&table, "\n| %s |", strings.Join(row, " | "))
		}
		parts = append(parts, table.String())
	}
	for _, text := range c.After {
		parts = append(parts, wrapped(text))
	}
	return strings.Join(parts, "\n\n") + "\n"
}

// wrapped breaks a paragraph into lines.
func wrapped(text string) string {
	const maxColumns = 100
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		if longer := line + " " + word; utf8.RuneCountInString(longer) <= maxColumns {
			line = longer
			continue
		}
		lines = append(lines, line[1:])
		line = " " + word
	}
	return strings.Join(append(lines, strings.TrimSpace(line)), "\n")
}

// duration is a time in the unit that makes it readable.
func duration(seconds float64) string {
	switch {
	case seconds < 1e-3:
		return fmt.Sprintf("%.3g µs", seconds*1e6)
	case seconds < 1:
		return fmt.Sprintf("%.3g ms", seconds*1e3)
	}
	return fmt.Sprintf("%.3g s", seconds)
}
