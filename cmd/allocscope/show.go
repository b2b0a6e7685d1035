package main

import (
	"errors"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/allocscope/allocscope/cmd/allocscope/cli"
	"github.com/allocscope/allocscope/cmd/allocscope/exit"
	"github.com/allocscope/allocscope/cmd/allocscope/trace"
	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/markdown"
	"github.com/allocscope/allocscope/export/report"
)

func newShowCommand() *cobra.Command {
	var how trace.Print
	var asMarkdown, lastOOM bool
	command := &cobra.Command{
		Use:   "show [DIR]",
		Short: "Print the result of a trace again",
		Long: `Show prints the result of a trace, as trace did at its end. With --details it adds the
numbers behind it: what the growth is made of, the suspects, the stacks that grew, the overhead and
what was lost. Without DIR it takes the latest trace, by allocscope-latest. It needs no privilege but
to read the folder.

With --markdown it prints a text of at most 60 lines to paste into an issue: the result, memory over
time, what it is made of, the stacks that grow most, versions, and what was lost. Of paths and of the
command line it has the names of files alone, and no names of users, hosts, pods or jobs. Names of
your functions, variables and keys are in it: read it before you post it.

With --last-oom it prints what the kernel's log says about the last process that was killed for want
of memory: whose limit was met, and who held the memory. It names the trace of that process, by
default in ` + defaultAgentDirectory + `, the directory of the agent. With DIR, a trace or the directory
of an agent, it takes the last kill of a process that was traced there. It needs the right to read the
kernel's log.`,
		Example: `  allocscope show
  allocscope show allocscope-4242-20261121-224502 --details
  allocscope show --markdown >issue.md
  sudo allocscope show --last-oom`,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: cli.Folder,
		RunE: func(command *cobra.Command, arguments []string) error {
			switch {
			case asMarkdown && how.Details:
				return exit.Usage(errors.New("--details and --markdown: give one of them"))
			case lastOOM && (how.Details || asMarkdown):
				return exit.Usage(errors.New("--last-oom needs no other flag: leave them out"))
			case lastOOM:
				return runLastOOM(command, arguments)
			case asMarkdown:
				return showMarkdown(command, arguments)
			}
			how.Quiet, how.Color = trace.OutputFlags(command.Flags())
			return runShow(command, arguments, how)
		},
	}

	command.Flags().BoolVar(&how.Details, "details", false, "print the numbers behind the result, too")
	command.Flags().BoolVar(&asMarkdown, "markdown", false,
		"print a text for an issue, without your paths and arguments")
	command.Flags().BoolVar(&lastOOM, "last-oom", false,
		"print the last OOM kill in the kernel's log, and the trace of that process")
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

// showMarkdown prints the text for an issue.
func showMarkdown(command *cobra.Command, arguments []string) error {
	dir, _, err := openTrace(command, arguments)
	if err != nil {
		return err
	}
	defer dir.Close()

	tables, err := report.ReadTables(dir)
	if err != nil {
		return explainUnfinished(err, dir)
	}
	return markdown.Write(command.OutOrStdout(), tables)
}
