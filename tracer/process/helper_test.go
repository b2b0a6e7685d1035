package process

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

// openOnly makes the test binary open the process that it names and print the error.
const openOnly = "ALLOCSCOPE_TEST_OPEN"

func TestMain(m *testing.M) {
	if pid := os.Getenv(openOnly); pid != "" {
		printOpen(pid)
		return
	}
	code := m.Run()
	tracertest.Cleanup()
	os.Exit(code)
}

func printOpen(text string) {
	var pid int
	if _, err := fmt.Sscan(text, &pid); err != nil {
		panic(err)
	}
	p, err := Open(pid)
	if err == nil {
		p.Close()
	}
	fmt.Println(err)
}

// startEcho starts a command that repeats its input, as cat does; it ends with the test. What it runs is loaded then, which
// it is not yet when exec returns.
func startEcho(t testing.TB, command *exec.Cmd) (pid int) {
	t.Helper()
	target := tracertest.StartCommand(t, command)
	target.Say("ready")
	target.Await("ready")
	return target.PID()
}

func open(t testing.TB, pid int) *Process {
	t.Helper()
	p, err := Open(pid)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

func openSelf(t testing.TB) *Process { return open(t, os.Getpid()) }

// awaitState waits for a child to stop (unix.WSTOPPED) or to end (unix.WEXITED), and leaves it so.
func awaitState(t testing.TB, pid, what int) {
	t.Helper()
	if err := unix.Waitid(unix.P_PID, pid, nil, what|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
}

// stop stops a child.
func stop(t testing.TB, pid int) {
	t.Helper()
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	awaitState(t, pid, unix.WSTOPPED)
}

func readFile(t testing.TB, path string) []byte {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func readAll(t testing.TB, r io.Reader) []byte {
	t.Helper()
	raw, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// copyFile writes a program to the disk, so that its pages are clean.
func copyFile(t testing.TB, from, to string) {
	t.Helper()
	f, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Write(readFile(t, from))
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

func addressOf(memory []byte) uint64 { return uint64(uintptr(unsafe.Pointer(&memory[0]))) }

// atRest looks at what others change until it is the same before and after the look, and returns it.
func atRest[T comparable](t *testing.T, read func() T, look func()) T {
	t.Helper()
	var before, after T
	for range 1000 {
		before = read()
		look()
		if after = read(); before == after {
			return after
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatalf("%v before a look and %v after it, every time", before, after)
	return after
}
