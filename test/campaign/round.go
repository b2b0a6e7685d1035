package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/google/pprof/profile"

	"github.com/allocscope/allocscope/export/folder"
)

// A round is one trace with one fault.
type round struct {
	*campaign
	folder  string    // for the round
	output  string    // of the trace
	pid     int       // of the target
	input   io.Writer // of a target other than the trainer
	command *exec.Cmd
	said    bytes.Buffer
	result  error // of the trace, once it has ended
	peak    int64 // bytes of the tracer's processes
	seconds int   // of the trace
}

// maxTracerBytes bounds what the tracer may take beside the trainer.
const maxTracerBytes = 1 << 30

// traceLimit is when a trace of seconds counts as hanging.
const traceLimit = 3 * time.Minute

// round runs a trace with a fault, and returns what is wrong afterwards.
func (c *campaign) round(ctx context.Context, f fault, number int) error {
	r := &round{
		campaign: c, folder: filepath.Join(c.work, strconv.Itoa(number)), seconds: 2 + c.random.IntN(4),
	}
	r.output = filepath.Join(r.folder, "trace")
	if err := os.MkdirAll(r.folder, 0o755); err != nil {
		return err
	}
	defer os.RemoveAll(r.folder)

	if c.trainer == nil {
		var err error
		if c.trainer, err = startTrainer(c.testdata); err != nil {
			return fmt.Errorf("start trainer: %w", err)
		}
	}
	r.pid = c.trainer.traced.Process.Pid
	if f.target != nil {
		end, err := f.target(r)
		if err != nil {
			return fmt.Errorf("start target: %w", err)
		}
		defer end()
	}

	c.trainer.begin()
	err := r.trace(ctx, f)
	if f.endsTarget {
		r.awaitEnd()
	} else {
		err = errors.Join(err, checkText(r.pid))
	}
	trainerErr := c.trainer.rest()
	if f.endsTarget || trainerErr != nil {
		c.trainer.end()
		c.trainer = nil
	}
	if !f.endsTarget {
		err = errors.Join(err, trainerErr)
	}
	err = errors.Join(err, r.checkLeftovers(), r.checkFolder(f))
	if f.check != nil {
		err = errors.Join(err, f.check(r))
	}
	if r.peak > maxTracerBytes {
		err = errors.Join(err, fmt.Errorf("the tracer has taken %d MiB", r.peak>>20))
	}
	if err != nil {
		said := fmt.Sprintf("the trace ended with %v and said: %s", r.result, r.said.String())
		err = errors.Join(err, errors.New(strings.TrimSpace(said)))
	}
	return err
}

// trace runs allocscope, and the fault at a random moment of it.
func (r *round) trace(ctx context.Context, f fault) error {
	overhead := []string{"off", "3%", "0.1%"}[r.random.IntN(3)]
	arguments := []string{
		r.allocscope, "trace", "--pid", strconv.Itoa(r.pid), "--output", r.output,
		"--duration", fmt.Sprintf("%ds", r.seconds), "--overhead", overhead,
	}
	arguments = append(append([]string{}, f.wrapper...), arguments...)
	if f.prepare != nil {
		end, err := f.prepare(r, &arguments)
		if err != nil {
			return fmt.Errorf("prepare: %w", err)
		}
		defer end()
	}

	r.command = exec.CommandContext(ctx, arguments[0], arguments[1:]...)
	r.command.Stdout, r.command.Stderr = nil, &r.said
	r.command.WaitDelay = 5 * time.Second // what it has left behind may have its output open
	if err := r.command.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- r.command.Wait() }()

	at := time.After(time.Duration(r.random.Float64() * float64(r.seconds+1) * float64(time.Second)))
	limit, sample := time.After(traceLimit), time.NewTicker(100*time.Millisecond)
	defer sample.Stop()
	var failed error
	for {
		select {
		case r.result = <-ended:
			return failed
		case <-at:
			if f.inject != nil {
				failed = f.inject(r)
			}
		case <-sample.C:
			r.peak = max(r.peak, r.resident())
		case <-limit:
			_ = r.command.Process.Kill()
			r.result = <-ended
			return errors.Join(failed, fmt.Errorf("the trace had not ended after %s", traceLimit))
		}
	}
}

// tracers returns the processes of the trace: allocscope and its children.
func (r *round) tracers() []int {
	return append(childrenOf(r.command.Process.Pid), r.command.Process.Pid)
}

