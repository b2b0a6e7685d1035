package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/allocscope/allocscope/cmd/allocscope/console"
	"github.com/allocscope/allocscope/test/docs/snippet"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// repository is the project's folder.
const repository = "../.."

// runHere names the snippets that TestDocs runs; test/docs/run runs the snippets of other names.
const runHere = "test"

// TestDocs checks the commands that the pages tell readers to type.
func TestDocs(t *testing.T) {
	t.Parallel()
	pages, err := snippet.Pages(repository)
	if err != nil {
		t.Fatal(err)
	}

	t.Run("each snippet is run or says why not", func(t *testing.T) { checkMarkers(t, pages) })
	t.Run("the commands exist", func(t *testing.T) { checkCommands(t, pages) })
	t.Run("the code runs", func(t *testing.T) { runPages(t, pages) })
}

func checkMarkers(t *testing.T, pages []snippet.Page) {
	runner := readFile(t, repository, "test/docs/run")
	names := []string{runHere}
	for _, m := range regexp.MustCompile(`(?m)^run_(\w+)\(\)`).FindAllStringSubmatch(runner, -1) {
		names = append(names, m[1])
	}

	for _, page := range pages {
		for _, s := range page.Snippets() {
			switch {
			case s.Run == "" && s.Reason == "":
				t.Errorf("%s:%d: the shell code needs <!-- run: NAME --> or <!-- not run: REASON -->"+
					" above it", s.Path, s.Line)
			case s.Run != "" && !slices.Contains(names, s.Run):
				t.Errorf("%s:%d: nothing runs %q: there are %q", s.Path, s.Line, s.Run, names)
			}
		}
	}
}

// checkCommands checks that allocscope takes the arguments of each call.
func checkCommands(t *testing.T, pages []snippet.Page) {
	count := 0
	for _, page := range pages {
		for _, c := range page.Commands() {
			count++
			if err := parse(c); err != nil {
				t.Errorf("%s:%d: %s: %v", c.Path, c.Line, c.Text, err)
			}
		}
	}
	if count < 50 {
		t.Errorf("found %d calls of allocscope in the pages", count)
	}
}

func parse(call snippet.Command) error {
	root := newRootCommand(console.New(os.Stderr))
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	command, arguments, err := root.Find(call.Arguments)
	if err != nil {
		return err
	}

	command.InitDefaultHelpFlag()
	if err := command.ParseFlags(arguments); err != nil {
		return err
	}
	if command.Flags().Changed("help") || !command.Runnable() {
		return nil
	}

	if call.Abridged && command.Flags().NArg() == 0 {
		return nil
	}
	if !call.Abridged {
		if err := command.ValidateRequiredFlags(); err != nil {
			return err
		}
	}
	return command.ValidateArgs(command.Flags().Args())
}

// runPages runs the code of each page as one script, in a folder of its own.
func runPages(t *testing.T, pages []snippet.Page) {
	tracertest.NeedsRoot(t)
	t.Parallel()
	for _, page := range pages {
		var snippets []snippet.Snippet
		for _, s := range page.Snippets() {
			if s.Run == runHere {
				snippets = append(snippets, s)
			}
		}
		if len(snippets) == 0 {
			continue
		}

		t.Run(page.Path, func(t *testing.T) {
			t.Parallel()
			runScript(t, snippet.Script(snippets, "2s"))
		})
	}
}

func runScript(t *testing.T, script string) {
	folder := t.TempDir()
	examples, err := filepath.Abs(filepath.Join(repository, "examples"))
	if err != nil {
		t.Fatal(err)
	}
	must(t, os.Symlink(examples, filepath.Join(folder, "examples")))

	// Root needs no sudo, and the system's python3 has Pillow.
	prelude := "sudo() { \"$@\"; }\npython3() { exec /usr/bin/python3 \"$@\"; }\n"
	bash := exec.CommandContext(t.Context(), "bash", "-c", prelude+script)
	bash.Dir = folder
	bash.Env = append(os.Environ(), "PATH="+filepath.Dir(binary)+":"+os.Getenv("PATH"))
	bash.WaitDelay = guard
	out, err := bash.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s\n%s", err, script, out)
	}
}

