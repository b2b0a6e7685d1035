package tracertest

import (
	"os/exec"
	"strings"
	"testing"
)

// Interpreters returns the commands that run each Python of this machine, by name (see
// testdata/interpreters.sh, which gets the arguments). An interpreter that is not available is
// absent.
func Interpreters(t testing.TB, arguments ...string) map[string][]string {
	t.Helper()
	command := append([]string{Source("interpreters.sh")}, arguments...)
	out, err := exec.Command("sh", command...).Output()
	if err != nil {
		t.Fatalf("list interpreters: %v", err)
	}

	commands := make(map[string][]string)
	for line := range strings.Lines(string(out)) {
		name, command, _ := strings.Cut(strings.TrimSpace(line), "\t")
		if reason, missing := strings.CutPrefix(command, "missing: "); missing {
			t.Logf("without %s: %s", name, reason)
			continue
		}

		commands[name] = strings.Fields(command)
	}

	if len(commands) == 0 {
		t.Fatal("no Python at all (apt-get install python3)")
	}

	return commands
}
