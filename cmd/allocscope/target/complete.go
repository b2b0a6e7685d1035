package target

import (
	"strconv"

	"github.com/spf13/cobra"

	"github.com/allocscope/allocscope/tracer/tree"
)

// maxCompletionBytes of a command line are shown beside a PID.
const maxCompletionBytes = 80

// CompletePID completes to the PIDs of Python programs, each with its command line: the most likely
// one first.
func CompletePID(
	*cobra.Command, []string, string,
) ([]cobra.Completion, cobra.ShellCompDirective) {
	all, err := tree.ListMachine()
	if err != nil {
		cobra.CompErrorln(err.Error())
		return nil, cobra.ShellCompDirectiveError
	}

	var completions []cobra.Completion
	for _, l := range worthTracing(all) {
		if l.IsPython {
			completions = append(completions, cobra.CompletionWithDesc(strconv.Itoa(l.PID),
				commandOf(l, maxCompletionBytes)))
		}
	}
	return completions, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
}

// completeFirstPID completes the first argument.
func completeFirstPID(
	command *cobra.Command, arguments []string, word string,
) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(arguments) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return CompletePID(command, arguments, word)
}
