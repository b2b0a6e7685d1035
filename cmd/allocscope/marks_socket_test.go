package main

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

// aMarker is a client that shares nothing with ours: it sends the bytes given and prints the answer. "silent" says nothing
// until its input ends.
const aMarker = `
import socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.connect("\0allocscope/" + sys.argv[1])
if sys.argv[2] == "silent":
    print("connected", flush=True)
    sys.stdin.read()
    sys.exit()
try:
    s.send(bytes.fromhex(sys.argv[2]))
except BrokenPipeError:
    pass
try:
    answer = s.recv(4096)
except ConnectionResetError:
    answer = s.recv(4096)
print(answer.decode())
`

// markerOf prepares that client as a user.
func markerOf(uid uint32, pid int, text string) *exec.Cmd {
	command := exec.Command("/usr/bin/python3", "-c", aMarker, itoa(pid), hex.EncodeToString([]byte(text)))
	if text == "silent" {
		command.Args[4] = text
	}
	command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: nobody}}
	return command
}

// markAs sends a mark as a user and gives the answer.
func markAs(t *testing.T, uid uint32, pid int, text string) string {
	t.Helper()
	out, err := markerOf(uid, pid, text).Output()
	if err != nil {
		t.Fatalf("mark %q as user %d: %v", text, uid, err)
	}
	return strings.TrimSuffix(string(out), "\n")
}

// sleeper starts a process of a user.
func sleeper(t *testing.T, uid uint32) int {
	t.Helper()
	command := exec.Command("sleep", "1000")
	command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: nobody}}
	return tracertest.StartCommand(t, command).PID()
}

func mustListen(t *testing.T, m *marker, pid int, users ...uint32) {
	t.Helper()
	if err := m.listen(pid, users...); err != nil {
		t.Fatal(err)
	}
}

func TestTheProcesssUserRootAndWhoStartedTheTraceMayMarkAndNobodyElse(t *testing.T) {
	const owner, sudoer, stranger = nobody, 12345, 12346
	m, began, pid := startMarker(t), time.Now(), sleeper(t, owner)
	mustListen(t, m, pid, sudoer)
	for uid, may := range map[uint32]bool{0: true, owner: true, sudoer: true, stranger: false} {
		text := fmt.Sprintf("epoch of %d", uid)
		answer := markAs(t, uid, pid, text)
		if may && answer != "ok" || !may && !strings.Contains(answer, "user 12346 may not mark this process") {
			t.Errorf("user %d: %q", uid, answer)
		}
		if may {
			mustMark(t, m, began, text)
		}
	}
	if marks := m.take(); len(marks) > 0 {
		t.Errorf("marked: %v", marks)
	}
}

func TestAMarkIsOnePrintableLine(t *testing.T) {
	m, began, pid := startMarker(t), time.Now(), sleeper(t, 0)
	mustListen(t, m, pid)
	for text, want := range map[string]string{
		"validation":              "validation",
		" padded\n":               "padded",
		"two\nlines":              "two?lines",
		"\x1b]0;title\a":          "?]0;title?",
		"\xffa\u202e":             "?a?",
		"größe":                   "größe",
		strings.Repeat("x", 5000): strings.Repeat("x", 200),
	} {
		if answer := markAs(t, 0, pid, text); answer != "ok" {
			t.Errorf("%q: %q", text, answer)
		}
		mustMark(t, m, began, want)
	}
	if answer := markAs(t, 0, pid, " \n"); answer != "the mark is empty" || len(m.take()) > 0 {
		t.Errorf("blanks: %q", answer)
	}
}

