//go:build share

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/allocscope/allocscope/cmd/allocscope/cli"
	"github.com/allocscope/allocscope/cmd/allocscope/console"
)

// `allocscope share DIR` writes the files that packages install below /usr/share: manual pages and
// completions. It exists with the build tag share alone: the program itself needs no writer of
// manual pages.
func init() { extraCommands = append(extraCommands, newShareCommand) }

func newShareCommand() *cobra.Command {
	return &cobra.Command{
		Use: "share DIR", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			return writeShare(command.Root(), arguments[0])
		},
	}
}

func writeShare(root *cobra.Command, folder string) error {
	const manual = "man/man1"
	for name, write := range map[string]func(path string) error{
		manual: func(path string) error {
			return writeManual(newRootCommand(console.New(os.Stderr)), path)
		},
		"bash-completion/completions": func(path string) error {
			return root.GenBashCompletionFileV2(filepath.Join(path, root.Name()), true)
		},
		"zsh/site-functions": func(path string) error {
			return root.GenZshCompletionFile(filepath.Join(path, "_"+root.Name()))
		},
		"fish/vendor_completions.d": func(path string) error {
			return root.GenFishCompletionFile(filepath.Join(path, root.Name()+".fish"), true)
		},
	} {
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(path, 0o755); err != nil {
			return err
		}
		if err := write(path); err != nil {
			return fmt.Errorf("write %s: %w", path, err)
		}
	}
	return nil
}

// writeManual writes a page for a command and for each below it. Their date is SOURCE_DATE_EPOCH.
func writeManual(command *cobra.Command, folder string) error {
	name := strings.ReplaceAll(command.CommandPath(), " ", "-")
	command.DisableAutoGenTag = true
	header := &doc.GenManHeader{
		Title: strings.ToUpper(name), Section: "1", Source: "allocscope " + newVersion().Version,
		Manual: "allocscope",
	}

	var page bytes.Buffer
	if err := doc.GenMan(command, header, &page); err != nil {
		return err
	}
	text := addSections(nameCommands(page.String(), command), command)
	if err := os.WriteFile(filepath.Join(folder, name+".1"), []byte(text), 0o644); err != nil {
		return err
	}

	for _, child := range command.Commands() {
		if child.IsAvailableCommand() {
			if err := writeManual(child, folder); err != nil {
				return err
			}
		}
	}
	return nil
}

// nameCommands lists in the synopsis how each command below this one is called.
func nameCommands(page string, command *cobra.Command) string {
	const synopsis = ".SH SYNOPSIS\n"
	if !command.HasAvailableSubCommands() || command.Runnable() {
		return page
	}

	var calls strings.Builder
	for _, child := range command.Commands() {
		if child.IsAvailableCommand() {
			fmt.Fprintf(&calls, "\\fB%s\\fP\n.br\n", strings.ReplaceAll(child.UseLine(), "-", `\-`))
		}
	}
	before, after, _ := strings.Cut(page, synopsis)
	_, after, _ = strings.Cut(after, "\n")
	return before + synopsis + calls.String() + after
}

// addSections adds the sections of the help that cobra does not know, before the last one.
func addSections(page string, command *cobra.Command) string {
	const seeAlso = ".SH SEE ALSO"
	body, rest, hasRest := strings.Cut(page, seeAlso)

	for _, section := range []struct{ title, key string }{
		{"ENVIRONMENT", cli.Environment}, {"EXIT STATUS", cli.ExitStatus},
	} {
		if text := command.Annotations[section.key]; text != "" {
			text = strings.ReplaceAll(text, `\`, `\e`)
			body += ".SH " + section.title + "\n.EX\n" + text + "\n.EE\n\n"
		}
	}
	if hasRest {
		body += seeAlso + rest
	}
	return body
}
