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
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/google/pprof/profile"
	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/test/meter"
)

// A round is one trace, run or agent, with one fault.
type round struct {
	*campaign
	folder  string    // for the round
	output  string    // of the trace
	pid     int       // of the target
	input   io.Writer // of a target other than the trainer
	command *exec.Cmd
	printed *os.File     // standard output of allocscope
	logged  *os.File     // its standard error
	result  error        // of allocscope, once it has ended
	peak    int64        // bytes of the tracer's processes
	seconds int          // of the trace
	wanted  wantedResult // of the command of a run
	health  string       // address of an agent
	lost    int          // processes beside it that have ended
	// before are the children of this process before allocscope was started.
	before []int
	// shims are the folders of the round's shims.
	shims []string
	// orphans are how processes ended whose parents had.
	orphans map[int]unix.WaitStatus
}

// maxTracerBytes bounds the memory of the tracer beside the trainer.
const maxTracerBytes = 1 << 30

// traceLimit is when a trace of seconds counts as hanging.
const traceLimit = 3 * time.Minute

// openFiles opens the files into which allocscope prints: pipes would end with who reads them.
func (r *round) openFiles() (end func(), err error) {
	var errs [2]error
	r.printed, errs[0] = os.CreateTemp(r.work, "printed-")
	r.logged, errs[1] = os.CreateTemp(r.work, "logged-")
	return func() {
		for _, file := range []*os.File{r.printed, r.logged} {
			_, _ = file.Close(), os.Remove(file.Name())
		}
	}, errors.Join(errs[:]...)
}

// said is the log of allocscope and its processes.
func (r *round) said() string { return textOf(r.logged) }

func textOf(file *os.File) string {
	raw, _ := os.ReadFile(file.Name())
	return string(raw)
}

// round runs allocscope with a fault, and returns the faults afterwards.
func (c *campaign) round(ctx context.Context, f fault, number int) error {
	r := &round{
		campaign: c, folder: filepath.Join(c.work, strconv.Itoa(number)), seconds: 2 + c.random.IntN(4),
	}
	r.output = filepath.Join(r.folder, "trace")
	if err := os.MkdirAll(r.folder, 0o755); err != nil {
		return err
	}
	defer os.RemoveAll(r.folder)
	closeFiles, err := r.openFiles()
	if err != nil {
		return err
	}
	defer closeFiles()

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
	err = r.trace(ctx, f)
	err = errors.Join(err, r.checkLeftovers(), r.checkShims(ctx, f))
	if f.endsTarget {
		r.awaitEnd()
	} else {
		err = errors.Join(err, checkText(r.pid))
	}
	if other := c.trainer.traced.Process.Pid; r.pid != other {
		err = errors.Join(err, checkText(other))
	}
	trainerErr := c.trainer.rest()
	if f.endsTarget || trainerErr != nil {
		c.trainer.end()
		c.trainer = nil
	}
	if !f.endsTarget {
		err = errors.Join(err, trainerErr)
	}
	if f.command == nil {
		err = errors.Join(err, r.checkFolder(f))
	}
	if f.check != nil {
		err = errors.Join(err, f.check(r))
	}
	if r.peak > maxTracerBytes {
		err = errors.Join(err, fmt.Errorf("the tracer has taken %d MiB", r.peak>>20))
	}
	if err != nil {
		said := fmt.Sprintf("allocscope ended with %v and said: %s", r.result, r.said())
		err = errors.Join(err, errors.New(strings.TrimSpace(said)))
	}
	return err
}

// traceCommand traces the target.
func traceCommand(r *round) []string {
	return []string{
		r.allocscope, "trace", "--pid", strconv.Itoa(r.pid), "--output", r.output,
		"--duration", fmt.Sprintf("%ds", r.seconds), "--overhead", r.overhead(),
	}
}

func (r *round) overhead() string { return []string{"off", "3%", "0.1%"}[r.random.IntN(3)] }

// trace runs allocscope, and the fault at a random moment of it.
func (r *round) trace(ctx context.Context, f fault) error {
	command := traceCommand
	if f.command != nil {
		command = f.command
	}

	arguments := append(slices.Clone(f.wrapper), command(r)...)
	if f.prepare != nil {
		end, err := f.prepare(r, &arguments)
		if err != nil {
			return fmt.Errorf("prepare: %w", err)
		}
		defer end()
	}

	r.before = meter.ChildrenOf(os.Getpid())
	r.command = exec.CommandContext(ctx, arguments[0], arguments[1:]...)
	r.command.Stdout, r.command.Stderr = r.printed, r.logged

	if err := r.command.Start(); err != nil {
		return err
	}
	return r.follow(f)
}

// follow injects the fault, and waits until allocscope has ended.
func (r *round) follow(f fault) error {
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
			at = nil
			r.noteShim()
			if f.inject != nil {
				failed = f.inject(r)
			}
		case <-sample.C:
			r.peak = max(r.peak, r.resident())
			r.noteShim()
			if f.until != nil && at == nil && f.until.MatchString(r.said()) {
				f.until = nil
				_ = kill(unix.SIGTERM, theAgent)(r)
			}
		case <-limit:
			_ = r.command.Process.Kill()
			r.result = <-ended
			return errors.Join(failed, fmt.Errorf("allocscope had not ended after %s", traceLimit))
		}
	}
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

// checkFolder checks that the files of the trace can be read: all of them if allocscope says that
// it has written them, and else the ones that are there.
func (r *round) checkFolder(f fault) error {
	if r.result == nil && !r.isComplete() && !strings.Contains(r.said(), "nothing is written") {
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
