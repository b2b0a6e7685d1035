package cli

import "github.com/spf13/cobra"

// CompleteFlag completes a flag of the command, which the caller has defined.
func CompleteFlag(command *cobra.Command, flag string, complete cobra.CompletionFunc) {
	if err := command.RegisterFlagCompletionFunc(flag, complete); err != nil {
		panic(err)
	}
}

// CompleteValues completes a flag to fixed values.
func CompleteValues(command *cobra.Command, flag string, values ...string) {
	CompleteFlag(command, flag,
		cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// CompleteFolders completes flags to folders.
func CompleteFolders(command *cobra.Command, flags ...string) {
	for _, flag := range flags {
		CompleteFlag(command, flag, Folders)
	}
}

// CompleteFiles completes flags to files and folders.
func CompleteFiles(command *cobra.Command, flags ...string) {
	for _, flag := range flags {
		CompleteFlag(command, flag, Files)
	}
}

// Folder completes the first argument of a command to folders.
func Folder(
	command *cobra.Command, arguments []string, word string,
) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(arguments) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return Folders(command, arguments, word)
}

// Folders completes all arguments of a command, or a flag, to folders.
func Folders(
	*cobra.Command, []string, string,
) ([]cobra.Completion, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveFilterDirs
}

// Files completes all arguments of a command, or a flag, to files and folders.
func Files(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveDefault
}
