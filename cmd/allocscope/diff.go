package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/cmd/allocscope/cli"
	"github.com/allocscope/allocscope/cmd/allocscope/exit"
	"github.com/allocscope/allocscope/export/compare"
	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/units"
)

// diffFlags are the flags of `allocscope diff`.
type diffFlags struct {
	sample, per, html string
	json              bool
	limit             int
}

func newDiffCommand() *cobra.Command {
	var flags diffFlags
	command := &cobra.Command{
		Use:   "diff BEFORE AFTER",
		Short: "Compare two traces, or two profiles",
		Long: `Diff compares the growth rates of two traces, as before and after a fix: in total, by
component and by stack. It compares the sizes of two pprof profiles (growth, warmup,
plateau, snapshots, or another tool's).

docs/reference/diff.md explains the states and the intervals.`,
		Example: `  allocscope diff before/ after/ --html diff.html
  allocscope diff trace/snapshots/003.pb.gz trace/plateau.pb.gz`,
		Args: func(_ *cobra.Command, arguments []string) error {
			if len(arguments) != 2 {
				return fmt.Errorf("%s: name two (allocscope diff BEFORE AFTER)",
					units.Plural(len(arguments), "trace is named", "traces are named"))
			}
			return nil
		},
		ValidArgsFunction: cli.Files,
		Annotations: map[string]string{
			cli.ExitStatus: exit.Help(exit.Done, exit.Failed, exit.Refused),
		},
		RunE: func(command *cobra.Command, arguments []string) error {
			return runDiff(command.OutOrStdout(), flags, arguments[0], arguments[1])
		},
	}

	set := command.Flags()
	set.StringVar(
		&flags.sample,
		"sample",
		"",
		"sample type to compare: resident_space, inuse_space, alloc_space, ... "+
			"(default the first of both)",
	)
	set.StringVar(&flags.per, "per", "min", "unit of growth: min, step")
	set.IntVar(&flags.limit, "limit", 20, "components and stacks to print")
	set.BoolVar(&flags.json, "json", false, "print the result as JSON, with all stacks")
	set.StringVar(&flags.html, "html", "", "HTML file to write as well")

	cli.CompleteValues(command, "per", "min", "step")
	cli.CompleteFiles(command, "html")
	return command
}

func runDiff(out io.Writer, flags diffFlags, before, after string) error {
	if flags.per != "min" && flags.per != "step" {
		return exit.Usage(fmt.Errorf("--per %q is neither min nor step", flags.per))
	}
	if flags.limit < 0 {
		return exit.Usage(fmt.Errorf("--limit %d is negative", flags.limit))
	}

	result, err := compareFiles(flags, before, after)
	if err != nil {
		return fmt.Errorf("compare %s with %s: %w", units.Name(before),
			units.Name(after), err)
	}

	if flags.html != "" {
		if err := writePage(flags.html, result.WriteHTML); err != nil {
			return err
		}
	}
	if flags.json {
		return result.WriteJSON(out)
	}

	return printDiff(out, result, flags.limit)
}

// compareFiles compares two folders or two profiles.
func compareFiles(flags diffFlags, before, after string) (*compare.Result, error) {
	options := compare.Options{Sample: flags.sample, PerStep: flags.per == "step"}
	isFolder, err := areFolders(before, after)
	if err != nil {
		return nil, exit.Refuse(err)
	}

	if !isFolder {
		a, err := readDiffProfile(before)
		if err != nil {
			return nil, err
		}

		b, err := readDiffProfile(after)
		if err != nil {
			return nil, err
		}
		return compare.Profiles(a, b, options)
	}

	a, err := readDiffFolder(before)
	if err != nil {
		return nil, err
	}

	b, err := readDiffFolder(after)
	if err != nil {
		return nil, err
	}

	return compare.Traces(a, b, options)
}

// areFolders reports whether both are folders. One folder and one file are an error.
func areFolders(before, after string) (bool, error) {
	a, err := os.Stat(before)
	if err != nil {
		return false, err
	}

	b, err := os.Stat(after)
	if err != nil {
		return false, err
	}

	if a.IsDir() != b.IsDir() {
		return false, errors.New(
			"one is a folder and the other a file (name two folders of traces, or two profiles)")
	}
	return a.IsDir(), nil
}

func readDiffFolder(path string) (*compare.Trace, error) {
	dir, err := folder.Open(path, folder.Owner{})
	if err != nil {
		return nil, exit.Refuse(err)
	}
	defer dir.Close()
	trace, err := compare.ReadTrace(dir, path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, explainUnfinished(err, dir))
	}
	return trace, nil
}

func readDiffProfile(path string) (compare.Profile, error) {
	// Without O_NONBLOCK the open of a named pipe waits for a writer.
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return compare.Profile{}, err
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return compare.Profile{}, errors.Join(fmt.Errorf("read %s: it is not a regular file", path),
			err)
	}

	p, err := compare.ParseProfile(file)
	if err != nil {
		return compare.Profile{}, fmt.Errorf("read %s: %w", path, err)
	}
	return compare.Profile{Name: path, Profile: p}, nil
}

// writePage writes a page outside the folders of traces, for the user behind sudo.
func writePage(path string, write func(io.Writer) error) error {
	owner, err := folder.OwnerFromEnvironment(os.Getenv)
	if err != nil {
		return err
	}
	return folder.WriteFile(path, owner, write)
}

// printDiff prints the differences, the verdict first, and at most limit components and stacks.
func printDiff(out io.Writer, r *compare.Result, limit int) error {
	fmt.Fprintf(out, "\nbefore  %s\nafter   %s\n\n%s: %s\n", r.Before.Text(), r.After.Text(),
		r.Name, r.Sentence)
	for _, note := range r.Notes {
		fmt.Fprintf(out, "note: %s\n", note)
	}

	var rows []diffRow
	for _, o := range r.Components {
		rows = append(rows, diffRow{o.Difference, o.Component})
	}

	shown := min(limit, len(rows))
	rows = append(rows, diffRow{r.Total, "all"})
	if err := printDiffRows(out, r, "component", rows, shown); err != nil {
		return err
	}

	rows = nil
	for i := range r.Stacks {
		rows = append(rows, diffRow{r.Stacks[i].Difference, r.Stacks[i].Component + ": " +
			r.Stacks[i].Where()})
	}

	return printDiffRows(out, r, "stack", rows, min(limit, len(rows)))
}

type diffRow struct {
	compare.Difference
	what string
}

// printDiffRows prints so many rows. By component, the last row is the sum, and is always printed.
func printDiffRows(out io.Writer, r *compare.Result, by string, rows []diffRow, shown int) error {
	fmt.Fprintf(out, "\nBy %s (%s, %s):\n\n", by, r.SampleType, r.Unit)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "before\tafter\tchange\t95%%\tstate\t  %s\n", by)

	for _, row := range rows[:shown] {
		row.print(w)
	}

	left := len(rows) - shown
	if n := len(rows); by == "component" {
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
	fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t  %s\n", units.Bytes(float64(d.Before.Bytes)),
		units.Bytes(float64(d.After.Bytes)), units.Signed(float64(d.Change.Bytes)),
		d.Interval(), d.State, d.what)
}