// resident returns the RSS of the tracer's processes in bytes.
func (r *round) resident() (bytes int64) {
	for _, pid := range r.tracers() {
		raw, _ := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
		if fields := strings.Fields(string(raw)); len(fields) > 1 {
			pages, _ := strconv.ParseInt(fields[1], 10, 64)
			bytes += pages * int64(os.Getpagesize())
		}
	}
	return bytes
}

func childrenOf(pid int) (children []int) {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, task := range tasks {
		raw, _ := os.ReadFile(task)
		for _, field := range strings.Fields(string(raw)) {
			if child, err := strconv.Atoi(field); err == nil {
				children = append(children, child)
			}
		}
	}
	return children
}

// awaitEnd waits for the end of the target.
func (r *round) awaitEnd() {
	for range 600 {
		if raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", r.pid)); err != nil ||
			strings.Contains(string(raw), ") Z ") {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// checkText compares the code of a process with the files that it was mapped from.
func checkText(pid int) error {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return fmt.Errorf("the target: %w", err)
	}
	memory, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		return err
	}
	defer memory.Close()
	for line := range strings.Lines(string(maps)) {
		var start, end, offset int64
		var permissions, device, inode, path string
		n, _ := fmt.Sscanf(line, "%x-%x %s %x %s %s %s",
			&start, &end, &permissions, &offset, &device, &inode, &path)
		if n < 7 || !strings.Contains(permissions, "x") || !strings.HasPrefix(path, "/") {
			continue
		}
		if err := compareText(memory, path, start, end, offset); err != nil {
			return err
		}
	}
	return nil
}

func compareText(memory *os.File, path string, start, end, offset int64) error {
	file, err := os.Open(path)
	if err != nil {
		return nil //nolint:nilerr // it was deleted: nothing of ours does that
	}
	defer file.Close()
	const piece = 1 << 20
	mapped, content := make([]byte, piece), make([]byte, piece)
	for at := start; at < end; at += piece {
		size := min(piece, end-at)
		n, _ := file.ReadAt(content[:size], offset+at-start)
		if _, err := memory.ReadAt(mapped[:n], at); errors.Is(err, syscall.EIO) {
			return nil // it was unmapped meanwhile
		} else if err != nil {
			return fmt.Errorf("read code of %s: %w", path, err)
		}
		if !bytes.Equal(mapped[:n], content[:n]) {
			return fmt.Errorf("the code of %s at %#x differs from its file: a probe is left", path, at)
		}
	}
	return nil
}

// checkLeftovers looks for what a trace may leave behind.
func (r *round) checkLeftovers() error {
	var left []string
	for range 100 { // a killed process takes a moment to go
		left = left[:0]
		all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, file := range all {
			raw, _ := os.ReadFile(file)
			if strings.Contains(string(raw), r.output) && !strings.HasPrefix(string(raw), "go\x00") {
				left = append(left, filepath.Dir(file))
			}
		}
		pins, _ := filepath.Glob("/sys/fs/bpf/allocscope*")
		left = append(left, pins...)
		if len(left) == 0 {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return fmt.Errorf("left behind: %v", left)
}

// checkFolder checks that the files of the trace can be read: all of them if allocscope says that it
// has written them, and else those that are there.
func (r *round) checkFolder(f fault) error {
	if r.result == nil && !r.isComplete() && !strings.Contains(r.said.String(), "nothing is written") {
		return errors.New("the trace has succeeded, and its folder is not complete")
	}
	if f.losesFolder {
		return nil
	}

	var errs []error
	for _, name := range []string{folder.GrowthFile, folder.WarmupFile, folder.PlateauFile} {
		if raw, err := os.ReadFile(filepath.Join(r.output, name)); err == nil {
			if _, err := profile.ParseData(raw); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", name, err))
			}
		}
	}
	if raw, err := os.ReadFile(filepath.Join(r.output, folder.TimelineFile)); err == nil {
		if _, err := csv.NewReader(bytes.NewReader(wholeLines(raw))).ReadAll(); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", folder.TimelineFile, err))
		}
	}
	return errors.Join(errs...)
}

func wholeLines(raw []byte) []byte { return raw[:bytes.LastIndexByte(raw, '\n')+1] }

// isComplete reports whether all files are there. The folder may have been moved once they were.
func (r *round) isComplete() bool {
	return hasFiles(r.output) || hasFiles(r.output+movedSuffix)
}

func hasFiles(output string) bool {
	for _, name := range []string{
		folder.GrowthFile, folder.WarmupFile, folder.PlateauFile, folder.SummaryFile,
		folder.ReportFile, folder.TimelineFile,
	} {
		if info, err := os.Stat(filepath.Join(output, name)); err != nil || info.Size() == 0 {
			return false
		}
	}
	return true
}
