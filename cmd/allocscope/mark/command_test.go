package mark

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
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
	must(t, m.Listen(pid))
	must(t, markCommand("--pid", itoa(pid), "epoch", "3"))

	must(t, markCommand("-p", itoa(pid), "two words"))
	must(t, markCommand(itoa(pid), "7", "of 9"))
	must(t, markCommand("-p", itoa(pid), "8", "of 9"))

	mustMark(t, m, began, "epoch 3", "two words", "7 of 9", "8 of 9")
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
	must(t, far.Listen(first))
	must(t, send(last, "far"))

	mustMark(t, far, began, "far")
	parent, err := parentOf(last)
	if err != nil || parent == first {
		t.Fatalf("parent %d, %v: the test is wrong", parent, err)
	}

	must(t, near.Listen(parent))
	must(t, send(last, "near"))

	mustMark(t, near, began, "near")
	must(t, send(first, "far again"))

	mustMark(t, far, began, "far again")
}

func testSendErrors(t *testing.T) {
	gone := exec.Command("true")
	must(t, gone.Run())

	pid := itoa(sleeper(t, 0))
	for words, arguments := range map[string][]string{
		"no trace of it or of an ancestor": {"--pid", pid, "epoch"},
		"no such process":                  {"--pid", itoa(gone.Process.Pid), "epoch"},
		"pid 0":                            {"--pid", "0", "epoch"},
		`"epoch" is not a PID`:             {"epoch"},
		"name the process":                 {},
		"the mark has no text":             {"--pid", pid},
		"mark PID TEXT":                    {pid},
		"201 bytes is longer than 200":     {"--pid", pid, strings.Repeat("x", 201)},
	} {
		if err := markCommand(arguments...); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%q: %v does not say %q", arguments, err, words)
		}
	}
}

// An impostor listens where a trace would, as a user. It prints the messages that it receives, and
// answers.
func startImpostor(t *testing.T, uid uint32, pid int, answer string) *tracertest.Target {
	t.Helper()
	const server = `
import socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.bind("\0allocscope/" + sys.argv[1])
s.listen()
print("ready", flush=True)
for _ in range(2):
    peer, _ = s.accept()
    print(repr(peer.recv(4096)), flush=True)
    if sys.argv[2]: peer.send(sys.argv[2].encode())
    peer.close()
`
	command := exec.Command("/usr/bin/python3", "-c", server, itoa(pid), answer)
	command.SysProcAttr = as(uid)
	impostor := tracertest.StartCommand(t, command)
	impostor.Await("ready")
	return impostor
}

// Somebody else would like to read the marks and to be believed.
func testForeignUser(t *testing.T) {
	first, last := descendant(t)
	impostor := startImpostor(t, nobody, last, "")
	if err := send(last, "secret"); !errors.Is(err, errForeignTrace) ||
		!strings.Contains(err.Error(), "user 65534") {
		t.Errorf("%v", err)
	}

	impostor.Await("b''")
	m, began := startMarker(t), time.Now()
	must(t, m.Listen(first))
	if err := send(last, "epoch"); err != nil {
		t.Errorf("with the trace of an ancestor: %v", err)
	}

	mustMark(t, m, began, "epoch")
	impostor.Await("b''")
}

func testHostileRefusal(t *testing.T) {
	pid := os.Getpid()
	startImpostor(t, 0, pid, "\x1b[31mno")
	if err := send(pid, "epoch"); !errors.Is(err, errRefused) || !strings.HasSuffix(err.Error(),
		"the trace refuses the mark: ?[31mno") {
		t.Errorf("%v", err)
	}
}
