package ranks

import (
	"fmt"
	"io"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/allocscope/allocscope/export/compare"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/growth"
)

// WriteText writes the result for a terminal: the answer, and at most so many ranks, components and
// stacks. The error comes from w.
func (r *Result) WriteText(w io.Writer, limit int) error {
	var out strings.Builder
	r.writeAnswer(&out)
	r.writeRanks(&out, limit)
	if r.Comparison != nil {
		r.Comparison.writeText(&out, limit)
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// maxLineChars is the width of a terminal.
const maxLineChars = words.ResultWidth

func (r *Result) writeAnswer(out *strings.Builder) {
	title := r.Name
	if r.Job != "" {
		title += "   job " + r.Job
	}
	fmt.Fprintf(out, "%s\n\n", ansi.Truncate(growth.Printable(title), maxLineChars, "..."))

	lines := []string{r.Sentence}
	if r.Comparison != nil {
		lines = append(lines, r.Comparison.sentence())
	}
	for _, note := range r.Notes {
		lines = append(lines, "note: "+note)
	}
	for _, line := range lines {
		fmt.Fprintln(out, ansi.Wrap(growth.Printable(line), maxLineChars, " "))
	}
}

// writeRanks writes the table of ranks: those that grow most, and a line that sums up the others.
func (r *Result) writeRanks(out *strings.Builder, limit int) {
	if len(r.Ranks) == 0 {
		return
	}
	out.WriteString("\n")

	t := table{columns: []column{
		{title: "rank"},
		{title: "node", isText: true},
		{title: "RSS"},
		{title: "MiB/min"},
		{title: "95%"},
		{title: "verdict", isText: true},
		{title: "z"},
		{title: "chance"},
		{title: "where", isText: true},
	}}
	shown := min(limit, len(r.Ranks))
	for i := range r.Ranks[:shown] {
		t.add(r.Ranks[i].cells()...)
	}
	if shown > 0 {
		t.write(out)
	}

	if rest := r.Ranks[shown:]; len(rest) > 0 {
		var low, high *float64
		for i := range rest {
			if k := &rest[i]; k.Rate != nil {
				if high == nil {
					high = k.Rate
				}
				low = k.Rate
			}
		}
		fmt.Fprintf(out, "%s: --limit, --json\n", words.MoreRanks(len(rest), low, high))
	}
}

// cells are the texts of a row.
func (k *Rank) cells() []string {
	rate, interval := words.RankRate(k.rateVerdict())
	rss, z, chance := "?", "", ""
	if k.RSS != nil {
		rss = units.Bytes(float64(*k.RSS))
	}
	if k.Chance != nil {
		z, chance = words.Z(k.Z), strings.Replace(words.Chance(k.Chance), "below ", "<", 1)
	}
	return []string{
		k.label(), ansi.Truncate(k.Node, maxNodeChars, "..."), rss, rate, interval,
		words.ClassText(k.Verdict), z, chance, k.Where,
	}
}

// maxNodeChars bounds the name of a node in the table.
const maxNodeChars = 16

// sentence says by which call site the rank differs from the median rank.
func (c *Comparison) sentence() string {
	if c.Site == SiteAlone {
		return words.RankAlone(c.Rank, c.MedianRank, c.Where)
	}
	return words.RanksDiffer(c.Rank, c.MedianRank, c.Where, c.Site == SiteSame, c.Site != SiteUnknown)
}

// writeText writes the components and the stacks in which the two ranks differ.
func (c *Comparison) writeText(out *strings.Builder, limit int) {
	if hasComponents(c.Components) {
		rows := make([]differenceRow, 0, len(c.Components))
		for _, row := range c.Components {
			rows = append(rows, differenceRow{row.Difference, row.Component})
		}
		c.writeDifferences(out, "component", rows, limit, true)
	}

	rows := make([]differenceRow, 0, len(c.Stacks))
	for i := range c.Stacks {
		rows = append(rows, differenceRow{c.Stacks[i].Difference, c.Stacks[i].Where()})
	}
	c.writeDifferences(out, "stack", rows, limit, false)
}

// hasComponents reports whether the profiles name components: profiles of a server do not.
func hasComponents(rows []compare.ComponentRow) bool {
	return len(rows) != 1 || rows[0].Component != "unknown"
}

type differenceRow struct {
	compare.Difference
	what string
}

func (c *Comparison) writeDifferences(
	out *strings.Builder, by string, rows []differenceRow, limit int, withTotal bool,
) {
	shown := min(limit, len(rows))
	if shown == 0 && !withTotal {
		return
	}

	fmt.Fprintf(out, "\nBy %s (%s, %s):\n\n", by, c.SampleType, c.Unit)
	t := table{columns: []column{
		{title: c.MedianRank},
		{title: c.Rank},
		{title: "difference"},
		{title: "95%"},
		{title: "state", isText: true},
		{title: by, isText: true},
	}}
	for _, row := range rows[:shown] {
		t.add(row.cells()...)
	}
	if withTotal {
		t.add(differenceRow{c.Total, "all"}.cells()...)
	}
	t.write(out)
	if more := len(rows) - shown; more > 0 {
		fmt.Fprintf(out, "%d more: --limit, --json\n", more)
	}
}

func (d differenceRow) cells() []string {
	return []string{
		units.Bytes(float64(d.Before.Bytes)), units.Bytes(float64(d.After.Bytes)),
		units.Signed(float64(d.Change.Bytes)), d.Interval(), string(d.State), d.what,
	}
}

// A table has columns that are as wide as their texts. Numbers are aligned at the right, and columns
// without any text are left out.
type table struct {
	columns []column
	rows    [][]string
}

type column struct {
	title  string
	isText bool
}

func (t *table) add(cells ...string) {
	for i := range cells {
		cells[i] = growth.Printable(cells[i])
	}
	t.rows = append(t.rows, cells)
}

// write writes the table. Lines are cut where they are too wide.
func (t *table) write(out *strings.Builder) {
	widths := make([]int, len(t.columns))
	for _, row := range t.rows {
		for i, cell := range row {
			widths[i] = max(widths[i], ansi.StringWidth(cell))
		}
	}

	titles := make([]string, len(t.columns))
	for i, c := range t.columns {
		titles[i] = c.title
		if widths[i] > 0 {
			widths[i] = max(widths[i], ansi.StringWidth(c.title))
		}
	}

	for _, row := range append([][]string{titles}, t.rows...) {
		var line strings.Builder
		for i, cell := range row {
			if widths[i] == 0 {
				continue
			}
			pad := strings.Repeat(" ", max(0, widths[i]-ansi.StringWidth(cell)))
			if t.columns[i].isText {
				line.WriteString(cell + pad + "  ")
			} else {
				line.WriteString(pad + cell + "  ")
			}
		}
		text := strings.TrimRight(line.String(), " ")
		fmt.Fprintln(out, ansi.Truncate(text, maxLineChars, "..."))
	}
}
