package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// A trainer is a training loop that is traced, beside the same one that is not.
type trainer struct {
	traced, untraced *loop

	mu   sync.Mutex
	err  error         // the two differ, or one has ended
	stop chan struct{} // closed when they shall rest
	done chan struct{} // closed when they do
}

// A loop is testdata/train.py, which prints the losses of as many steps as its input says.
type loop struct {
	*exec.Cmd
	orders io.WriteCloser
	lines  *bufio.Scanner
}

func startLoop(testdata string) (*loop, error) {
	command := exec.Command("/usr/bin/python3", filepath.Join(testdata, "train.py"))
	orders, err := command.StdinPipe()
	if err != nil {
		return nil, err
	}
	output, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, err
	}
	l := &loop{command, orders, bufio.NewScanner(output)}
	if _, err := l.await("ready"); err != nil {
		return nil, err
	}
	return l, nil
}

func (l *loop) await(last string) (lines []string, err error) {
	for l.lines.Scan() {
		if l.lines.Text() == last {
			return lines, nil
		}
		lines = append(lines, l.lines.Text())
	}
	return nil, errors.Join(errors.New("the trainer has ended"), l.lines.Err())
}

func (l *loop) train(steps int) ([]string, error) {
	if _, err := fmt.Fprintln(l.orders, steps); err != nil {
		return nil, err
	}
	return l.await("done")
}

func startTrainer(testdata string) (*trainer, error) {
	traced, err := startLoop(testdata)
	if err != nil {
		return nil, err
	}
	untraced, err := startLoop(testdata)
	if err != nil {
		return nil, err
	}
	return &trainer{traced: traced, untraced: untraced}, nil
}

// pause is how long the trainer rests after some steps, so that the tracer gets CPU time.
const pause = 100 * time.Millisecond

// begin has both train until rest is called, and compares their losses.
func (t *trainer) begin() {
	t.stop, t.done = make(chan struct{}), make(chan struct{})
	go func() {
		defer close(t.done)
		for {
			select {
			case <-t.stop:
				return
			default:
			}
			if err := t.compare(); err != nil {
				t.mu.Lock()
				t.err = err
				t.mu.Unlock()
				return
			}
			time.Sleep(pause)
		}
	}()
}

func (t *trainer) compare() error {
	const steps = 5
	got, err := t.traced.train(steps)
	if err != nil {
		return err
	}
	want, err := t.untraced.train(steps)
	if err != nil {
		return err
	}
	if !slices.Equal(got, want) {
		return fmt.Errorf("the traced trainer's losses are %s, the other's %s",
			strings.Join(got, " "), strings.Join(want, " "))
	}
	return nil
}

// rest waits until both rest, and returns the faults.
func (t *trainer) rest() error {
	close(t.stop)
	<-t.done
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}

// end ends both.
func (t *trainer) end() {
	if t == nil {
		return
	}
	for _, l := range []*loop{t.traced, t.untraced} {
		_ = l.Process.Kill() // it may have ended
		_ = l.Wait()
	}
}
