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
	pages := tracertest.Must(snippet.Pages(repository))(t)

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
	examples := tracertest.Must(filepath.Abs(filepath.Join(repository, "examples")))(t)
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

// A part is a flag of a command's help, in its group such as "Verdict:", or a paragraph.
type part struct {
	group, text string // group: empty for a paragraph without a heading
}

// reference returns the page: the help of each command. A part of several commands is there once, at
// the end.
func reference() []byte {
	root := newRootCommand(console.New(os.Stderr))
	root.InitDefaultHelpCmd()

	var commands []*cobra.Command
	helps := make(map[*cobra.Command][]part)
	users := make(map[part][]string) // commands
	var describe func(*cobra.Command)
	describe = func(command *cobra.Command) {
		if command.Hidden || command.Name() == "help" {
			return
		}
		commands = append(commands, command)
		helps[command] = partsOf(command)
		for _, p := range helps[command] {
			name := strings.TrimPrefix(command.CommandPath(), "allocscope ")
			users[p] = append(users[p], "`"+name+"`")
		}
		for _, child := range command.Commands() {
			describe(child)
		}
	}
	describe(root)

	var page bytes.Buffer
	page.WriteString("<!-- Generated by go generate ./cmd/allocscope. Do not edit. -->\n" +
		"# Commands\n\nThis is what `allocscope help COMMAND` prints, without its examples. Each " +
		"command has\n`--help`, and the flags of `allocscope` itself. Flags of several commands are " +
		"[at the\nend](#in-several-commands).\n")
	var names []string // of commands that share parts, in the order of their first part
	shared := make(map[string][]part)
	for _, command := range commands {
		var own []part
		var others []string
		for _, p := range helps[command] {
			with := strings.Join(users[p], ", ")
			if len(users[p]) == 1 || p.group == "Flags" {
				own = append(own, p)
				continue
			}
			if shared[with] == nil {
				names = append(names, with)
			}
			if !slices.Contains(shared[with], p) {
				shared[with] = append(shared[with], p)
			}
			if !slices.Contains(others, p.group) {
				others = append(others, p.group)
			}
		}
		if others != nil {
			own = append(own, part{text: "Also below: " + strings.Join(others, "; ")})
		}
		fmt.Fprintf(&page, "\n## %s\n\n```text\n%s```\n", command.CommandPath(), joined(own))
	}

	page.WriteString("\n## In several commands\n")
	for _, name := range names {
		fmt.Fprintf(&page, "\nOf %s:\n\n```text\n%s```\n", name, joined(shared[name]))
	}
	return page.Bytes()
}

// partsOf returns the parts of a command's help, without examples and the flags of all commands.
func partsOf(command *cobra.Command) (parts []part) {
	var help bytes.Buffer
	command.SetOut(&help)
	command.InitDefaultHelpFlag()
	if err := command.Help(); err != nil {
		panic(err) // bytes.Buffer has no errors
	}

	flagStart := regexp.MustCompile(`(?m)^ {2}(?:-\w, | {4})--`)
	for text := range strings.SplitSeq(strings.TrimSpace(help.String()), "\n\n") {
		text = strings.Replace(text, "Usage:\n  ", "Usage: ", 1)
		group, list, isList := strings.Cut(text, ":\n")
		starts := flagStart.FindAllStringIndex(list, -1)
		switch {
		case group == "Global flags" || group == "Examples" ||
			strings.HasPrefix(text, "Use \"allocscope"):
		case !isList:
			parts = append(parts, part{"", text})
		case starts == nil:
			parts = append(parts, part{group, list})
		}
		for i, start := range starts {
			end := len(list)
			if i+1 < len(starts) {
				end = starts[i+1][0]
			}
			flag := strings.TrimRight(list[start[0]:end], "\n")
			if group != "Global flags" && !strings.HasPrefix(flag, "  -h, --help") {
				parts = append(parts, part{group, flag})
			}
		}
	}
	return parts
}

// joined is the text of parts, with the heading of each group.
func joined(parts []part) string {
	var text strings.Builder
	for i, p := range parts {
		if i == 0 || p.group == "" || p.group != parts[i-1].group {
			if i > 0 {
				text.WriteString("\n")
			}
			if p.group != "" {
				text.WriteString(p.group + ":\n")
			}
		}
		text.WriteString(p.text + "\n")
	}
	return text.String()
}
