package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// installCauses makes a root directory in which dpkg has installed testdata/causes.c, stripped.
func installCauses(t *testing.T) (root string) {
	t.Helper()
	program := tracertest.Build(t, "causes.c")
	libraries := tracertest.Must(exec.Command("ldd", program).Output())(t)
	root = t.TempDir()
	inside := filepath.Join(root, "usr/bin/causes")

	commands := [][]string{{"install", "-D", program, inside}, {"strip", inside}}
	for _, word := range strings.Fields(string(libraries)) {
		if strings.HasPrefix(word, "/") {
			commands = append(commands, []string{"install", "-D", word, root + word})
		}
	}
	for _, c := range commands {
		out, err := exec.Command(c[0], c[1:]...).CombinedOutput()
		if err != nil {
			t.Fatalf("%q: %v\n%s", c, err, out)
		}
	}

	info := filepath.Join(root, "var/lib/dpkg/info")
	must(t, os.MkdirAll(info, 0o755))
	must(t, os.WriteFile(filepath.Join(info, "growth.list"), []byte("/.\n/usr/bin/causes\n"), 0o600))
	must(t, os.WriteFile(filepath.Join(root, "var/lib/dpkg/status"),
		[]byte("Package: growth\nArchitecture: all\n"), 0o600))
	return root
}

// TestSymbols: the result names the package with the symbols of a stripped program.
func TestSymbols(t *testing.T) {
	tracertest.NeedsRoot(t) // chroot(2)
	command := exec.Command("/usr/bin/causes", "keep", "40000")
	command.SysProcAttr = &syscall.SysProcAttr{Chroot: installCauses(t)}
	target := tracertest.StartCommand(t, command)
	t.Cleanup(target.Hangup)

	v := undisturbed(t, func() verdictOn {
		return judgeUntilEnd(t, fastTrace(t, target.PID(), 6*minute))
	}, func(v verdictOn) bool { return v.Class.Grows() && len(v.Suspects) > 0 })
	if len(v.Suspects) == 0 || summary.HasName(v.Suspects[0].Function) {
		t.Errorf("suspects %+v, want an address", v.Suspects)
	}
	mustSay(t, "the result", v.stdout, "causes+0x", "<- no symbols",
		"no symbols of causes: the package growth-dbgsym has them")
}
