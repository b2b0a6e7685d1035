// Package cli has the parts that commands share: help with flags in groups, plain messages for
// wrong flags, and flags from the environment.
package cli

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Keys of a command's annotations.
const (
	// ExitStatus is the section of the exit status in the help of a command.
	ExitStatus = "exit-status"
	// Environment is the section of the environment.
	Environment = "environment"
)

// Names of the flags of all commands.
const (
	QuietFlag = "quiet"
	ColorFlag = "color"
)

// groupKey is the key of a flag's annotation.
const groupKey = "group"

// maxHelpColumns of the flags in a help.
const maxHelpColumns = 100

// Group puts flags of a set into a group of the help. Groups are in the order of their first calls.
// The flags keep the order in which they were defined. Flags without a group come last.
func Group(set *pflag.FlagSet, title string, names ...string) {
	set.SortFlags = false
	for _, name := range names {
		if err := set.SetAnnotation(name, groupKey, []string{title}); err != nil {
			panic(err) // the flag is defined by the caller
		}
	}
}

// flagSections are the flags of a command in groups, each with its title.
func flagSections(set *pflag.FlagSet) string {
	const rest = "Flags"
	var titles []string
	groups := make(map[string]*pflag.FlagSet)

	set.VisitAll(func(flag *pflag.Flag) {
		title := rest
		if group := flag.Annotations[groupKey]; len(group) > 0 {
			title = group[0]
		}
		if groups[title] == nil {
			groups[title] = pflag.NewFlagSet(title, pflag.ContinueOnError)
			groups[title].SortFlags = false
			if title != rest {
				titles = append(titles, title)
			}
		}
		groups[title].AddFlag(flag)
	})
	if groups[rest] != nil {
		titles = append(titles, rest)
	}

	var text strings.Builder
	for _, title := range titles {
		usages := groups[title].FlagUsagesWrapped(maxHelpColumns)
		text.WriteString("\n\n" + title + ":\n" + strings.TrimRight(usages, "\n"))
	}
	return text.String()
}

// The usage of cobra, with flags in groups and two sections at the end.
const usageTemplate = `Usage:{{if .Runnable}}
  {{.UseLine}}{{end}}{{if .HasAvailableSubCommands}}
  {{.CommandPath}} [command]{{end}}{{if .HasExample}}

Examples:
{{.Example}}{{end}}{{if .HasAvailableSubCommands}}

Commands:{{range .Commands}}{{if (or .IsAvailableCommand (eq .Name "help"))}}
  {{rpad .Name .NamePadding }} {{.Short}}{{end}}{{end}}{{end}}{{if .HasAvailableLocalFlags}}
{{- flagSections .LocalFlags}}{{end}}{{if .HasAvailableInheritedFlags}}

Global flags:
{{.InheritedFlags.FlagUsages | trimTrailingWhitespaces}}{{end}}{{with index .Annotations "environment"}}

Environment:
{{.}}{{end}}{{with index .Annotations "exit-status"}}

Exit status:
{{.}}{{end}}{{if .HasAvailableSubCommands}}

Use "{{.CommandPath}} [command] --help" for more information about a command.{{end}}
`

// Install gives a root command, and those below it, the help and the errors of this package.
func Install(root *cobra.Command) {
	cobra.AddTemplateFunc("flagSections", flagSections)
	root.SetUsageTemplate(usageTemplate)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return plainError(err) })
}
