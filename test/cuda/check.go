package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/test/harness"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/torch/caching"
)

// A result is the outcome of a case.
type result struct {
	segments, blocks int
	text             string        // that the trace prints
	read             time.Duration // how long one reading took
	faults           []string
}

func (r *result) add(faults ...string) { r.faults = append(r.faults, faults...) }

// A trace is one that was written, and its text.
type trace struct {
	dir, text string
	summary   *summary.Summary
}

// check traces the program of a case, and returns all differences from the truth.
func (c example) check(
	ctx context.Context, d *harness.Debian, allocscope, dir string,
) (r result) {
	t, err := start(ctx, d, c.program+".py", d.Inner(c.name+".pickle"))
	if err != nil {
		r.add(err.Error())
		return r
	}
	defer t.end()

	wait(ctx, c.before)
	held, done, err := c.trace(ctx, t, allocscope, dir, &r)
	if err != nil {
		r.add(err.Error())
		return r
	}
	emptied, err := t.signal()
	if err != nil {
		r.add(err.Error())
		return r
	}

	want, err := pickled(d.Outer(c.name + ".pickle"))
	if err != nil {
		r.add(err.Error())
		return r
	}
	c.compare(&r, held.cache, done, want)
	c.compareSums(&r, done.summary, held.figures, emptied)
	c.compareText(&r, done.text)
	return r
}

// A hold has the figures and the segments of a program that holds still.
type hold struct {
	figures figures
	cache   *growth.GPUCache
}

// trace traces a program, and makes it hold still before it ends the trace.
func (c example) trace(
	ctx context.Context, t *target, allocscope, dir string, r *result,
) (held hold, done trace, err error) {
	const after = 20 * time.Second // the trace is interrupted long before its end
	command := exec.CommandContext(ctx, allocscope, "trace", "--pid", fmt.Sprint(t.pid), "--no-tui",
		"--duration", (c.length + after).String(), "--output", dir)
	harness.OwnGroup(command)
	var text bytes.Buffer
	command.Stdout = &text
	progress, err := command.StderrPipe()
	if err != nil {
		return held, done, err
	}
	if err := command.Start(); err != nil {
		return held, done, err
	}
	said := make(chan string, 1)
	go func() { said <- follow(progress) }()

	wait(ctx, c.length)
	held, err = read(t, r)
	if err != nil {
		err = errors.Join(err, command.Cancel())
	} else {
		err = command.Process.Signal(syscall.SIGINT)
	}
	messages := <-said
	if err = errors.Join(err, command.Wait()); err != nil {
		return held, done, fmt.Errorf("trace: %w; it says:\n%s", err, messages)
	}

	done = trace{dir: dir, text: text.String()}
	done.summary, err = harness.Summary(dir)
	return held, done, err
}

// follow reads messages to their end.
func follow(from io.Reader) (said string) {
	scanner := bufio.NewScanner(from)
	for scanner.Scan() {
		said += "    " + scanner.Text() + "\n"
	}
	return said
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// read makes a program hold still, and reads its caching allocator twice: the second time, as the
// later ones of a trace, the layout is known.
func read(t *target, r *result) (held hold, err error) {
	if held.figures, err = t.signal(); err != nil {
		return held, err
	}
	p, err := process.Open(t.pid)
	if err != nil {
		return held, err
	}
	defer p.Close()

	var reader caching.Reader
	for range 2 {
		began := time.Now()
		if held.cache, err = reader.Read(p); err != nil {
			return held, fmt.Errorf("read the caching allocator: %w", err)
		}
		r.read = time.Since(began)
	}
	for i := range held.cache.Segments {
		r.segments++
		r.blocks += len(held.cache.Segments[i].Blocks)
	}
	return held, nil
}

// compare compares the reader's segments, and the segments of the trace's file, with PyTorch's.
func (c example) compare(r *result, cache *growth.GPUCache, done trace, want []segment) {
	got, err := segmentsOf(cache)
	if err != nil {
		r.add(err.Error())
	}
	r.add(differences("the reader", got, want)...)
	if cache.Changed != 0 {
		r.add(fmt.Sprintf("%d segments changed while nothing did", cache.Changed))
	}

	name := done.summary.Files[summary.GPUSnapshot]
	if name == "" {
		r.add("the trace has no snapshot of the GPU")
		return
	}
	if got, err = pickled(filepath.Join(done.dir, name)); err != nil {
		r.add(err.Error())
	}
	r.add(differences(name, got, want)...)
}

// compareText looks for patterns in the lines that the trace prints.
func (c example) compareText(r *result, text string) {
	r.text = strings.TrimSpace(text)
	flat := strings.Join(strings.Fields(text), " ")
	missing := func(pattern string) bool { return !regexp.MustCompile(pattern).MatchString(flat) }
	for _, pattern := range c.says {
		if missing(pattern) {
			r.add("it does not say " + pattern)
		}
	}
	for _, pattern := range c.saysNot {
		if !missing(pattern) {
			r.add("it says " + pattern)
		}
	}
}
