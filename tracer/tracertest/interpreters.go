package tracertest

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// An Interpreter is a Python of this machine: the command that runs it, or why it is missing.
type Interpreter struct {
	Name    string
	Command []string
	Missing string
}

// AllInterpreters returns the lines of testdata/interpreters.sh, which gets the arguments.
func AllInterpreters(t testing.TB, arguments ...string) (all []Interpreter) {
	t.Helper()
	command := exec.Command(Source("interpreters.sh"), arguments...)
	command.Stderr = os.Stderr
	out, err := command.Output()
	if err != nil {
		t.Fatalf("%s: %v", command, err)
	}

	for line := range strings.Lines(string(out)) {
		name, rest, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		if !ok {
			t.Fatalf("%s: %q has no tab", command, line)
		}
		if reason, missing := strings.CutPrefix(rest, "missing: "); missing {
			all = append(all, Interpreter{Name: name, Missing: reason})
		} else {
			all = append(all, Interpreter{Name: name, Command: strings.Fields(rest)})
		}
	}
	if len(all) == 0 {
		t.Fatalf("%s prints nothing", command)
	}
	return all
}

// Interpreters returns the commands of the interpreters that are available, by name.
func Interpreters(t testing.TB, arguments ...string) map[string][]string {
	t.Helper()
	commands := make(map[string][]string)
	for _, python := range AllInterpreters(t, arguments...) {
		if python.Missing != "" {
			t.Logf("without %s: %s", python.Name, python.Missing)
			continue
		}

		commands[python.Name] = python.Command
	}

	if len(commands) == 0 {
		t.Fatal("no Python at all (apt-get install python3)")
	}
	return commands
}