func TestClientsThatSayNothingBlockNobodyAndNotTheEnd(t *testing.T) {
	m, began, pid := newMarker(), time.Now(), sleeper(t, nobody)
	mustListen(t, m, pid)
	for range mostConnections - 1 {
		tracertest.StartCommand(t, markerOf(nobody, pid, "silent")).Await("connected")
	}
	for range 2 * mostConnections { // those are not even listened to
		tracertest.StartCommand(t, markerOf(12345, pid, "silent")).Await("connected")
	}
	if answer := markAs(t, nobody, pid, "epoch"); answer != "ok" {
		t.Errorf("beside silent clients: %q", answer)
	}
	mustMark(t, m, began, "epoch")
	mustReturn(t, m.close)
}

func TestOfManyClientsAtOnceSomeAreSentAway(t *testing.T) {
	m, pid := startMarker(t), sleeper(t, 0)
	mustListen(t, m, pid)
	var silent []net.Conn
	for range mostConnections {
		conn, err := net.DialUnix("unixpacket", nil, markAddress(pid))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		silent = append(silent, conn)
	}
	for range 20 {
		if err := sendMark(pid, "epoch"); !errors.Is(err, errRefused) || !strings.HasSuffix(err.Error(), "too many marks at once") {
			t.Errorf("%v", err)
		}
	}
	for _, conn := range silent {
		conn.Close()
	}
	eventually(t, "there is room again", func() bool { return markAs(t, 0, pid, "epoch") == "ok" })
}

func TestMarksOfManyClientsAreAllTakenUntilThereAreTooMany(t *testing.T) {
	const clients, each, room = 8, 50, 300
	m, pid := startMarker(t), sleeper(t, 0)
	mustListen(t, m, pid)
	for range mostMarks - room {
		m.add("earlier", time.Now())
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	taken, refused := 0, 0
	for range clients {
		all.Go(func() {
			for range each {
				err := sendMark(pid, "epoch")
				mu.Lock()
				switch {
				case err == nil:
					taken++
				case errors.Is(err, errRefused) && strings.Contains(err.Error(), "there have been 10000 marks"):
					refused++
				default:
					t.Error(err)
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if marks := m.take(); taken != room || len(marks) != mostMarks || m.dropped() != clients*each-room || refused != m.dropped() {
		t.Errorf("%d taken, %d refused; %d marks, %d dropped", taken, refused, len(marks), m.dropped())
	}
}

func TestOneTraceTakesTheMarksOfAProcess(t *testing.T) {
	first, second, began, pid := newMarker(), startMarker(t), time.Now(), sleeper(t, 0)
	mustListen(t, first, pid)
	if err := second.listen(pid); !errors.Is(err, errMarksTaken) || !strings.Contains(err.Error(), "another trace") {
		t.Errorf("second trace: %v", err)
	}
	if answer := markAs(t, 0, pid, "epoch"); answer != "ok" {
		t.Errorf("%q", answer)
	}
	mustMark(t, first, began, "epoch")
	first.close()
	mustListen(t, second, pid)
	if len(second.take()) > 0 {
		t.Error("a mark has come to the second trace")
	}
}

func TestListeningForAProcessThatIsGoneIsAnError(t *testing.T) {
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	if err := startMarker(t).listen(gone.Process.Pid); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

// The socket of a trace that was killed is free at once, without anybody cleaning up.
func TestAKilledTraceLeavesNoSocket(t *testing.T) {
	pid := sleeper(t, 0)
	const server = `
import socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.bind("\0allocscope/" + sys.argv[1])
s.listen()
print("ready", flush=True)
sys.stdin.read()
`
	trace := tracertest.Start(t, "/usr/bin/python3", "-c", server, itoa(pid))
	trace.Await("ready")
	m := startMarker(t)
	if err := m.listen(pid); !errors.Is(err, errMarksTaken) {
		t.Fatalf("the test is wrong: %v", err)
	}
	if err := trace.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = trace.Wait()
	mustListen(t, m, pid)
	if names, err := os.ReadFile("/proc/net/unix"); err != nil || !slices.Contains(strings.Fields(string(names)), fmt.Sprintf("@allocscope/%d", pid)) {
		t.Errorf("the kernel lists no socket of that name: %v", err)
	}
}
