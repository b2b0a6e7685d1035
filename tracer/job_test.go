package tracer_test

// A job of several processes that take orders.

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"

	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// A job is a shell that has started ranks, each the program of steps.c.
type job struct {
	*tracertest.Target
	ranks []*rank
}

// A rank takes its orders through a pipe in the file system.
type rank struct {
	t     testing.TB
	pid   int
	input *os.File
	lines *bufio.Scanner
}

func startJob(t testing.TB, ranks int) *job {
	t.Helper()
	dir := t.TempDir()
	script := "program=" + tracertest.Build(t, "steps.c") + "\n"
	var pipes [][2]*os.File
	for i := range ranks {
		in, out := fmt.Sprintf("%s/in%d", dir, i), fmt.Sprintf("%s/out%d", dir, i)
		pipes = append(pipes, [2]*os.File{fifo(t, in), fifo(t, out)})
		script += fmt.Sprintf("RANK=%d LOCAL_RANK=%[1]d WORLD_SIZE=%d $program <%s >%s & echo $!\n", i, ranks, in, out)
	}
	j := &job{Target: tracertest.StartCommand(t, exec.Command("/bin/sh", "-c", script+"echo ready; read line; wait"))}
	for i, line := range j.Await("ready") {
		pid, err := strconv.Atoi(line)
		if err != nil {
			t.Fatalf("%q is no PID", line)
		}
		t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
		r := &rank{t, pid, pipes[i][0], bufio.NewScanner(pipes[i][1])}
		r.await("ready")
		j.ranks = append(j.ranks, r)
	}
	return j
}

func fifo(t testing.TB, path string) *os.File {
	t.Helper()
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0) // which waits for nobody
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func (r *rank) await(word string) {
	r.t.Helper()
	if !r.lines.Scan() || r.lines.Text() != word {
		r.t.Fatalf("PID %d said %q, want %q", r.pid, r.lines.Text(), word)
	}
}

func (r *rank) order(format string, arguments ...any) {
	r.t.Helper()
	if _, err := fmt.Fprintf(r.input, format+"\n", arguments...); err != nil {
		r.t.Fatal(err)
	}
	r.await("done")
}

// traceJob traces all ranks of a job.
func traceJob(t testing.TB, j *job, interval uint64) *tracer.Session {
	t.Helper()
	s := open(t, tracer.Options{PID: j.PID(), Interval: interval, Children: true})
	for _, r := range j.ranks {
		followUntilTraced(t, s, r.pid)
	}
	return s
}
