package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

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
		Short: "Say what changed between two traces, or two profiles",
		Long: `Diff compares two folders of traces, as before and after a fix: how fast memory grew since their boundaries, in all, by owner and by
stack. Two profiles of pprof (growth, warmup, plateau, snapshots, or another tool's) it compares by what they hold.

What the states and the intervals mean is told in docs/diff.md.`,
		Example: `  allocscope diff before/ after/ --html diff.html
  allocscope diff trace/snapshots/003.pb.gz trace/plateau.pb.gz`,
		Args: cobra.ExactArgs(2),
		RunE: func(command *cobra.Command, arguments []string) error {
			return runDiff(command.OutOrStdout(), flags, arguments[0], arguments[1])
		},
	}
	set := command.Flags()
	set.StringVar(&flags.sample, "sample", "", "sample type to compare: resident_space, inuse_space, alloc_space, ... (default the first that both have)")
	set.StringVar(&flags.per, "per", "min", "unit of growth: min, step")
	set.IntVar(&flags.limit, "limit", 20, "owners and stacks to print")
	set.BoolVar(&flags.json, "json", false, "print the result as JSON, with all stacks")
	set.StringVar(&flags.html, "html", "", "file to write the result to as a page, too")
	return command
}

func runDiff(out io.Writer, flags diffFlags, before, after string) error {
	if flags.per != "min" && flags.per != "step" {
		return fmt.Errorf("--per %q is neither min nor step", flags.per)
	}
	if flags.limit < 0 {
		return fmt.Errorf("--limit %d is negative", flags.limit)
	}
	result, err := compareFiles(flags, before, after)
	if err != nil {
		return fmt.Errorf("compare %s with %s: %w", units.Printable(before), units.Printable(after), err)
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
		return nil, err
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

// areFolders tells folders from profiles.
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
		return false, errors.New("one is a folder and the other a file (name two folders of traces, or two profiles)")
	}
	return a.IsDir(), nil
}

func readDiffFolder(path string) (*compare.Trace, error) {
	folder, err := folder.Open(path, folder.Owner{})
	if err != nil {
		return nil, err
	}
	defer folder.Close()
	trace, err := compare.ReadTrace(folder, path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, ofNoEnd(err, folder))
	}
	return trace, nil
}

func readDiffProfile(path string) (compare.Profile, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // a named pipe would wait for a writer
	if err != nil {
		return compare.Profile{}, err
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return compare.Profile{}, errors.Join(fmt.Errorf("read %s: it is not a regular file", path), err)
	}
	p, err := compare.ParseProfile(file)
	if err != nil {
		return compare.Profile{}, fmt.Errorf("read %s: %w", path, err)
	}
	return compare.Profile{Name: path, Profile: p}, nil
}

// writePage writes a page outside of the folders of traces, for the user behind sudo.
func writePage(path string, write func(io.Writer) error) error {
	owner, err := folder.OwnerFromEnvironment(os.Getenv)
	if err != nil {
		return err
	}
	return folder.WriteFile(path, owner, write)
}
