package main

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

func TestCompletion(t *testing.T) {
	t.Parallel()
	t.Run("values", testCompletedValues)
	t.Run("files and folders", testCompletedFiles)
	t.Run("PIDs", testCompletedPIDs)
	t.Run("bash", testBash)
}

// complete returns a shell's completions of the last word, and how.
func complete(t *testing.T, words ...string) ([]string, cobra.ShellCompDirective) {
	t.Helper()
	c := call(t, append([]string{cobra.ShellCompRequestCmd}, words...)...)
	c.mustEnd(0)
	lines := strings.Split(strings.TrimSpace(c.stdout.String()), "\n")
	var directive cobra.ShellCompDirective
	if _, err := fmt.Sscanf(lines[len(lines)-1], ":%d", &directive); err != nil {
		t.Fatalf("%q: %v", lines, err)
	}
	return lines[:len(lines)-1], directive
}

func testCompletedValues(t *testing.T) {
	t.Parallel()
	for words, want := range map[string]string{
		"ps --color":                          "auto always never",
		"trace --fail-on":                     "leak suspected",
		"verdict --fail-on":                   "leak suspected",
		"ranks --fail-on":                     "outlier",
		"trace --keepers":                     "on off",
		"trace --native":                      "outside all",
		"diff --per":                          "min step",
		"verdict --x-unit":                    "s ms min h steps",
		"trace --duration":                    "",
		"trace 1":                             "",
		"mark 1 epoch":                        "",
		"trace --sources heap,mapping,fault,": "heap,mapping,fault,tensor heap,mapping,fault,cuda heap,mapping,fault,step",
	} {
		arguments := strings.Fields(words)
		if !strings.HasSuffix(words, ",") {
			arguments = append(arguments, "")
		}
		got, directive := complete(t, arguments...)
		if strings.Join(got, " ") != want || directive&cobra.ShellCompDirectiveNoFileComp == 0 {
			t.Errorf("%s completes to %q, %d", words, got, directive)
		}
	}
}

func testCompletedFiles(t *testing.T) {
	t.Parallel()
	const folders, files = cobra.ShellCompDirectiveFilterDirs, cobra.ShellCompDirectiveDefault
	for words, want := range map[string]cobra.ShellCompDirective{
		"report": folders, "view": folders, "show": folders, "bundle": folders, "ranks": folders, "ranks a": folders,
		"trace --continue": folders, "trace --output": folders, "trace --push-spool": folders,
		"agent --directory": folders, "diff": files, "diff a": files, "verdict": files,
		"agent --rules": files, "trace --components": files, "diff --html": files,
		"bundle --output": files, "bundle -o": files,
	} {
		got, directive := complete(t, append(strings.Fields(words), "")...)
		if len(got) > 0 || directive != want {
			t.Errorf("%s completes to %q, %d, want %d", words, got, directive, want)
		}
	}
}

// pythonOf starts a Python that has a text at the beginning of its command line.
func pythonOf(t *testing.T, text string) *tracertest.Target {
	t.Helper()
	code := "r'''" + text + "'''; import sys; print('ready', flush=True); sys.stdin.read()"
	return ready(tracertest.StartCommand(t, exec.Command("/usr/bin/python3", "-c", code)))
}

func testCompletedPIDs(t *testing.T) {
	t.Parallel()
	target := pythonOf(t, "completed\x1b[31m")
	other := tracertest.Start(t, tracertest.Build(t, "steps.c")) // no Python

	for _, words := range []string{
		"trace", "trace --pid", "doctor", "objects", "mark", "agent trace --pid",
	} {
		got, directive := complete(t, append(strings.Fields(words), "")...)
		if directive&cobra.ShellCompDirectiveNoFileComp == 0 {
			t.Errorf("%s: directive %d", words, directive)
		}
		pids := make(map[string]string)
		for _, line := range got {
			pid, description, _ := strings.Cut(line, "\t")
			pids[pid] = description
		}
		if text := pids[itoa(target.PID())]; !strings.Contains(text, "completed?[31m") {
			t.Errorf("%s completes PID %d to %q: %q", words, target.PID(), text, got)
		}
		if text, ok := pids[itoa(other.PID())]; ok {
			t.Errorf("%s completes to %q", words, text)
		}
	}
}

// testBash completes in bash. The command line of a process is another's, and no code.
func testBash(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	target := pythonOf(t, "$(touch executed)`touch executed`; *")

	c := call(t, "completion", "bash")
	c.mustEnd(0)
	script := filepath.Join(folder, "allocscope.bash")
	writeFile(t, script, c.stdout.String(), 0o600)

	// Functions that bash-completion would provide, for a shell without it.
	const helper = `_get_comp_words_by_ref() { words=("${COMP_WORDS[@]}"); cword=$COMP_CWORD; cur=${words[cword]}; prev=${words[cword-1]}; }
		compopt() { :; }; __ltrim_colon_completions() { :; }
		. "$1"; COMP_TYPE=9 COMP_WORDS=("$2" "$3" "$4") COMP_CWORD=2 COMP_LINE="$2 $3 $4" COMP_POINT=${#COMP_LINE}
		__start_allocscope; printf '%s\n' "${COMPREPLY[@]}"`
	inBash := func(command, word string) []string {
		bash := exec.Command("bash", "-c", helper, "bash", script, binary, command, word)
		bash.Dir = folder
		out, err := bash.CombinedOutput()
		if err != nil {
			t.Errorf("%v: %s", err, out)
		}
		return strings.Split(strings.TrimSpace(string(out)), "\n")
	}

	if got := inBash("trace", "--snap"); !slices.Equal(got, []string{"--snapshot-every"}) {
		t.Errorf("bash completes --snap to %q", got)
	}
	pid := itoa(target.PID())
	for _, word := range []string{"", pid} {
		got := inBash("objects", word)
		if !slices.ContainsFunc(got, func(line string) bool {
			return line == pid || strings.HasPrefix(line, pid+" ")
		}) {
			t.Errorf("bash completes %q to %q, without %s", word, got, pid)
		}
	}
	if exists(filepath.Join(folder, "executed")) {
		t.Error("bash executed the command line of a process")
	}
}
