package mark

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

func TestSend(t *testing.T) {
	t.Run("command", testCommand)
	t.Run("nearest ancestor", testAncestor)
	t.Run("errors", testSendErrors)
	t.Run("foreign user", testForeignUser)
	t.Run("hostile refusal", testHostileRefusal)
}

// markCommand calls `allocscope mark`.
func markCommand(arguments ...string) error {
	command := NewCommand()
	command.SetArgs(arguments)
	command.SilenceErrors, command.SilenceUsage = true, true
	command.SetOut(&bytes.Buffer{})
	return command.Execute()
}

func testCommand(t *testing.T) {
	m, began, pid := startMarker(t), time.Now(), sleeper(t, nobody)
	mustListen(t, m, pid)
	if err := markCommand("--pid", itoa(pid), "epoch", "3"); err != nil {
		t.Error(err)
	}

	if err := markCommand("-p", itoa(pid), "two words"); err != nil {
		t.Error(err)
	}

	mustMark(t, m, began, "epoch 3", "two words")
}

// descendant starts a shell with a child that has a child, and returns the PIDs of the first and
// the last.
func descendant(t *testing.T) (first, last int) {
	t.Helper()
	target := tracertest.Start(t, "/bin/sh", "-c",
		`/bin/sh -c '/bin/sh -c "echo \$\$; echo ready; read line; :"; :'; :`)
	if _, err := fmt.Sscan(target.Await("ready")[0], &last); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(target.Hangup)
	return target.PID(), last
}

func testAncestor(t *testing.T) {
	far, near, began := startMarker(t), startMarker(t), time.Now()
	first, last := descendant(t)
	mustListen(t, far, first)
	if err := send(last, "far"); err != nil {
		t.Error(err)
	}

	mustMark(t, far, began, "far")
	parent, err := parentOf(last)
	if err != nil || parent == first {
		t.Fatalf("parent %d, %v: the test is wrong", parent, err)
	}

	mustListen(t, near, parent)
	if err := send(last, "near"); err != nil {
		t.Error(err)
	}

	mustMark(t, near, began, "near")
	if err := send(first, "far again"); err != nil {
		t.Error(err)
	}

	mustMark(t, far, began, "far again")
}

func testSendErrors(t *testing.T) {
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}

	pid := itoa(sleeper(t, 0))
	for name, c := range map[string]struct {
		arguments []string
		words     []string
	}{
		"no trace": {[]string{"--pid", pid, "epoch"}, []string{
			"mark pid " + pid,
			"no trace of it or of an ancestor", "allocscope trace --pid " + pid,
		}},
		"no process": {
			[]string{"--pid", itoa(gone.Process.Pid), "epoch"},
			[]string{"no such process"},
		},
		"no PID":  {[]string{"--pid", "0", "epoch"}, []string{"pid 0", "no trace"}},
		"no flag": {[]string{"epoch"}, []string{"pid"}},
		"no text": {[]string{"--pid", pid}, []string{"at least 1 arg"}},
		"a long text": {
			[]string{"--pid", pid, strings.Repeat("x", 201)},
			[]string{"201 bytes", "longer than 200"},
		},
	} {
		err := markCommand(c.arguments...)
		for _, word := range c.words {
			if err == nil || !strings.Contains(err.Error(), word) {
				t.Errorf("%s: %v does not say %q", name, err, word)
			}
		}
	}
}

// Somebody else listens where the trace would, and would like to read the marks and to be believed.
func testForeignUser(t *testing.T) {
	const server = `
import socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.bind("\0allocscope/" + sys.argv[1])
s.listen()
print("ready", flush=True)
for _ in range(2):
    peer, _ = s.accept()
    print(repr(peer.recv(4096)), flush=True)
    peer.close()
`
	first, last := descendant(t)
	command := exec.Command("/usr/bin/python3", "-c", server, itoa(last))

	command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{
		Uid: nobody,
		Gid: nobody,
	}}

	impostor := tracertest.StartCommand(t, command)
	impostor.Await("ready")
	if err := send(last, "secret"); !errors.Is(err, errForeignTrace) ||
		!strings.Contains(err.Error(), "user 65534") {
		t.Errorf("%v", err)
	}

	impostor.Await("b''")
	m, began := startMarker(t), time.Now()
	mustListen(t, m, first)
	if err := send(last, "epoch"); err != nil {
		t.Errorf("with the trace of an ancestor: %v", err)
	}

	mustMark(t, m, began, "epoch")
	impostor.Await("b''")
}

func testHostileRefusal(t *testing.T) {
	const server = `
import socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.bind("\0allocscope/" + sys.argv[1])
s.listen()
print("ready", flush=True)
peer, _ = s.accept()
peer.recv(4096)
peer.send(b"\x1b[31mno")
`
	pid := os.Getpid()
	tracertest.Start(t, "/usr/bin/python3", "-c", server, itoa(pid)).Await("ready")
	if err := send(pid, "epoch"); !errors.Is(err, errRefused) || !strings.HasSuffix(err.Error(),
		"the trace refuses the mark: ?[31mno") {
		t.Errorf("%v", err)
	}
}
