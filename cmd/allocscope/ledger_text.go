package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/export/words"
)

// Lines for kinds of memory of the process and of its tree; the others are one more.
const kindLines, treeKindLines = 6, 3

// printLedger prints where the growth of RSS is, of the process and of its tree where there are others, and what that advises.
func printLedger(out io.Writer, s *summary.Summary) error {
	own, p := words.BreakdownOf(s.Breakdown, s.Process.PID), words.ResidentOf(s)
	if len(own.Kinds) > 0 {
		fmt.Fprintf(out, "\nWhere the growth of RSS is (PID %d: %s):\n\n", s.Process.PID, units.Signed(own.Sum().Delta))
		if err := printBook(out, own, kindLines, "RSS, as the kernel counts", p); err != nil {
			return err
		}
		if !p.HeapTraced {
			fmt.Fprintf(out, "Who holds heap memory cannot be told: source heap was not attached to PID %d. A trace with it names the code.\n", s.Process.PID)
		}
	}
	if others := words.OtherProcesses(s); others > 0 {
		tree := words.BreakdownOf(s.Breakdown, 0)
		fmt.Fprintf(out, "\nIts tree, with %s, shared pages once (%s):\n\n", units.Plural(others, "other process", "other processes"), units.Signed(tree.Sum().Delta))
		if err := printBook(out, tree, treeKindLines, "all", summary.Resident{HeapTraced: p.HeapTraced}); err != nil {
			return err
		}
	}
	printAdvice(out, s)
	return nil
}

func printAdvice(out io.Writer, s *summary.Summary) {
	if len(s.Advice) > 0 {
		fmt.Fprintln(out)
	}
	for _, a := range s.Advice {
		if a.Process != 0 && a.Process != s.Process.PID {
			a.Text = fmt.Sprintf("PID %d: %s", a.Process, a.Text)
		}
		fmt.Fprintf(out, "advice: %s\n", a.Text)
	}
}

// printBook prints a line for each of so many kinds, one for the others, one for what is unexplained, and their sum.
func printBook(out io.Writer, b words.Breakdown, kinds int, all string, p summary.Resident) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "growth\t± 95 %\tat the end\t  what\n")
	for _, line := range append(b.Lines(kinds, p), words.BreakdownLine{Label: all, KindSum: b.Sum()}) {
		err := ""
		if line.Error > 0 {
			err = units.Bytes(line.Error)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t  %s\n", units.Signed(line.Delta), err, units.Bytes(line.End), line.Label)
	}
	return w.Flush()
}
