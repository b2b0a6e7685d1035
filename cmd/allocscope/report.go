package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/allocscope/allocscope/cmd/allocscope/cli"
	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/report"
)

func newReportCommand() *cobra.Command {
	var output string
	command := &cobra.Command{
		Use:   "report [DIR]",
		Short: "Regenerate the report of a trace: one HTML file that needs no network",
		Long: `Report makes report.html of the files in the folder of a trace, as trace does at its end,
and prints its path. Without DIR it takes the latest trace, by allocscope-latest.

Use it for traces whose files were moved or truncated. The report names the files that cannot be
read; only summary.json is required.`,
		Example: `  allocscope report
  allocscope report allocscope-4242-20261121-224502`,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: cli.Folder,
		RunE: func(command *cobra.Command, arguments []string) error {
			return runReport(command, arguments, output)
		},
	}

	command.Flags().StringVarP(&output, "output", "o", "",
		"file to write (default report.html in the folder)")
	cli.CompleteFiles(command, "output")
	return command
}

// runReport writes the report of a folder, into it unless a file is named, and prints its path.
func runReport(command *cobra.Command, arguments []string, output string) error {
	dir, owner, err := openTrace(command, arguments)
	if err != nil {
		return err
	}
	defer dir.Close()
	trace, err := report.Read(dir)
	if err != nil {
		return explainUnfinished(err, dir)
	}

	write := func(w io.Writer) error { return report.Write(w, trace) }
	if output == "" {
		output = filepath.Join(dir.Path(), folder.ReportFile)
		err = dir.WriteFile(folder.ReportFile, write)
	} else {
		err = folder.WriteFile(output, owner, write)
	}

	if err == nil {
		_, err = fmt.Fprintln(command.OutOrStdout(), output)
	}

	return err
}

// explainUnfinished adds to the error of reading a folder the commands that still work for a trace
// that has not ended. It returns nil for nil.
func explainUnfinished(err error, dir *folder.Folder) error {
	present := dir.ReadFile(folder.SummaryFile, func(io.Reader) error { return nil }) == nil
	if present || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return fmt.Errorf("%w: the trace still runs, or was killed before its end "+
		"(`allocscope verdict %s` judges its timeline)", err,
		filepath.Join(dir.Path(), folder.TimelineFile))
}

// writeReport writes the report of the files that are in the folder.
func writeReport(dir *folder.Folder) func(io.Writer) error {
	return func(w io.Writer) error {
		trace, err := report.Read(dir)
		if err != nil {
			return err
		}
		return report.Write(w, trace)
	}
}
