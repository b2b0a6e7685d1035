package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/allocscope/allocscope/cmd/allocscope/trace"
	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/report"
)

func newShowCommand() *cobra.Command {
	var details bool
	command := &cobra.Command{
		Use:   "show DIR",
		Short: "Print the result of a trace again",
		Long: `Show prints the result of a trace, as trace did at its end. With --details it adds the
numbers behind it: what the growth is made of, the suspects, the stacks that grew, the overhead and
what was lost. It needs no privilege but to read the folder.`,
		Example: `  allocscope show allocscope-4242-20261121-224502
  allocscope show allocscope-4242-20261121-224502 --details`,
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			return runShow(command, arguments[0], details)
		},
	}

	command.Flags().BoolVar(&details, "details", false, "print the numbers behind the result, too")
	return command
}

func runShow(command *cobra.Command, path string, details bool) error {
	dir, err := folder.Open(path, folder.Owner{UID: os.Geteuid(), GID: os.Getegid()})
	if err != nil {
		return err
	}
	defer dir.Close()

	summary, err := report.ReadSummary(dir)
	if err != nil {
		return explainUnfinished(err, dir)
	}

	out := command.OutOrStdout()
	err = trace.PrintResult(out, summary, trace.PlaceOf(dir.Path()), nil)
	if err == nil && details {
		err = trace.PrintDetails(out, summary, dir.Path())
	}
	return err
}
