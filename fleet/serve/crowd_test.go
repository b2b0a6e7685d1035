package serve

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

func TestCrowd(t *testing.T) {
	t.Run("connections of a stranger", testStranger)
	t.Run("health", testHealthAlone)
	t.Run("who has most", testMost)
	t.Run("a loop of requests", testLoop)
	t.Run("peers", testPeers)
}

// stranger opens connections from many addresses and keeps them, some after an answer and some in the
// middle of a header. It opens another one for each that is closed.
const stranger = `
import select, socket, sys
port, n = int(sys.argv[1]), int(sys.argv[2])
def connect(i):
    s = socket.socket()
    s.bind(("127.0.0.%d" % (i + 2), 0))
    s.settimeout(0.2)
    s.connect(("127.0.0.1", port))
    if i % 2: s.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
    else: s.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n")
    return s
open = {}
for i in range(n):
    try:
        s = connect(i); open[s] = i
        if i % 2: s.recv(4096)
    except OSError: pass
print("ready", flush=True)
while True:
    for s in select.select(list(open), [], [])[0]:
        try: more = s.recv(4096)
        except OSError: more = b""
        if not more:
            i = open.pop(s); s.close()
            try: open[connect(i)] = i
            except OSError: pass
`

// startStranger runs a program of Python as nobody.
func startStranger(t *testing.T, program string, arguments ...string) {
	t.Helper()
	tracertest.NeedsRoot(t)
	command := exec.Command("/usr/bin/python3", append([]string{"-c", program}, arguments...)...)
	command.SysProcAttr = &syscall.SysProcAttr{
		Credential: &syscall.Credential{Uid: nobody, Gid: nobody},
	}

	tracertest.StartCommand(t, command).Await("ready")
}

// patientLimits close no connection for its age.
func patientLimits() limits {
	l := defaultLimits
	l.header, l.read, l.idle = time.Hour, time.Hour, time.Hour
	l.connections = 16
	return l
}

// asksOn asks for a page on an open connection, and fails the test if there is no answer.
func asksOn(t *testing.T, conn net.Conn, path string) {
	t.Helper()
	_, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path)
	err = errors.Join(err, conn.SetReadDeadline(time.Now().Add(time.Minute)))
	tracertest.NoError(t, err)

	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	if _, err = io.Copy(io.Discard, response.Body); err != nil || response.StatusCode != 200 {
		t.Errorf("%s: %d, %v", path, response.StatusCode, err)
	}
}

// A stranger has more connections than there are, and takes none away from others.
func testStranger(t *testing.T) {
	s := start(t, Options{Listen: "127.0.0.1:0"}, &agent{}, patientLimits())
	kept := connect(t, s)
	asksOn(t, kept, "/metrics")
	startStranger(t, stranger, fmt.Sprint(s.Address().Port), "32")

	asksOn(t, kept, "/metrics")
	asksOn(t, connect(t, s), "/metrics")
}

// The state of the other address does not show on the one of health, which has nothing else.
func testHealthAlone(t *testing.T) {
	s := start(t, Options{Listen: "127.0.0.1:0", Health: "127.0.0.1:0"}, &agent{}, patientLimits())
	startStranger(t, stranger, fmt.Sprint(s.Address().Port), "32")

	for path, want := range map[string]int{
		"/healthz": 200, "/readyz": 200, "/metrics": 404, "/trace": 404, "/status": 404,
	} {
		response := tracertest.Must(http.Get("http://" + s.health.String() + path))(t)
		_ = response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("%s: %d, want %d", path, response.StatusCode, want)
		}
	}
}

// Of the peer who has most, the connection goes that is idle, or else the oldest one.
func testMost(t *testing.T) {
	c := newCrowd(nil, limits{connections: 4}, nil)
	add := func(name string) (m, surplus *member) {
		ours, theirs := net.Pipe()
		t.Cleanup(func() { _ = errors.Join(ours.Close(), theirs.Close()) })
		return c.add(ours, name)
	}

	first, _ := add("a")
	second, _ := add("a")
	_, _ = add("a")
	other, surplus := add("b")
	if surplus != nil {
		t.Error("there is no room for four")
	}
	if _, surplus = add("b"); surplus != first {
		t.Errorf("the surplus is of %+v", surplus)
	}
	_ = surplus.Close()

	c.noteState(other, http.StateIdle)
	if _, surplus = add("b"); surplus != other {
		t.Errorf("the surplus is of %+v, not the idle one", surplus)
	}
	_ = surplus.Close()

	if _, surplus = add("c"); surplus != second {
		t.Errorf("the surplus is of %+v, not the oldest one", surplus)
	}
}

// The requests of a loop wait, and the requests of others do not.
func testLoop(t *testing.T) {
	slow := patientLimits()
	slow.pause = time.Hour
	s := start(t, Options{Listen: "127.0.0.1:0"}, &agent{}, slow)
	conn := connect(t, s)
	for range maxBurst {
		asksOn(t, conn, "/healthz")
	}

	_, err := io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
	err = errors.Join(err, conn.SetReadDeadline(time.Now().Add(100*time.Millisecond)))
	tracertest.NoError(t, err)
	if _, err := conn.Read(make([]byte, 1)); !os.IsTimeout(err) {
		t.Errorf("a request more is answered: %v", err)
	}
	startStranger(t, `
import sys, urllib.request
print("ready" if urllib.request.urlopen(sys.argv[1]).read() == b"ok\n" else "refused", flush=True)
`, "http://"+s.Address().String()+"/healthz")
}

// On this machine a peer is a user, whatever the address.
func testPeers(t *testing.T) {
	for _, at := range []string{"127.0.0.1:0", "[::1]:0", "[::]:0"} {
		listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", at)
		tracertest.NoError(t, err)
		defer listener.Close()
		port := fmt.Sprint(listener.Addr().(*net.TCPAddr).Port)
		host := map[bool]string{true: "::1", false: "127.0.0.1"}[at == "[::1]:0"]
		mustCome := func(want string) net.Conn {
			t.Helper()
			conn := tracertest.Must(listener.Accept())(t)
			t.Cleanup(func() { _ = conn.Close() })
			if got := peerOf(conn); got != want {
				t.Errorf("at %s the peer is %q, want %q", at, got, want)
			}
			return conn
		}

		own := tracertest.Must(net.Dial("tcp", net.JoinHostPort(host, port)))(t)
		served := mustCome(fmt.Sprintf("user %d", os.Geteuid()))
		startStranger(t, `
import socket, sys, time
s = socket.create_connection((sys.argv[1], int(sys.argv[2])))
print("ready", flush=True)
time.sleep(1000)
`, host, port)
		mustCome("user 65534")

		// A closed socket has no user any more.
		_ = own.Close()
		if _, err := served.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		if got := peerOf(served); got != "loopback" {
			t.Errorf("at %s the peer of a closed connection is %q", at, got)
		}
	}
}
