package tracertest

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// An Interpreter is a line of testdata/interpreters.sh.
type Interpreter struct {
	Name    string
	Command []string // that runs it; nil: it is Missing
	Missing string   // the reason
}

// Interpreters returns the Python interpreters that the tests trace.
func Interpreters(t testing.TB) (all []Interpreter) {
	t.Helper()
	command := exec.Command(Source("interpreters.sh"))
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
