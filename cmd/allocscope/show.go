package main

import (
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/allocscope/allocscope/cmd/allocscope/cli"
	"github.com/allocscope/allocscope/cmd/allocscope/exit"
	"github.com/allocscope/allocscope/cmd/allocscope/trace"
	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/report"
)

func newShowCommand() *cobra.Command {
	var how trace.Print
	var lastOOM bool
	command := &cobra.Command{
		Use:   "show [DIR]",
		Short: "Print the result of a trace again",
		Long: `Show prints the result of a trace, as trace did at its end. With --details it adds the
numbers behind it: what the growth is made of, the suspects, the stacks that grew, the overhead and
what was lost. Without DIR it takes the latest trace, by allocscope-latest. It needs no privilege but
to read the folder.

With --last-oom it prints what the kernel's log says about the last process that was killed for want
of memory: whose limit was met, and who held the memory. It names the trace of that process, by
default in ` + defaultAgentDirectory + `, the directory of the agent. With DIR, a trace or the directory
of an agent, it takes the last kill of a process that was traced there. It needs the right to read the
kernel's log.`,
		Example: `  allocscope show
  allocscope show allocscope-4242-20261121-224502 --details
  sudo allocscope show --last-oom`,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: cli.Folder,
		RunE: func(command *cobra.Command, arguments []string) error {
			if lastOOM {
				return runLastOOM(command, arguments)
			}
			how.Quiet, how.Color = trace.OutputFlags(command.Flags())
			return runShow(command, arguments, how)
		},
	}

	command.Flags().BoolVar(&how.Details, "details", false, "print the numbers behind the result, too")
	command.Flags().BoolVar(&lastOOM, "last-oom", false,
		"print the last OOM kill in the kernel's log, and the trace of that process")
	command.MarkFlagsMutuallyExclusive("details", "last-oom")
	return command
}

// openTrace opens the folder that the arguments of a command name, or the folder of the latest
// trace. Files written into it belong to the owner, the user behind sudo.
func openTrace(
	command *cobra.Command, arguments []string,
) (dir *folder.Folder, owner folder.Owner, err error) {
	if owner, err = folder.OwnerFromEnvironment(os.Getenv); err != nil {
		return nil, owner, exit.Refuse(err)
	}
	path, err := folder.Choose(arguments, command.CommandPath(), owner)
	if err != nil {
		return nil, owner, exit.Refuse(err)
	}
	if dir, err = folder.Open(path, owner); err != nil {
		return nil, owner, exit.Refuse(err)
	}
	if len(arguments) == 0 {
		slog.Info("the latest trace is " + path)
	}
	return dir, owner, nil
}

func runShow(command *cobra.Command, arguments []string, how trace.Print) error {
	dir, _, err := openTrace(command, arguments)
	if err != nil {
		return err
	}
	defer dir.Close()

	summary, err := report.ReadSummary(dir)
	if err != nil {
		return explainUnfinished(err, dir)
	}
	return trace.PrintResult(command.OutOrStdout(), summary, trace.PlaceOf(dir.Path()), how)
}
