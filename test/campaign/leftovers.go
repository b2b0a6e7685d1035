package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/test/meter"
)

// adoptOrphans makes this process the parent of all that a killed allocscope leaves.
func adoptOrphans() error {
	return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
}

// own is the process that was started as allocscope.
func (r *round) own() []int { return []int{r.command.Process.Pid} }

// tracers returns the processes of the trace: allocscope and its children.
func (r *round) tracers() []int {
	return append(meter.ChildrenOf(r.command.Process.Pid), r.command.Process.Pid)
}

// resident returns the RSS of the tracer's processes in bytes.
func (r *round) resident() (bytes int64) {
	for _, pid := range r.tracers() {
		bytes += meter.RSS(pid)
	}
	return bytes
}

// started returns all processes that allocscope has started, and itself.
func (r *round) started() (all []int) {
	next := meter.ChildrenOf(os.Getpid())
	for len(next) > 0 {
		pid := next[0]
		next = next[1:]
		if !slices.Contains(r.before, pid) {
			all = append(all, pid)
			next = append(next, meter.ChildrenOf(pid)...)
		}
	}
	return all
}

// reap takes the exit statuses of the processes that have ended, once allocscope has.
func (r *round) reap() {
	if r.orphans == nil {
		r.orphans = make(map[int]unix.WaitStatus)
	}

	for _, pid := range meter.ChildrenOf(os.Getpid()) {
		var status unix.WaitStatus
		if slices.Contains(r.before, pid) {
			continue
		}
		if ended, err := unix.Wait4(pid, &status, unix.WNOHANG, nil); err == nil && ended == pid {
			r.orphans[pid] = status
		}
	}
}

// leftoverTime is how long processes that allocscope has started may take to end: a command that it
// has lost, and the remover, which looks every 10 s whether the shim is in use.
const leftoverTime = time.Minute

// checkLeftovers looks for things that allocscope may leave behind.
func (r *round) checkLeftovers() error {
	if r.command == nil || r.command.Process == nil {
		return nil // it was not started
	}

	var left []string
	for until := time.Now().Add(leftoverTime); time.Now().Before(until); {
		left, _ = filepath.Glob("/sys/fs/bpf/allocscope*")
		r.reap()
		for _, pid := range r.started() {
			raw, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			left = append(left, fmt.Sprintf("%d (%q)", pid, raw))
		}
		if len(left) == 0 {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}

	_ = kill(unix.SIGKILL, (*round).started)(r) // for the next round
	return fmt.Errorf("left behind: %v", left)
}

// noteShim notes the folder of a shim: it has to be gone in the end.
func (r *round) noteShim() {
	if folder := r.shimFolder(); folder != "" && !slices.Contains(r.shims, folder) {
		r.shims = append(r.shims, folder)
	}
}

// leftShims returns the noted folders that are there still, or where a fault has moved them.
func (r *round) leftShims() (left []string) {
	for _, folder := range r.shims {
		for _, path := range []string{folder, folder + movedSuffix} {
			if exists(path) {
				left = append(left, path)
			}
		}
	}
	return left
}

// checkShims checks that no folder of a shim is left: after the next start, where all who could
// remove it were killed.
func (r *round) checkShims(ctx context.Context, f fault) error {
	if f.leavesShim && len(r.leftShims()) > 0 {
		next := exec.CommandContext(ctx, r.allocscope, "run", "--quiet",
			"--output", filepath.Join(r.folder, "next"), "--", "true")
		if out, err := next.CombinedOutput(); err != nil {
			return fmt.Errorf("the next start: %w: %s", err, out)
		}
	}

	var left []string
	for range 20 {
		if left = r.leftShims(); len(left) == 0 {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return errors.New("left behind: " + strings.Join(left, ", "))
}
