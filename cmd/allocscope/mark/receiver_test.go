package mark

import (
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/allocscope/allocscope/record"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

func TestReceiver(t *testing.T) {
	t.Run("flood", testFlood)
	t.Run("users", testUsers)
	t.Run("silent clients", testSilentClients)
	t.Run("second trace", testSecondTrace)
	t.Run("squatter", testSquatter)
	t.Run("flood of strangers", testFloodOfStrangers)
	t.Run("socket of a killed trace", testKilledTrace)
}

func startMarker(t *testing.T) *Receiver {
	t.Helper()
	m := NewReceiver()
	t.Cleanup(m.Close)
	return m
}

// mustMark waits for marks and checks for these and no others, with the times at which they came.
func mustMark(t *testing.T, m *Receiver, since time.Time, want ...string) {
	t.Helper()
	var got []string
	eventually(t, fmt.Sprintf("%q are marked", want), func() bool {
		for _, mark := range m.Drain() {
			got = append(got, mark.Text)
			if mark.At.Before(since) || mark.At.After(time.Now()) {
				t.Errorf("mark %q is of %s, want between %s and now", mark.Text, mark.At, since)
			}
		}
		return len(got) >= len(want)
	})

	if !slices.Equal(got, want) {
		t.Errorf("marks %q, want %q", got, want)
	}
}

func testFlood(t *testing.T) {
	const flood = 100_000
	m, path := startMarker(t), filepath.Join(t.TempDir(), "log")
	appendTo(t, path, "")
	must(t, m.Follow(path))

	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var text strings.Builder

	for i := range flood {
		fmt.Fprintf(&text, "allocscope: mark %d %s\n", i, strings.Repeat("x", 180))
	}

	appendTo(t, path, text.String())
	eventually(t, "the flood has passed", func() bool { return m.Dropped() == flood-record.MaxMarks })
	marks := m.Drain()
	runtime.GC()
	runtime.ReadMemStats(&after)
	if len(marks) != record.MaxMarks || !strings.HasPrefix(marks[record.MaxMarks-1].Text, fmt.Sprintf("mark %d ",
		record.MaxMarks-1)) {
		t.Errorf("%d marks", len(marks))
	}

	if kept := int64(after.HeapAlloc) - int64(before.HeapAlloc); kept > 8<<20 {
		t.Errorf("%d bytes are kept", kept)
	}

	if m.Add("one more", time.Now()) || len(m.Drain()) != 0 || m.Dropped() != flood-record.MaxMarks+1 {
		t.Error("taking the marks makes room for others")
	}
}

// appendTo writes to the end of a file, which it makes if it is not there.
func appendTo(t *testing.T, path, text string) {
	t.Helper()
	file := tracertest.Must(os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600))(t)
	defer file.Close()
	if _, err := file.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

// aMarker is a client that shares nothing with ours: it sends the bytes given and prints the
// answer. "silent" says nothing until its input ends.
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
	command := exec.Command("/usr/bin/python3", "-c", aMarker, itoa(pid),
		hex.EncodeToString([]byte(text)))
	if text == "silent" {
		command.Args[4] = text
	}

	command.SysProcAttr = as(uid)
	return command
}

// as makes a command run as a user.
func as(uid uint32) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: nobody}}
}

// markAs sends a mark as a user and returns the answer.
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
	command.SysProcAttr = as(uid)
	return tracertest.StartCommand(t, command).PID()
}

func testUsers(t *testing.T) {
	const owner, sudoer, stranger = nobody, 12345, 12346
	m, began, pid := startMarker(t), time.Now(), sleeper(t, owner)
	must(t, m.Listen(pid, sudoer))

	for uid, may := range map[uint32]bool{0: true, owner: true, sudoer: true, stranger: false} {
		text := fmt.Sprintf("epoch of %d", uid)
		answer := markAs(t, uid, pid, text)
		if may && answer != "ok" || !may && !strings.Contains(answer,
			"user 12346 may not mark this process") {
			t.Errorf("user %d: %q", uid, answer)
		}

		if may {
			mustMark(t, m, began, text)
		}
	}

	if marks := m.Drain(); len(marks) > 0 {
		t.Errorf("marked: %v", marks)
	}
}

