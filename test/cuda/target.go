package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/allocscope/allocscope/test/harness"
)

// figures are the numbers that a program prints, by name: testdata/gpu/cases/case.py.
type figures map[string]int64

// A target is a program that runs in the Debian folder.
type target struct {
	pid     int
	command *exec.Cmd
	lines   chan string
}

// start starts a program that saves its snapshots to a path, and waits until it is ready.
func start(ctx context.Context, d *harness.Debian, program, snapshot string) (*target, error) {
	inside := d.Inside("python3", program, "--empty", "--snapshot", snapshot)
	command := exec.CommandContext(ctx, inside[0], inside[1:]...)
	harness.OwnGroup(command)
	out, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	command.Stderr = command.Stdout
	if err := command.Start(); err != nil {
		return nil, err
	}

	t := &target{command: command, lines: make(chan string)}
	go t.readLines(out)
	line, err := t.line(2 * time.Minute)
	if err == nil {
		_, err = fmt.Sscanf(line, "ready %d", &t.pid)
	}
	if err != nil {
		t.end()
		return nil, fmt.Errorf("start %s: %w; it prints %q", program, err, line)
	}
	return t, nil
}

func (t *target) readLines(out io.Reader) {
	defer close(t.lines)
	scanner := bufio.NewScanner(out)
	for scanner.Scan() {
		t.lines <- scanner.Text()
	}
}

// line returns the next line of the program.
func (t *target) line(timeout time.Duration) (string, error) {
	select {
	case line, ok := <-t.lines:
		if !ok {
			return "", errors.New("the program has ended")
		}
		return line, nil
	case <-time.After(timeout):
		return "", errors.New("the program prints nothing")
	}
}

// signal sends SIGUSR1, and returns the figures that the program then prints. The first makes it hold
// still, the second ends that and empties the cache.
func (t *target) signal() (figures, error) {
	if err := syscall.Kill(t.pid, syscall.SIGUSR1); err != nil {
		return nil, err
	}
	line, err := t.line(time.Minute)
	if err != nil {
		return nil, err
	}

	f := make(figures)
	fields := strings.Fields(line)
	for i := 0; i+1 < len(fields); i += 2 {
		if f[fields[i]], err = strconv.ParseInt(fields[i+1], 10, 64); err != nil {
			return nil, fmt.Errorf("the program prints %q", line)
		}
	}
	return f, nil
}

// end kills the program.
func (t *target) end() {
	_ = t.command.Cancel()
	go func() {
		for range t.lines {
		}
	}()
	_ = t.command.Wait()
}
