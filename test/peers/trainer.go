package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// leaving is the time that a workload has to leave, and its tool to write what it knows.
const leaving = 5 * time.Minute

// A stretch is what a workload says of some steps.
type stretch struct {
	steps        int
	seconds, cpu float64
	planted      int64 // bytes that the planted line has kept in it
	kept         int64 // bytes that it has kept in all
	rss          int64 // bytes, at its end
}

func cpuOfStep(s stretch) float64  { return s.cpu / float64(s.steps) }
func wallOfStep(s stretch) float64 { return s.seconds / float64(s.steps) }

// A trainer is a workload that waits to be told to work.
type trainer struct {
	command *exec.Cmd
	pid     int // its own, which is not that of the command where a tool has started it
	input   io.WriteCloser
	output  *bufio.Scanner
	kept    int64
}

// startTrainer starts a workload and waits until its caches are full. What it says to stderr goes to log. When ctx ends, it is killed
// with all that it has started.
func startTrainer(ctx context.Context, argv []string, log *os.File) (*trainer, error) {
	t := &trainer{command: exec.CommandContext(ctx, argv[0], argv[1:]...)}
	ownGroup(t.command)
	t.command.Stderr = log
	output, err := t.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if t.input, err = t.command.StdinPipe(); err != nil {
		return nil, err
	}
	t.output = bufio.NewScanner(output)
	if err := t.command.Start(); err != nil {
		return nil, err
	}
	answer, err := t.await("ready ")
	if err == nil {
		_, err = fmt.Sscanf(answer, "%d planted %d", &t.pid, &t.kept)
	}
	return t, err
}

// ownGroup lets the end of the context end all processes of a command.
func ownGroup(c *exec.Cmd) {
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	c.WaitDelay = 10 * time.Second
}

// await gives the rest of the next line that begins as told. Tools print lines of their own.
func (t *trainer) await(beginning string) (string, error) {
	for t.output.Scan() {
		if rest, ok := strings.CutPrefix(t.output.Text(), beginning); ok {
			return rest, nil
		}
	}
	return "", fmt.Errorf("the workload has ended before it said %q", strings.TrimSpace(beginning))
}

// work lets it work for so long.
func (t *trainer) work(seconds int) (stretch, error) {
	var s stretch
	fmt.Fprintln(t.input, seconds)
	answer, err := t.await("steps ")
	if err == nil {
		_, err = fmt.Sscanf(answer, "%d seconds %f cpu %f planted %d", &s.steps, &s.seconds, &s.cpu, &s.kept)
	}
	if err != nil {
		return s, err
	}
	s.rss = rssOf(t.pid)
	s.planted, t.kept = s.kept-t.kept, s.kept
	return s, nil
}

// leave ends it, by a return from what it does or by the C library's exit, and waits until its tool has written what it knows.
func (t *trainer) leave(returns bool) error {
	killer := time.AfterFunc(leaving, func() { _ = t.command.Cancel() })
	defer killer.Stop()
	if !returns {
		fmt.Fprintln(t.input, "exit")
	}
	t.input.Close()
	for t.output.Scan() { // tools print lines of their own
	}
	return t.command.Wait()
}