func testSilentClients(t *testing.T) {
	m, began, pid := NewReceiver(), time.Now(), sleeper(t, nobody)
	must(t, m.Listen(pid))
	for range maxConnections - 1 {
		tracertest.StartCommand(t, markerOf(nobody, pid, "silent")).Await("connected")
	}

	for range 2 * maxConnections { // those are not even listened to
		tracertest.StartCommand(t, markerOf(12345, pid, "silent")).Await("connected")
	}

	if answer := markAs(t, nobody, pid, "epoch"); answer != "ok" {
		t.Errorf("beside silent clients: %q", answer)
	}

	mustMark(t, m, began, "epoch")
	mustReturn(t, m.Close)
}

func testSecondTrace(t *testing.T) {
	first, second, began, pid := NewReceiver(), startMarker(t), time.Now(), sleeper(t, 0)
	must(t, first.Listen(pid))
	if err := second.Listen(pid); !errors.Is(err, errOtherTrace) || !strings.Contains(err.Error(),
		"another trace") {
		t.Errorf("second trace: %v", err)
	}

	if answer := markAs(t, 0, pid, "epoch"); answer != "ok" {
		t.Errorf("%q", answer)
	}

	mustMark(t, first, began, "epoch")
	first.Close()
	must(t, second.Listen(pid))
	if len(second.Drain()) > 0 {
		t.Error("a mark has come to the second trace")
	}
}

// Any user can take the abstract socket of a process before its trace does.
func testSquatter(t *testing.T) {
	pid := sleeper(t, nobody)
	startImpostor(t, 12345, pid, "ok")
	m, began := startMarker(t), time.Now()
	must(t, m.Listen(pid))
	must(t, send(pid, "epoch"))

	mustMark(t, m, began, "epoch")
}

// strangers fill the queue of connections to the abstract socket, and keep it full.
const strangers = `
import resource, socket, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (16384, 16384))
kept, said = [], False
while True:
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    s.setblocking(False)
    try:
        s.connect("\0allocscope/" + sys.argv[1])
        kept.append(s)
    except BlockingIOError:
        s.close()
        if not said: print("full", flush=True)
        said = True
    if len(kept) > 16000: del kept[:8000]
`

func testFloodOfStrangers(t *testing.T) {
	m, pid := startMarker(t), sleeper(t, nobody)
	must(t, m.Listen(pid))
	flood := exec.Command("/usr/bin/python3", "-c", strangers, itoa(pid))
	flood.SysProcAttr = as(12345)
	tracertest.StartCommand(t, flood).Await("full")

	began := time.Now()
	var want []string
	for i := range 20 {
		want = append(want, fmt.Sprintf("epoch %d", i))
		must(t, send(pid, want[i]))
	}
	mustMark(t, m, began, want...)
}

// The kernel keeps users from each other's sockets, and all from sockets that may not be root's
// alone.
func TestSockets(t *testing.T) {
	tracertest.NeedsRoot(t)
	t.Run("stranger", func(t *testing.T) {
		m, pid := startMarker(t), sleeper(t, nobody)
		must(t, m.Listen(pid))
		address := tracertest.Must(socketOf(pid, nobody))(t)
		const client = `
import socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
try: s.connect(sys.argv[1])
except OSError as e: print(e.strerror)
else: print("connected")
`
		for uid, want := range map[uint32]string{
			0: "connected", nobody: "connected", 12345: "Permission denied",
		} {
			command := exec.Command("/usr/bin/python3", "-c", client, address.Name)
			command.SysProcAttr = as(uid)
			out, err := command.CombinedOutput()
			if got := strings.TrimSpace(string(out)); err != nil || got != want {
				t.Errorf("user %d: %q, %v, want %q", uid, got, err, want)
			}
		}

		m.Close()
		if _, err := os.Lstat(address.Name); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("after the trace: %v", err)
		}
	})
}

// A trace that was killed leaves its socket behind.
func testKilledTrace(t *testing.T) {
	pid := sleeper(t, nobody)
	killed, second, began := NewReceiver(), startMarker(t), time.Now()
	must(t, killed.Listen(pid))
	for _, l := range killed.listeners {
		l.SetUnlinkOnClose(false)
	}
	closeAll(killed.listeners)

	must(t, second.Listen(pid))
	must(t, send(pid, "epoch"))
	mustMark(t, second, began, "epoch")
}
