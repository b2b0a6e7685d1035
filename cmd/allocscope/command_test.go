package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

// guard is how long a test waits for what must happen; it is reached only where something hangs.
const guard = 3 * time.Minute

// A command is a running allocscope.
type command struct {
	*exec.Cmd
	t              *testing.T
	stdout, stderr output
	ended          chan struct{}
}

// output collects what a program writes.
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
	ctx, cancel := context.WithTimeout(context.Background(), guard)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, binary, arguments...)
	cmd.Dir = filepath.Dir(binary)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(variable string) bool { return strings.HasPrefix(variable, "SUDO_") })
	return cmd
}

// begin starts it and collects what it writes to where the caller has not connected it.
func begin(t *testing.T, cmd *exec.Cmd) *command {
	t.Helper()
	c := &command{Cmd: cmd, t: t, ended: make(chan struct{})}
	if cmd.Stdout == nil {
		cmd.Stdout = &c.stdout
	}
	if cmd.Stderr == nil {
		cmd.Stderr = &c.stderr
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
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

// wait waits for the end and gives the exit status; -1 for a signal.
func (c *command) wait() int {
	<-c.ended
	return c.ProcessState.ExitCode()
}

func (c *command) hasEnded() bool {
	select {
	case <-c.ended:
		return true
	default:
		return false
	}
}

// mustEnd waits for the end and wants that exit status.
func (c *command) mustEnd(status int) {
	c.t.Helper()
	if got := c.wait(); got != status {
		c.t.Fatalf("%s: %v, want exit status %d; stderr:\n%s", c.Cmd, c.ProcessState, status, c.stderr.String())
	}
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
			c.t.Fatalf("allocscope ended before %s: %v; stderr:\n%s", what, c.ProcessState, c.stderr.String())
		default:
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("waited in vain until %s; stderr:\n%s", what, c.stderr.String())
		}
	}
}

// awaitTracing waits until allocscope counts.
func (c *command) awaitTracing() {
	c.t.Helper()
	c.await("it traces", func() bool { return strings.Contains(c.stderr.String(), "tracing ") })
}

// awaitFile waits until a file of a folder has been written.
func (c *command) awaitFile(folder, name string) {
	c.t.Helper()
	c.await(name+" is there", func() bool { return exists(filepath.Join(folder, name)) })
}

// awaitSnapshots waits for so many snapshots more than there are.
func (c *command) awaitSnapshots(folder string, more int) {
	c.t.Helper()
	last := len(snapshotFiles(c.t, folder)) - 1
	c.awaitFile(folder, fmt.Sprintf("snapshots/%03d.pb.gz", last+more))
}

// eventually waits until something is true.
func eventually(t *testing.T, what string, isTrue func() bool) {
	t.Helper()
	for deadline := time.Now().Add(guard); !isTrue(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain until %s", what)
		}
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// snapshotFiles are the paths of the snapshots in a folder, oldest first.
func snapshotFiles(t *testing.T, folder string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "snapshots", "*.pb.gz"))
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(files)
	return files
}

// newFolder is where a trace may write; its parent is open to everybody.
func newFolder(t *testing.T) string {
	t.Helper()
	parent := t.TempDir()
	if err := os.Chmod(parent, 0o777); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(parent, "out")
}

// traceArguments trace every allocation, whatever it costs, without snapshots but those at the start, the boundary and the end. Flags that are
// given replace these.
func traceArguments(pid int, folder string, flags ...string) []string {
	return append([]string{"trace", "--pid", fmt.Sprint(pid), "--interval", "1", "--overhead", "off", "--snapshot-every", "1h", "--output", folder}, flags...)
}

// tracing starts a trace with traceArguments and waits until it counts.
func tracing(t *testing.T, target *tracertest.Target, flags ...string) (c *command, folder string) {
	t.Helper()
	folder = newFolder(t)
	c = begin(t, allocscope(t, traceArguments(target.PID(), folder, flags...)...))
	c.awaitFile(folder, "snapshots/000.pb.gz")
	return c, folder
}

// startSteps starts the target that does what it is told.
func startSteps(t *testing.T) *tracertest.Target {
	t.Helper()
	return ready(tracertest.Start(t, tracertest.Build(t, "steps.c")))
}

func ready(target *tracertest.Target) *tracertest.Target {
	target.Await("ready")
	return target
}

// do tells the target what to do and waits until it is done.
func do(target *tracertest.Target, format string, arguments ...any) {
	target.Say(fmt.Sprintf(format, arguments...))
	target.Await("done")
}

// mustSay checks that a text holds all of the words.
func mustSay(t *testing.T, where, text string, words ...string) {
	t.Helper()
	for _, word := range words {
		if !strings.Contains(text, word) {
			t.Errorf("%s does not say %q:\n%s", where, word, text)
		}
	}
}
