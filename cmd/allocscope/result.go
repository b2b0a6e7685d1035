package main

import (
	"cmp"
	"fmt"
	"io"
	"path/filepath"
	"text/tabwriter"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/export/words"
)

// printResult prints what a trace has found, the answer first.
func printResult(out io.Writer, s *summary.Summary, folder string) error {
	fmt.Fprintf(out, "\n%s (PID %d), %s, %s\n\n", s.Process.Command, s.Process.PID, units.Seconds(s.DurationS), words.End(s.Ended))
	for _, line := range words.VerdictLines(s.Verdict, words.AtLimit) {
		fmt.Fprintln(out, line)
	}
	printSizes(out, s)
	for _, line := range words.OverheadLines(s) {
		fmt.Fprintln(out, line)
	}
	if err := printLedger(out, s); err != nil {
		return err
	}
	for _, warning := range s.Warnings {
		fmt.Fprintf(out, "warning: %s\n", warning)
	}
	if err := printCulprits(out, s.Suspects, "Who accumulates, and where its stacks meet", "of RSS growth"); err != nil {
		return err
	}
	const undecided = 3
	for _, line := range words.Undecided(s.Accumulating, undecided) {
		fmt.Fprintln(out, line)
	}
	if err := printStacks(out, s); err != nil {
		return err
	}
	if err := printDevices(out, s); err != nil {
		return err
	}
	return printNext(out, folder)
}

// printNext says what to look at next.
func printNext(out io.Writer, dir string) error {
	_, err := fmt.Fprintf(out, "\nFiles are in %s; %s is the report. Next:\n\n    allocscope view %s\n    go tool pprof -top %s\n", dir, folder.ReportFile,
		words.ShellQuote(dir), words.ShellQuote(filepath.Join(dir, folder.GrowthFile)))
	return err
}

// printSizes prints what the process and the others of its tree hold.
func printSizes(out io.Writer, s *summary.Summary) {
	if s.RSS.EndBytes != nil && s.RSS.StartBytes != nil && s.RSS.BaselineBytes != nil {
		fmt.Fprintf(out, "\nRSS %s at the start, %s at the boundary (%s), %s at the end", units.Bytes(float64(*s.RSS.StartBytes)),
			units.Bytes(float64(*s.RSS.BaselineBytes)), units.Seconds(*s.BaselineS), units.Bytes(float64(*s.RSS.EndBytes)))
		if s.RSS.GrowthBytesPerMin != nil {
			fmt.Fprintf(out, ": %s/min since the boundary", units.Signed(float64(*s.RSS.GrowthBytesPerMin)))
		}
		fmt.Fprintln(out)
	}
	if s.Steps != nil {
		fmt.Fprintf(out, "%s training steps since the boundary, %s/min", units.Count(float64(s.Steps.Count)), units.Count(s.Steps.PerMin))
		if s.Steps.GrowthBytesPerStep != nil {
			fmt.Fprintf(out, ": %s a step", units.Signed(float64(*s.Steps.GrowthBytesPerStep)))
		}
		fmt.Fprintln(out)
	}
	for _, p := range s.Processes {
		if p.PID != s.Process.PID && p.EndBytes != nil {
			fmt.Fprintln(out, words.Process(p))
		}
	}
	for _, g := range s.Groups {
		fmt.Fprintln(out, words.Group(g))
	}
}

// printCulprits prints the code that accumulates, by whose memory it is. of names the growth that the shares are of.
func printCulprits(out io.Writer, culprits []summary.Suspect, title, of string) error {
	if len(culprits) == 0 {
		return nil
	}
	fmt.Fprintf(out, "\n%s:\n\n", title)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "MiB/min\t%s\tstacks\t  whose\n", of)
	for _, c := range culprits {
		share := "-"
		if c.Share != nil {
			share = fmt.Sprintf("%.0f %%", 100**c.Share)
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t  %s: %s\n", units.MiBPerMinute(&c.BytesPerMin), share, c.Stacks, c.Component, words.Suspect(c))
	}
	return w.Flush()
}

// inParentheses is a text after what it is about; empty where it is.
func inParentheses(about, text string) string {
	if text == "" {
		return ""
	}
	return " (" + about + text + ")"
}

// printStacks prints the stacks that hold more than before.
func printStacks(out io.Writer, s *summary.Summary) error {
	stacks := s.Accumulating
	if len(stacks) == 0 {
		_, err := fmt.Fprintf(out, "\n%s\n", words.NothingAccumulated(s))
		return err
	}
	fmt.Fprintf(out, "\nWhat holds more than at the boundary%s:\n\n", inParentheses("heap from ", words.FromBursts(s.Overhead)))
	return printAccumulating(out, stacks[:min(topStacks, len(stacks))])
}

func printAccumulating(out io.Writer, stacks []summary.Accumulation) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "MiB/min\tshare\tbytes\tobjects\ttrend\t  where\n")
	for _, a := range stacks {
		fmt.Fprintf(w, "%s\t%.0f %%\t%s\t%s\t%s\t  %s\n", units.MiBPerMinute(a.BytesPerMin), 100*a.Share, units.Bytes(float64(a.Bytes)),
			units.Count(float64(a.Objects)), cmp.Or(string(a.Trend), "-"), words.Where(a))
	}
	return w.Flush()
}
