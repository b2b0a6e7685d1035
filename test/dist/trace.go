package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth/verdict"
	"github.com/allocscope/allocscope/test/harness"
)

// A leaker is a running program that prints a line for each MiB that it has leaked.
type leaker struct {
	command *exec.Cmd
	leaked  atomic.Int64 // MiB
	ended   chan struct{}
}

// startLeaker starts a program, and returns when it leaks.
func startLeaker(command *exec.Cmd) (*leaker, error) {
	p := &leaker{command: command, ended: make(chan struct{})}
	stdout, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, err
	}

	lines := bufio.NewScanner(stdout)
	if !lines.Scan() {
		return nil, errors.Join(errors.New("the program that leaks has ended"), command.Wait())
	}
	go func() {
		defer close(p.ended)
		for lines.Scan() {
			p.leaked.Add(1)
		}
	}()
	return p, nil
}

func (p *leaker) end() {
	_ = syscall.Kill(-p.command.Process.Pid, syscall.SIGKILL)
	<-p.ended
	_ = p.command.Wait() // its end is the one that was asked for
}

// trace traces a program that leaks, and returns the messages. The folder in the root gets a folder
// `trace`, which allocscope sees as output.
func (c testCase) trace(
	ctx context.Context, copied *root, l leak, folder, output string,
) (string, error) {
	command := copied.command(ctx, l.command, false)
	command.Stderr = copied.log
	p, err := startLeaker(command)
	if err != nil {
		return "", err
	}
	defer p.end()

	leaked, began := p.leaked.Load(), time.Now()
	code := fmt.Sprintf("%s trace %d --duration %s -o %s", c.program, command.Process.Pid,
		traceTime, output)
	if err := copied.run(ctx, code, c.form == "image"); err != nil {
		return "", err
	}

	took := time.Since(began).Minutes()
	truth := float64(p.leaked.Load()-leaked) / took

	s, err := harness.Summary(filepath.Join(copied.merged, folder, "trace"))
	if err != nil {
		return "", err
	}

	return l.check(s, truth)
}

// check compares a summary with the program's behaviour: the verdict, the line, the frames of the
// stack, and the rate, which the program counted itself (truth, in MiB a minute). In so short a
// time a leak and a warm-up look the same, so that the verdict is that it grows.
func (l leak) check(s *summary.Summary, truth float64) (said string, err error) {
	for _, source := range s.Sources {
		isOther := source.Name != "heap" && source.Name != "mapping" && source.Name != "fault"
		if source.State != summary.SourceAttached && !isOther {
			return "", fmt.Errorf("source %s: %s", source.Name, cmp.Or(source.Detail, string(source.Reason)))
		}
	}

	if s.Class != verdict.ClassGrowing {
		return "", fmt.Errorf("verdict %q", s.Class)
	}
	if len(s.Suspects) == 0 {
		return "", errors.New("no call site is named")
	}

	first := s.Suspects[0]
	place, err := l.place()
	if err != nil {
		return "", err
	}

	if want := fmt.Sprintf("%s (%s/%s)", l.function, programsFolder, place); first.Function != want {
		return "", fmt.Errorf("names %s, not %s", first.Function, want)
	}
	if err := l.checkFrames(slices.Concat(first.Path, first.Callers)); err != nil {
		return "", err
	}

	rate := *cmp.Or(s.Rate, new(float64)) / (1 << 20)
	share := *cmp.Or(first.Share, new(float64))
	if rate < truth/2 || rate > truth*2 || share < 0.5 {
		return "", fmt.Errorf("%.0f MiB/min, %.0f%% of them there; the program counts %.0f MiB/min",
			rate, share*100, truth)
	}
	return fmt.Sprintf("%s: %s (%s), %.0f MiB/min of %.0f", l.name, l.function, place, rate, truth), nil
}

// checkFrames looks for frames of Python and of native code in a stack.
func (l leak) checkFrames(frames []string) error {
	if l.python != "" && !slices.ContainsFunc(frames, func(frame string) bool {
		return strings.HasPrefix(frame, l.python+" (") && strings.Contains(frame, "/"+l.file+":")
	}) {
		return fmt.Errorf("no frame of %s in %q", l.python, frames)
	}

	for _, native := range l.native {
		if slices.ContainsFunc(frames, func(frame string) bool {
			return strings.Contains(frame, native)
		}) {
			return nil
		}
	}
	return fmt.Errorf("no frame of %q in %q", l.native, frames)
}

// place is the file that leaks, with the number of the line, which is found in it.
func (l leak) place() (string, error) {
	if l.text == "" {
		return l.file, nil
	}

	return harness.Line(filepath.Join("test/dist/programs", l.file),
		func(line string) bool { return strings.Contains(line, l.text) })
}
