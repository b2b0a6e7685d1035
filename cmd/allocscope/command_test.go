package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

// binary is the command, built once for all tests, where every user can execute it.
var binary string

func TestMain(m *testing.M) { os.Exit(buildAndRun(m)) }

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "allocscope-command-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	defer tracertest.Cleanup()
	binary = filepath.Join(dir, "allocscope")
	build := exec.Command("go", "build", "-ldflags", "-w -X main.version=v1.2.3-test", "-o", binary,
		".")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n%s", build, err, out)
		return 1
	}

	if err := os.Chmod(dir, 0o755); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}

	return m.Run()
}

// guard is how long a test waits for an event that must happen, and how long a command lives; it is
// reached only where something hangs, however busy the machine is.
const guard = 10 * time.Minute

// command is a running allocscope.
type command struct {
	*exec.Cmd
	t              *testing.T
	stdout, stderr output
	ended          chan struct{}
}

// output collects the output of a program.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(data []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(data)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// allocscope prepares a call of the command, as if without sudo.
func allocscope(t *testing.T, arguments ...string) *exec.Cmd {
	t.Helper()
	tracertest.NeedsRoot(t)
	noDetails := func(flag string) bool {
		return slices.Contains([]string{"--json", "--quiet", "-q", "--help"}, flag)
	}
	if arguments[0] == "trace" && !slices.ContainsFunc(arguments, noDetails) {
		arguments = append(arguments, "--details") // the tests compare the numbers behind the result
	}
	ctx, cancel := context.WithTimeout(context.Background(), guard)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, binary, arguments...)
	cmd.Dir = filepath.Dir(binary)
	cmd.Env = slices.DeleteFunc(os.Environ(),
		func(variable string) bool { return strings.HasPrefix(variable, "SUDO_") })

	return cmd
}

// begin starts it and collects its output to descriptors that the caller has not connected.
func begin(t *testing.T, cmd *exec.Cmd) *command {
	t.Helper()
	c := &command{Cmd: cmd, t: t, ended: make(chan struct{})}
	if cmd.Stdout == nil {
		cmd.Stdout = &c.stdout
	}

	if cmd.Stderr == nil {
		cmd.Stderr = &c.stderr
	}

	must(t, cmd.Start())

	go func() {
		defer close(c.ended)
		_ = cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-c.ended
	})

	return c
}

// call calls allocscope and waits for its end.
func call(t *testing.T, arguments ...string) *command {
	t.Helper()
	c := begin(t, allocscope(t, arguments...))
	c.wait()
	return c
}

// wait waits for the end and returns the exit status; -1 for a signal.
func (c *command) wait() int {
	<-c.ended
	return c.ProcessState.ExitCode()
}

// mustEnd waits for the end and checks that exit status.
func (c *command) mustEnd(status int) {
	c.t.Helper()
	if got := c.wait(); got != status {
		c.t.Fatalf("%s: %v, want exit status %d; stderr:\n%s", c.Cmd, c.ProcessState, status,
			c.stderr.String())
	}
}

// mustEndSaying also checks for words on standard error.
func (c *command) mustEndSaying(status int, words ...string) {
	c.t.Helper()
	c.mustEnd(status)
	mustSay(c.t, "stderr", c.stderr.String(), words...)
}

// mustPrint waits for a good end, and checks for words on standard output.
func (c *command) mustPrint(words ...string) {
	c.t.Helper()
	c.mustEnd(0)
	mustSay(c.t, "stdout", c.stdout.String(), words...)
}

// interrupt is one Ctrl-C, after which allocscope must write its files and end well.
func (c *command) interrupt() {
	c.t.Helper()
	c.signal(syscall.SIGINT)
	c.mustEnd(0)
}

func (c *command) signal(s syscall.Signal) {
	c.t.Helper()
	if err := c.Process.Signal(s); err != nil {
		c.t.Fatalf("send %s to allocscope: %v", s, err)
	}
}

// await waits until something is true, and fails if allocscope ends before.
func (c *command) await(what string, isTrue func() bool) {
	c.t.Helper()
	for deadline := time.Now().Add(guard); !isTrue(); time.Sleep(2 * time.Millisecond) {
		select {
		case <-c.ended:
			if isTrue() {
				return
			}
			c.t.Fatalf("allocscope ended before %s: %v; stderr:\n%s", what, c.ProcessState,
				c.stderr.String())
		default:
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("waited in vain until %s; stderr:\n%s", what, c.stderr.String())
		}
	}
}

