package main

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// A status of its own says that the audit has checked nothing. A go of the test makes a govulncheck
// that ends as the case says.
func TestAudit(t *testing.T) {
	programs := t.TempDir()
	const goProgram = `#!/bin/sh
case $1 in
build) printf '#!/bin/sh\necho "$ERROR" >&2\nexit $STATUS\n' >"$4"; chmod +x "$4" ;;
list) echo example.com/m ;;
esac
`
	writeFile(t, programs, "go", goProgram)

	for _, c := range []struct {
		name, status, message string
		want                  int
		says                  string
	}{
		{"nothing", "0", "", 0, ""},
		{"vulnerability", "3", "", 3, ""},
		{"no network", "1", "govulncheck: fetching vulnerabilities: Get x", 75, "out of reach"},
		{"another error", "1", "govulncheck: loading packages: x", 1, "loading packages"},
	} {
		audit := exec.Command("../../.ci/audit")
		audit.Env = append(os.Environ(), "PATH="+programs+":"+os.Getenv("PATH"),
			"STATUS="+c.status, "ERROR="+c.message)
		out, err := audit.CombinedOutput()
		got := audit.ProcessState.ExitCode()
		if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		if got != c.want || !strings.Contains(string(out), c.says) {
			t.Errorf("%s: status %d, want %d: %s", c.name, got, c.want, out)
		}
	}
}
