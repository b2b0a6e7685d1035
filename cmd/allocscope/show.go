package main

import (
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/allocscope/allocscope/cmd/allocscope/cli"
	"github.com/allocscope/allocscope/cmd/allocscope/console"
	"github.com/allocscope/allocscope/cmd/allocscope/exit"
	"github.com/allocscope/allocscope/cmd/allocscope/trace"
	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/report"
)

func newShowCommand() *cobra.Command {
	var how trace.Print
	command := &cobra.Command{
		Use:   "show [DIR]",
		Short: "Print the result of a trace again",
		Long: `Show prints the result of a trace, as trace did at its end. With --details it adds the
numbers behind it: what the growth is made of, the suspects, the stacks that grew, the overhead and
what was lost. Without DIR it takes the latest trace, by allocscope-latest. It needs no privilege but
to read the folder.`,
		Example: `  allocscope show
  allocscope show allocscope-4242-20261121-224502 --details`,
		Args: cobra.ArbitraryArgs,
		RunE: func(command *cobra.Command, arguments []string) error {
			how.Quiet, _ = command.Flags().GetBool(cli.QuietFlag)
			if color, ok := command.Flags().Lookup(cli.ColorFlag).Value.(*console.Color); ok {
				how.Color = *color
			}
			return runShow(command, arguments, how)
		},
	}

	command.Flags().BoolVar(&how.Details, "details", false, "print the numbers behind the result, too")
	return command
}

func runShow(command *cobra.Command, arguments []string, how trace.Print) error {
	behindSudo, err := folder.OwnerFromEnvironment(os.Getenv)
	if err != nil {
		return exit.Refuse(err)
	}
	path, err := folder.Choose(arguments, "allocscope show", behindSudo)
	if err != nil {
		return exit.Refuse(err)
	}

	dir, err := folder.Open(path, folder.Owner{UID: os.Geteuid(), GID: os.Getegid()})
	if err != nil {
		return exit.Refuse(err)
	}
	defer dir.Close()
	if len(arguments) == 0 {
		slog.Info("the latest trace is " + path)
	}

	summary, err := report.ReadSummary(dir)
	if err != nil {
		return explainUnfinished(err, dir)
	}
	return trace.PrintResult(command.OutOrStdout(), summary, trace.PlaceOf(dir.Path()), how)
}