// awaitLine waits until allocscope has said something on standard error.
func (c *command) awaitLine(words string) {
	c.t.Helper()
	c.await("it says "+words, func() bool { return strings.Contains(c.stderr.String(), words) })
}

// awaitFile waits until a file of a folder has been written.
func (c *command) awaitFile(dir, name string) {
	c.t.Helper()
	c.await(name+" is there", func() bool { return exists(filepath.Join(dir, name)) })
}

// awaitSnapshots waits for so many snapshots more than there are.
func (c *command) awaitSnapshots(dir string, more int) {
	c.t.Helper()
	last := -1 // of a long trace some are left out again
	for _, file := range snapshotFiles(c.t, dir) {
		number, err := strconv.Atoi(strings.TrimSuffix(filepath.Base(file), ".pb.gz"))
		if err != nil {
			c.t.Fatal(err)
		}
		last = max(last, number)
	}
	c.awaitFile(dir, fmt.Sprintf("snapshots/%03d.pb.gz", last+more))
}

func writeFile(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	must(t, os.WriteFile(path, []byte(text), mode))
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// snapshotFiles are the paths of the snapshots in a folder, oldest first.
func snapshotFiles(t *testing.T, dir string) []string {
	t.Helper()
	files := tracertest.Must(filepath.Glob(filepath.Join(dir, "snapshots", "*.pb.gz")))(t)
	slices.Sort(files)
	return files
}

// newFolder is where a trace may write; its parent is open to everybody.
func newFolder(t *testing.T) string {
	t.Helper()
	parent := t.TempDir()
	must(t, os.Chmod(parent, 0o777))
	return filepath.Join(parent, "out")
}

// traceArguments trace every allocation, whatever it costs, without snapshots but those at the
// start, the baseline and the end. Flags that are given replace these.
func traceArguments(pid int, dir string, flags ...string) []string {
	return append([]string{
		"trace", "--pid", fmt.Sprint(pid), "--interval", "1", "--overhead",
		"off", "--snapshot-every", "1h", "--output", dir,
	}, flags...)
}

// tracing starts a trace with traceArguments and waits until it counts.
func tracing(t *testing.T, target *tracertest.Target, flags ...string) (c *command, dir string) {
	t.Helper()
	dir = newFolder(t)
	c = begin(t, allocscope(t, traceArguments(target.PID(), dir, flags...)...))
	c.awaitFile(dir, "snapshots/000.pb.gz")
	return c, dir
}

// startSteps starts the target that does as commanded.
func startSteps(t *testing.T) *tracertest.Target {
	t.Helper()
	return ready(tracertest.Start(t, tracertest.Build(t, "steps.c")))
}

func ready(target *tracertest.Target) *tracertest.Target {
	target.Await("ready")
	return target
}

// do sends an order to the target and waits until it is done.
func do(target *tracertest.Target, format string, arguments ...any) {
	target.Say(fmt.Sprintf(format, arguments...))
	target.Await("done")
}

var must = tracertest.NoError

var mustSay = tracertest.MustSay

var eventually = tracertest.Eventually

func itoa(n int) string { return strconv.Itoa(n) }

// statusOf is a line of /proc/PID/status, in the kernel's words.
func statusOf(t *testing.T, pid int, name string) string {
	t.Helper()
	for line := range strings.Lines(readFile(t, fmt.Sprintf("/proc/%d/status", pid))) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}

	t.Fatalf("/proc/%d/status has no %s", pid, name)
	return ""
}

// rssOf is the resident memory of a process in bytes.
func rssOf(t *testing.T, pid int) int64 {
	t.Helper()
	kib, err := strconv.ParseInt(strings.TrimSuffix(statusOf(t, pid, "VmRSS"), " kB"), 10, 64)
	must(t, err)
	return kib << 10
}

// awaitState waits until a process is in a state as ps names it.
func awaitState(t *testing.T, pid int, state string) {
	t.Helper()
	eventually(t, fmt.Sprintf("process %d is in state %s", pid, state), func() bool {
		return strings.HasPrefix(statusOf(t, pid, "State"), state)
	})
}
