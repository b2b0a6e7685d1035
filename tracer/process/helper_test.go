package process

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

// openPIDVariable makes the test binary open the process that it names and print the error.
const openPIDVariable = "ALLOCSCOPE_TEST_OPEN"

func TestMain(m *testing.M) {
	if pid := os.Getenv(openPIDVariable); pid != "" {
		printOpenError(pid)
		return
	}

	tracertest.Main(m)
}

func printOpenError(text string) {
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

// must returns the value of a call that may not fail.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func open(t testing.TB, pid int) *Process {
	t.Helper()
	p := tracertest.Must(Open(pid))(t)
	t.Cleanup(func() { p.Close() })
	return p
}

func openSelf(t testing.TB) *Process { return open(t, os.Getpid()) }

// startEcho starts a command that repeats its input, as cat does. The dynamic linker has finished
// when startEcho returns, which is not so when exec returns. The command ends with the test.
func startEcho(t testing.TB, command *exec.Cmd) *Process {
	t.Helper()
	target := tracertest.StartCommand(t, command)
	target.Say("ready")
	target.Await("ready")
	return open(t, target.PID())
}

// startStopped is a stopped process, so that every reader sees the same. It has touched 40,000
// pages.
func startStopped(t *testing.T) *Process {
	t.Helper()
	program := tracertest.Build(t, "leak.c", "-pthread")
	return stopAfterRun(t, program, "4", "10000", "4096", "0")
}

// startShrunk is a stopped process that had more memory than it has.
func startShrunk(t *testing.T) *Process {
	t.Helper()
	file := filepath.Join(t.TempDir(), "file")
	tracertest.NoError(t, os.WriteFile(file, make([]byte, 16<<12), 0o600))
	p := stopAfterRun(t, tracertest.Build(t, "mappings.c", "-fno-omit-frame-pointer"), file)

	if fields := parseFields(readFile(t, p.path("status"))); fields["VmHWM"] == fields["VmRSS"] {
		t.Fatalf("it has not shrunk: the test is wrong: %v", fields)
	}
	return p
}

// hostileName looks like fields of /proc/PID/stat.
const hostileName = "x) Z 1 (2 3"

// stopAfterRun runs a copy of a program of that name up to "done".
func stopAfterRun(t *testing.T, program string, arguments ...string) *Process {
	t.Helper()
	path := filepath.Join(t.TempDir(), hostileName)
	copyFile(t, program, path)

	target := tracertest.Start(t, path, arguments...)
	target.Await("ready")
	target.Say("go")
	target.Await("done")
	stop(t, target.PID())
	return open(t, target.PID())
}

// stop stops a child.
func stop(t testing.TB, pid int) {
	t.Helper()
	tracertest.NoError(t, unix.Kill(pid, unix.SIGSTOP))
	awaitState(t, pid, unix.WSTOPPED)
}

// kill ends a process and waits for it; it stays a zombie.
func kill(t testing.TB, p *Process) {
	t.Helper()
	tracertest.NoError(t, unix.Kill(p.PID, unix.SIGKILL))
	<-p.Exited(nil)
}

// awaitState waits for a child to stop (unix.WSTOPPED) or to end (unix.WEXITED), and leaves it so.
func awaitState(t testing.TB, pid, state int) {
	t.Helper()
	tracertest.NoError(t, unix.Waitid(unix.P_PID, pid, nil, state|unix.WNOWAIT, nil))
}

func readFile(t testing.TB, path string) []byte {
	t.Helper()
	return tracertest.Must(os.ReadFile(path))(t)
}

func readAll(t testing.TB, r io.Reader) []byte {
	t.Helper()
	return tracertest.Must(io.ReadAll(r))(t)
}

// copyFile writes a program to the disk, so that its pages are clean.
func copyFile(t testing.TB, from, to string) {
	t.Helper()
	f := tracertest.Must(os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755))(t)
	_, err := f.Write(readFile(t, from))
	tracertest.NoError(t, errors.Join(err, f.Sync(), f.Close()))
}

// ps returns columns of ps.
func ps(t *testing.T, pid int, columns string) []int64 {
	t.Helper()
	command := exec.Command("ps", "-o", columns, "--no-headers", "-p", fmt.Sprint(pid))
	out, err := command.Output()
	if err != nil {
		t.Fatalf("ps: %v (apt-get install procps)", err)
	}

	var values []int64
	for _, field := range strings.Fields(string(out)) {
		var n int64
		if _, err := fmt.Sscan(field, &n); err != nil {
			t.Fatalf("ps prints %q", out)
		}
		values = append(values, n)
	}
	return values
}

// A vma is one mapping of /proc/PID/smaps.
type vma struct {
	start, end, inode uint64
	fields            map[string]string
}

// bytes sums fields.
func (v vma) bytes(names ...string) (sum uint64) {
	for _, name := range names {
		sum += uint64(kibibytes(v.fields, name))
	}
	return sum
}

// readSmaps reads /proc/PID/smaps.
func readSmaps(t testing.TB, pid int) (all []vma) {
	t.Helper()
	for line := range strings.Lines(string(readFile(t, fmt.Sprintf("/proc/%d/smaps", pid)))) {
		v := vma{fields: make(map[string]string)}
		var skip string
		n, _ := fmt.Sscanf(line, "%x-%x %s %s %s %d", &v.start, &v.end, &skip, &skip, &skip, &v.inode)
		if n == 6 {
			all = append(all, v)
		} else if name, value, ok := strings.Cut(line, ":"); ok {
			all[len(all)-1].fields[name] = strings.TrimSpace(value)
		}
	}
	return all
}

// sumSmaps sums a field over all mappings, in bytes.
func sumSmaps(all []vma, names ...string) (sum int64) {
	for _, v := range all {
		sum += int64(v.bytes(names...))
	}
	return sum
}

func addressOf(memory []byte) uint64 { return uint64(uintptr(unsafe.Pointer(&memory[0]))) }

// readAtRest reads data that other processes change, and compares with it, until it is the same
// before and after the comparison.
func readAtRest[T comparable](t *testing.T, read func() T, compare func()) T {
	t.Helper()
	var before, after T
	for range 1000 {
		before = read()
		compare()
		if after = read(); before == after {
			return after
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatalf("%v before a comparison and %v after it, every time", before, after)
	return after
}
