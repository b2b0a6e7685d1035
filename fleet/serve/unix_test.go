package serve

import (
	"context"
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/allocscope/allocscope/export/metrics"
	"github.com/allocscope/allocscope/export/push"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/verdict"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

const nobody = 65534

func TestSocket(t *testing.T) {
	t.Run("trace", testSocketTrace)
	t.Run("status", testSocketStatus)
	t.Run("no agent", testNoAgent)
	t.Run("other users", testOtherUsers)
	t.Run("agents of other users", testOtherAgents)
}

// startSocket serves on a socket in a folder of its own.
func startSocket(t *testing.T, a *agent) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "run", "agent.sock")
	start(t, Options{Socket: path}, a, defaultLimits)
	return path
}

func testSocketTrace(t *testing.T) {
	a := &agent{}
	client := NewClient(startSocket(t, a))
	rank := 3
	got, err := client.Trace(context.Background(), Request{Job: "llm", Rank: &rank})
	if want := (Answer{42, "/var/lib/allocscope/42", 300}); err != nil || got != want {
		t.Errorf("%v, %v", got, err)
	}
	if len(a.requests) != 1 || a.requests[0].Job != "llm" || *a.requests[0].Rank != 3 {
		t.Errorf("asked for %v", a.requests)
	}

	a.refusal = errors.New("too soon\nafter the last one")
	_, err = client.Trace(context.Background(), Request{PID: 42})
	if err == nil || err.Error() != "too soon?after the last one" {
		t.Errorf("refusal: %v", err)
	}
	if _, err := client.Trace(context.Background(), Request{}); err == nil || a.asked() != 2 {
		t.Errorf("no process: %v", err)
	}
}

func testSocketStatus(t *testing.T) {
	at := time.Unix(1_700_000_000, 0).UTC()
	a := &agent{
		problem: errors.New("no space"),
		state: metrics.State{
			Version: "v1", Node: "gpu7", Watched: 2, Ignored: 1, FolderBytes: 7,
			Push: &push.Stats{Sent: 3, Waiting: 2, WaitingBytes: 9},
			Processes: []metrics.Process{{
				Job: "llm", Rank: 3, Role: growth.RoleRank, Count: 1, RSS: 100,
				PID: 4242, Command: "python3 \x1b",
				Verdict: verdict.ClassLeak, Growth: 2, GrowthLow: 1, GrowthHigh: math.NaN(),
				ToLimit: math.Inf(1), Trace: &metrics.Trace{At: at, Verdict: verdict.ClassGrowing},
			}, {Rank: growth.Unknown, RSS: growth.Unknown, Growth: math.NaN()}},
		},
	}

	s := tracertest.Must(NewClient(startSocket(t, a)).Status(context.Background()))(t)
	if s.Schema != StatusSchema || s.Unhealthy != "no space" || s.Push.Waiting != 2 ||
		s.Traces == nil || len(s.Processes) != 2 {
		t.Errorf("%+v", s)
	}
	leak, unknown := s.Processes[0], s.Processes[1]
	if leak.PID != 4242 || leak.Command != "python3 ?" || *leak.Rank != 3 || *leak.RSS != 100 ||
		*leak.PerMin != 120 || *leak.PerMinLow != 60 ||
		leak.PerMinHigh != nil || leak.ToLimitS != nil || !leak.TracedAt.Equal(at) {
		t.Errorf("%+v", leak)
	}
	if unknown.Rank != nil || unknown.RSS != nil || unknown.PerMin != nil || unknown.TracedAt != nil {
		t.Errorf("%+v", unknown)
	}
}

func testNoAgent(t *testing.T) {
	dir := t.TempDir()
	stale := filepath.Join(dir, "stale")
	tracertest.NoError(t, os.WriteFile(stale, nil, 0o600))
	for _, path := range []string{filepath.Join(dir, "none"), stale} {
		if _, err := NewClient(path).Status(context.Background()); !errors.Is(err, ErrNoAgent) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// sharedDir is a folder that other users may enter.
func sharedDir(t *testing.T) string {
	t.Helper()
	dir := tracertest.Must(os.MkdirTemp("", "allocscope-socket-"))(t)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	tracertest.NoError(t, os.Chmod(dir, 0o755))
	return dir
}

// Root asks the agent of the systemd unit, which is another user's, and nobody else who listens.
func testOtherAgents(t *testing.T) {
	tracertest.NeedsRoot(t)
	const server = `
import socket, sys
s = socket.socket(socket.AF_UNIX)
s.bind(sys.argv[1])
s.listen()
print("ready", flush=True)
answer = b'{"node": "gpu7"}'
while True:
    c, _ = s.accept()
    try: c.recv(4096); c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 16\r\n\r\n" + answer)
    except OSError: pass
    c.close()
`
	for name, test := range map[string]struct {
		owner    int
		mode     os.FileMode
		answered bool
	}{
		"in its own folder":               {nobody, 0o711, true},
		"in a folder that others write":   {nobody, 0o733, false},
		"in root's folder that all write": {0, 0o777 | os.ModeSticky, false},
	} {
		t.Run(name, func(t *testing.T) {
			folder := filepath.Join(sharedDir(t), "run")
			err := errors.Join(os.Mkdir(folder, 0o700), os.Chown(folder, test.owner, -1),
				os.Chmod(folder, test.mode))
			tracertest.NoError(t, err)
			path := filepath.Join(folder, "agent.sock")
			command := exec.Command("/usr/bin/python3", "-c", server, path)
			command.SysProcAttr = &syscall.SysProcAttr{
				Credential: &syscall.Credential{Uid: nobody, Gid: nobody},
			}
			tracertest.StartCommand(t, command).Await("ready")

			s, err := NewClient(path).Status(context.Background())
			if test.answered && (err != nil || s.Node != "gpu7") {
				t.Errorf("%v, %v", s, err)
			}
			if !test.answered &&
				(err == nil || !strings.Contains(err.Error(), "user 65534 listens there")) {
				t.Errorf("%v, %v", s, err)
			}
		})
	}
}

// The mode of the socket keeps other users out. Where it does not, the kernel says who they are.
func testOtherUsers(t *testing.T) {
	tracertest.NeedsRoot(t)
	a := &agent{}
	path := filepath.Join(sharedDir(t), "run", "agent.sock")
	start(t, Options{Socket: path}, a, defaultLimits)

	const client = `
import socket, sys
s = socket.socket(socket.AF_UNIX)
try: s.connect(sys.argv[1])
except OSError as e: sys.exit(e.strerror)
try: s.sendall(b"GET /status HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
except OSError: pass
print(s.makefile("rb").read().decode())
`
	as := func(uid uint32) string {
		command := exec.Command("/usr/bin/python3", "-c", client, path)
		command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		out, _ := command.CombinedOutput()
		return string(out)
	}
	if got := as(0); !strings.Contains(got, StatusSchema) {
		t.Errorf("root: %s", got)
	}
	if got := as(nobody); strings.TrimSpace(got) != "Permission denied" {
		t.Errorf("nobody: %s", got)
	}
	tracertest.NoError(t, os.Chmod(path, 0o666))
	if got := as(nobody); !strings.Contains(got, "403 Forbidden") ||
		!strings.Contains(got, "user 65534 may not ask the agent") {
		t.Errorf("nobody, by an open socket: %s", got)
	}
	if got := as(0); !strings.Contains(got, StatusSchema) {
		t.Errorf("root, after that: %s", got)
	}
}
