package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/allocscope/allocscope/export/compare"
	"github.com/allocscope/allocscope/export/units"
)

// printDiff prints what changed, the answer first, and no more than limit owners and stacks.
func printDiff(out io.Writer, r *compare.Result, limit int) error {
	fmt.Fprintf(out, "\nbefore  %s\nafter   %s\n\n%s: %s\n", r.Before.Text(), r.After.Text(), r.Name, r.Sentence)
	for _, note := range r.Notes {
		fmt.Fprintf(out, "note: %s\n", note)
	}
	var rows []diffRow
	for _, o := range r.Components {
		rows = append(rows, diffRow{o.Difference, o.Component})
	}
	if err := printDiffRows(out, r, "owner", append(rows, diffRow{r.Total, "all"}), min(limit, len(rows))); err != nil {
		return err
	}
	rows = nil
	for i := range r.Stacks {
		rows = append(rows, diffRow{r.Stacks[i].Difference, r.Stacks[i].Component + ": " + r.Stacks[i].Where()})
	}
	return printDiffRows(out, r, "stack", rows, min(limit, len(rows)))
}

type diffRow struct {
	compare.Difference
	what string
}

// printDiffRows prints so many rows, and what comes after the sorted ones: the sum.
func printDiffRows(out io.Writer, r *compare.Result, by string, rows []diffRow, shown int) error {
	fmt.Fprintf(out, "\nBy %s (%s, %s):\n\n", by, r.SampleType, r.Unit)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "before\tafter\tchange\t95 %%\tstate\t  %s\n", by)
	for _, row := range rows[:shown] {
		row.print(w)
	}
	left := len(rows) - shown
	if n := len(rows); by == "owner" {
		rows[n-1].print(w)
		left--
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if left > 0 {
		fmt.Fprintf(out, "%d more: --limit, --json\n", left)
	}
	return nil
}

func (d diffRow) print(w io.Writer) {
	fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t  %s\n", units.Bytes(float64(d.Before.Bytes)), units.Bytes(float64(d.After.Bytes)), units.Signed(float64(d.Change.Bytes)),
		d.Change.Interval(), d.State, d.what)
}
