package user

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// script prints who runs it, and its environment.
const script = `id -u; id -g; id -G; echo "$HOME $XDG_RUNTIME_DIR $USER|$SUDO_UID$SUDO_COMMAND"`

func run(t *testing.T, command *exec.Cmd) []string {
	t.Helper()
	out := tracertest.Must(command.Output())(t)
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}

func TestCommand(t *testing.T) {
	tracertest.NeedsRoot(t)
	t.Setenv("SUDO_UID", "65534")
	t.Setenv("SUDO_COMMAND", "allocscope")

	owner := folder.Owner{UID: 65534, GID: 65534}
	lines := run(t, Command(t.Context(), owner, "/bin/sh", "-c", script))
	if lines[0] != "65534" || lines[1] != "65534" ||
		lines[3] != "/nonexistent /run/user/65534 nobody|" {
		t.Errorf("runs as %q", lines)
	}
	for group := range strings.FieldsSeq(lines[2]) {
		if group == "0" {
			t.Errorf("keeps the group of root: %q", lines[2])
		}
	}

	unknown := folder.Owner{UID: 4242, GID: 4243} // no such account
	lines = run(t, Command(t.Context(), unknown, "/bin/sh", "-c", script))
	if lines[0] != "4242" || lines[1] != "4243" || lines[2] != "4243" ||
		!strings.HasPrefix(lines[3], "/ /run/user/4242 ") {
		t.Errorf("runs as %q", lines)
	}

	current := folder.Owner{UID: os.Geteuid(), GID: os.Getegid()}
	lines = run(t, Command(t.Context(), current, "/bin/sh", "-c", script))
	if lines[0] != "0" || !strings.HasSuffix(lines[3], "|65534allocscope") {
		t.Errorf("runs as %q", lines)
	}
}

func TestCommandOfPerson(t *testing.T) {
	if _, err := CommandOfPerson(t.Context(), folder.Owner{}, "/bin/true"); !errors.Is(err, ErrRoot) {
		t.Errorf("as root: %v", err)
	}
	command, err := CommandOfPerson(t.Context(), folder.Owner{UID: 1, GID: 1}, "/bin/true")
	if err != nil || command.SysProcAttr.Credential.Uid != 1 {
		t.Errorf("as a user: %v", err)
	}
}
