package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/allocscope/allocscope/test/harness"
	"github.com/allocscope/allocscope/test/meter"
)

// exitTimeout is the time for a program to exit, and for its tool to write its report.
const exitTimeout = 5 * time.Minute

// A stretch has the data that a program reports of some steps.
type stretch struct {
	steps        int
	seconds, cpu float64
	leaked       int64 // bytes that the leak kept in this stretch
	kept         int64 // bytes that the leak has kept since the start
	rss          int64 // bytes, at its end
}

func cpuOfStep(s stretch) float64  { return s.cpu / float64(s.steps) }
func wallOfStep(s stretch) float64 { return s.seconds / float64(s.steps) }

// A trainer is a program that runs when it is asked to; see testdata/peers/peer.py.
type trainer struct {
	command *exec.Cmd
	pid     int // its own; a tool that started it has the command's
	input   io.WriteCloser
	output  *bufio.Scanner
	kept    int64
}

// startTrainer starts a program and waits until its caches are full. Its stderr goes to log. The
// end of ctx kills it and all processes that it started.
func startTrainer(ctx context.Context, argv []string, log *os.File) (*trainer, error) {
	t := &trainer{command: exec.CommandContext(ctx, argv[0], argv[1:]...)}
	harness.OwnGroup(t.command)
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

// await returns the rest of the next line with a certain beginning. Tools print lines of their own
// in between.
func (t *trainer) await(beginning string) (string, error) {
	for t.output.Scan() {
		if rest, ok := strings.CutPrefix(t.output.Text(), beginning); ok {
			return rest, nil
		}
	}
	return "", fmt.Errorf("the program ended before it printed %q", strings.TrimSpace(beginning))
}

// work runs steps for some seconds.
func (t *trainer) work(seconds int) (stretch, error) {
	var s stretch
	fmt.Fprintln(t.input, seconds)
	answer, err := t.await("steps ")
	if err == nil {
		_, err = fmt.Sscanf(answer, "%d seconds %f cpu %f planted %d",
			&s.steps, &s.seconds, &s.cpu, &s.kept)
	}
	if err != nil {
		return s, err
	}

	s.rss = meter.RSS(t.pid)
	s.leaked, t.kept = s.kept-t.kept, s.kept
	return s, nil
}

// leave ends it, by a return from its main function or by the C library's exit, and waits until its
// tool has written its report.
func (t *trainer) leave(returns bool) error {
	killer := time.AfterFunc(exitTimeout, func() { _ = t.command.Cancel() })
	defer killer.Stop()

	if !returns {
		fmt.Fprintln(t.input, "exit")
	}
	t.input.Close()
	for t.output.Scan() { // tools print lines of their own
	}

	return t.command.Wait()
}