var update = flag.Bool("update", false, "write the generated pages")

//go:generate go test -count=1 -run ^TestReference$ . -update

// TestReference checks that the page of commands has the text that they print about themselves.
func TestReference(t *testing.T) {
	const path = repository + "/docs/reference/cli.md"
	want := reference()
	for line := range strings.Lines(string(want)) {
		if len(strings.TrimSuffix(line, "\n")) > 110 {
			t.Errorf("a line of %d bytes: %s", len(line), line)
		}
	}
	if *update {
		must(t, os.WriteFile(path, want, 0o644))
		return
	}

	if readFile(t, path) != string(want) {
		t.Errorf("%s is not what the commands print: go generate ./cmd/allocscope", path)
	}
}

// A section is a part of a command's help: a paragraph with its heading, such as "Verdict:".
type section struct {
	name, text string
}

// reference returns the page: the help of each command. A section that several commands have is
// there once, at the end.
func reference() []byte {
	root := newRootCommand(console.New(os.Stderr))
	root.InitDefaultHelpCmd()

	var commands []*cobra.Command
	helps := make(map[*cobra.Command][]section)
	users := make(map[string][]string) // commands, by the text of a section
	var shared []section
	var describe func(*cobra.Command)
	describe = func(command *cobra.Command) {
		if command.Hidden || command.Name() == "help" {
			return
		}
		commands = append(commands, command)
		helps[command] = sectionsOf(command)
		for _, s := range helps[command] {
			name := strings.TrimPrefix(command.CommandPath(), "allocscope ")
			users[s.text] = append(users[s.text], name)
			if len(users[s.text]) == 2 {
				shared = append(shared, s)
			}
		}
		for _, child := range command.Commands() {
			describe(child)
		}
	}
	describe(root)

	var page bytes.Buffer
	page.WriteString("<!-- Generated by go generate ./cmd/allocscope. Do not edit. -->\n" +
		"# Commands\n\nThis is what `allocscope help COMMAND` prints. Each command has `--help`, " +
		"and the flags of\n`allocscope` itself. What several commands have is " +
		"[at the end](#in-several-commands).\n")
	for _, command := range commands {
		var own, others []string
		for _, s := range helps[command] {
			switch {
			case s.name == "Global flags":
			case len(users[s.text]) > 1:
				others = append(others, s.name)
			default:
				own = append(own, s.text)
			}
		}
		fmt.Fprintf(&page, "\n## %s\n\n```text\n%s\n```\n", command.CommandPath(),
			strings.Join(own, "\n\n"))
		if others != nil {
			fmt.Fprintf(&page, "\nAlso [these](#in-several-commands): %s.\n", strings.Join(others, "; "))
		}
	}

	page.WriteString("\n## In several commands\n")
	var before string
	for _, s := range shared {
		names := strings.Join(users[s.text], "`, `")
		switch {
		case s.name == "Global flags":
		case names == before:
			page.Truncate(page.Len() - len("```\n"))
			fmt.Fprintf(&page, "\n%s\n```\n", s.text)
		default:
			fmt.Fprintf(&page, "\nOf `%s`:\n\n```text\n%s\n```\n", names, s.text)
			before = names
		}
	}
	return page.Bytes()
}

// sectionsOf returns the sections of a command's help, without the flag --help.
func sectionsOf(command *cobra.Command) (sections []section) {
	var help bytes.Buffer
	command.SetOut(&help)
	command.InitDefaultHelpFlag()
	if err := command.Help(); err != nil {
		panic(err) // bytes.Buffer has no errors
	}

	helpFlag := regexp.MustCompile(`(?m)^  -h, --help .*\n?`)
	for text := range strings.SplitSeq(strings.TrimSpace(help.String()), "\n\n") {
		text = strings.TrimRight(helpFlag.ReplaceAllString(text, ""), "\n")
		name, _, isList := strings.Cut(text, ":\n")
		switch {
		case text == "Flags:" || strings.HasPrefix(text, "Use \"allocscope"):
		case isList:
			sections = append(sections, section{name, text})
		default:
			sections = append(sections, section{"", text})
		}
	}
	return sections
}
