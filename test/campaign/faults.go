package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/test/meter"
)

// A fault is a failure that a round causes.
type fault struct {
	name string
	// command has the arguments of allocscope; nil: a trace of the target.
	command func(*round) []string
	// until is the message of allocscope after which it is ended by SIGTERM; nil: it ends itself.
	until *regexp.Regexp
	// target starts another target than the trainer, which trains on beside it.
	target func(*round) (end func(), err error)
	// wrapper is a command that runs allocscope.
	wrapper []string
	// prepare is called before allocscope starts, with its command.
	prepare func(r *round, command *[]string) (end func(), err error)
	// inject is called at a random moment of the trace.
	inject func(*round) error
	// endsTarget: the target is gone afterwards.
	endsTarget bool
	// losesFolder: the files need not be there, if allocscope says so.
	losesFolder bool
	// leavesShim: the next start removes the folder of the shim.
	leavesShim bool
	// check is called once allocscope and all that it has started have ended.
	check func(*round) error
}

var faults = slices.Concat(traceFaults, runFaults, agentFaults)

var traceFaults = []fault{
	{name: "none"},
	{name: "interrupt", inject: signalTracer(syscall.SIGINT)},
	{name: "interrupt twice", losesFolder: true, inject: func(r *round) error {
		return errors.Join(signalTracer(syscall.SIGINT)(r), signalTracer(syscall.SIGINT)(r))
	}},
	{name: "kill -9 of the tracer", losesFolder: true, inject: killed((*round).own)},
	{name: "kill -9 of the tracer's child", inject: kill(syscall.SIGKILL,
		func(r *round) []int { return meter.ChildrenOf(r.command.Process.Pid) })},
	{name: "kill -9 of the target", endsTarget: true, losesFolder: true, inject: func(r *round) error {
		return syscall.Kill(r.pid, syscall.SIGKILL)
	}},
	{name: "stopped tracer", inject: stop((*round).own)},
	{name: "stopped target", inject: stop(func(r *round) []int { return []int{r.pid} })},
	{name: "full disk", losesFolder: true, prepare: fullDisk},
	{name: "output removed", losesFolder: true, inject: func(r *round) error {
		return os.RemoveAll(r.output)
	}},
	{name: "output replaced by a link", losesFolder: true, inject: replaceOutput},
	{name: "no descriptors", losesFolder: true, inject: limitDescriptors},
	{
		name: "few descriptors from the start", losesFolder: true,
		wrapper: []string{"prlimit", "--nofile=24"},
	},
	{name: "no memory", losesFolder: true, prepare: limitMemory},
	{name: "detached in a storm", target: storm, inject: signalTracer(syscall.SIGINT)},
	{name: "execs", target: script("while :; do /bin/true; done")},
	{name: "forks", target: script("while :; do ( : ) & ( : ); wait; done")},
	{name: "exec of the target", losesFolder: true, target: execution},
	{name: "two traces", prepare: secondTrace},
	{name: "perf on the same functions", prepare: perfProbes},
	{name: "bpftrace on the same functions", prepare: bpftraceProbes},
	{name: "target out of memory", target: greedy, endsTarget: true, check: checkOutOfMemory},
}

func signalTracer(signal syscall.Signal) func(*round) error {
	return kill(signal, (*round).own)
}

// kill sends a signal to processes of the round.
func kill(signal syscall.Signal, of func(*round) []int) func(*round) error {
	return func(r *round) error {
		for _, pid := range of(r) {
			_ = syscall.Kill(pid, signal) // it may have ended
		}
		return nil
	}
}

// stop stops processes of the round for a while.
func stop(of func(*round) []int) func(*round) error {
	return func(r *round) error {
		pids := of(r)
		those := func(*round) []int { return pids }
		_ = kill(syscall.SIGSTOP, those)(r)
		time.Sleep(time.Duration(r.random.IntN(3000)) * time.Millisecond)
		return kill(syscall.SIGCONT, those)(r)
	}
}

// fullDisk gives the folder a disk that the trace does not fit on.
func fullDisk(r *round, _ *[]string) (func(), error) {
	size := fmt.Sprintf("size=%dk", 4<<r.random.IntN(6))
	if err := unix.Mount("tmpfs", r.folder, "tmpfs", 0, size); err != nil {
		return nil, err
	}
	return func() { _ = unix.Unmount(r.folder, unix.MNT_DETACH) }, nil
}

const movedSuffix = "-moved"

// replaceOutput moves the folder away and puts a link in its place. Nothing may be written where
// that leads.
func replaceOutput(r *round) error {
	elsewhere := filepath.Join(r.folder, "elsewhere")
	if err := os.Mkdir(elsewhere, 0o755); err != nil {
		return err
	}
	if err := os.Rename(r.output, r.output+movedSuffix); err != nil {
		return nil //nolint:nilerr // it is not there yet
	}
	if err := os.Symlink(elsewhere, r.output); err != nil {
		return err
	}
	time.Sleep(time.Second)
	entries, err := os.ReadDir(elsewhere)
	if err != nil {
		return err
	}
	if len(entries) > 0 {
		return fmt.Errorf("%s was written through a link", entries[0].Name())
	}
	return nil
}

func limitDescriptors(r *round) error {
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", r.command.Process.Pid))
	if err != nil {
		return nil //nolint:nilerr // it has ended
	}
	limit := unix.Rlimit{Cur: uint64(len(fds)), Max: uint64(len(fds))}
	return unix.Prlimit(r.command.Process.Pid, unix.RLIMIT_NOFILE, &limit, nil)
}

// limitMemory runs allocscope in a cgroup whose memory may not suffice.
func limitMemory(r *round, command *[]string) (func(), error) {
	cgroup, end, err := newCgroup(int64(32+r.random.IntN(64)) << 20)
	if err != nil {
		return nil, err
	}

	enter := "echo $$ > " + cgroup + "/cgroup.procs; exec \"$@\""
	*command = append([]string{"sh", "-c", enter, "sh"}, *command...)

	return end, nil
}

// newCgroup makes a cgroup with a limit of bytes.
func newCgroup(bytes int64) (folder string, end func(), err error) {
	roots := []struct{ folder, limit string }{
		{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"}, {"/sys/fs/cgroup", "memory.max"},
	}
	for _, root := range roots {
		if root.limit == "memory.max" {
			control := filepath.Join(root.folder, "cgroup.subtree_control")
			_ = os.WriteFile(control, []byte("+memory"), 0) // it may be there
		}
		folder, err = os.MkdirTemp(root.folder, "allocscope-campaign-")
		if err != nil {
			continue
		}
		if err = os.WriteFile(filepath.Join(folder, root.limit),
			[]byte(strconv.FormatInt(bytes, 10)), 0); err == nil {
			return folder, func() {
				for range 50 { // until its processes are gone
					if os.Remove(folder) == nil {
						return
					}
					time.Sleep(100 * time.Millisecond)
				}
			}, nil
		}
		_ = os.Remove(folder)
	}
	return "", nil, fmt.Errorf("make a cgroup: %w", err)
}

// start starts a command as the round's target, gives it an order, and waits until it prints a
// line, if it shall.
func (r *round) start(command *exec.Cmd, order, line string) (func(), error) {
	output, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if r.input, err = command.StdinPipe(); err != nil {
		return nil, err
	}
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := command.Start(); err != nil {
		return nil, err
	}
	r.pid = command.Process.Pid
	if _, err := io.WriteString(r.input, order); err != nil { // which stays open
		return nil, err
	}
	if line != "" {
		scanner := bufio.NewScanner(output)
		for scanner.Scan() && !strings.HasPrefix(scanner.Text(), line) {
			continue
		}
		go func() {
			for scanner.Scan() {
				continue
			}
		}()
	}
	return func() {
		_ = syscall.Kill(-command.Process.Pid, syscall.SIGKILL)
		_ = command.Wait()
	}, nil
}

// storm maps and frees memory as fast as it can.
func storm(r *round) (func(), error) {
	kinds := []string{"map", "brk", "fork", "dlopen", "threads"}
	kind := kinds[r.random.IntN(len(kinds))]
	return r.start(exec.Command(filepath.Join(r.programs, "storms"), kind, "5000", "0",
		filepath.Join(r.programs, "plugin.so")), "60\n", "ready")
}

func script(text string) func(*round) (func(), error) {
	return func(r *round) (func(), error) { return r.start(exec.Command("bash", "-c", text), "", "") }
}

// execution executes another program after a while.
func execution(r *round) (func(), error) {
	wait := fmt.Sprintf("%.1f", r.random.Float64()*float64(r.seconds))
	text := "sleep " + wait + "; exec " + filepath.Join(r.programs, "pair") + " 1000 64"
	return r.start(exec.Command("bash", "-c", text), "", "")
}

// greedy takes memory until the limit of its cgroup, once it is traced.
func greedy(r *round) (func(), error) {
	cgroup, remove, err := newCgroup(200 << 20)
	if err != nil {
		return nil, err
	}
	const text = `import sys, time
print("ready", flush=True)
sys.stdin.readline()
kept = []
while True:
    kept.append(bytearray(1 << 20))
    time.sleep(0.02)`
	end, err := r.start(exec.Command("sh", "-c",
		"echo $$ > "+cgroup+"/cgroup.procs; exec python3 -c \"$1\"", "sh", text), "", "ready")
	if err != nil {
		remove()
		return nil, err
	}
	r.seconds = 60 // it ends before
	traced := make(chan struct{})
	go func() {
		defer close(traced)
		for range 600 {
			if _, err := os.Stat(r.output); err == nil {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
		_, _ = io.WriteString(r.input, "\n") // it may have ended
	}()
	return func() { end(); remove(); <-traced }, nil
}

// checkOutOfMemory checks that the result says why the target has ended.
func checkOutOfMemory(r *round) error {
	raw, err := os.ReadFile(filepath.Join(r.output, folder.SummaryFile))
	if err != nil {
		return err
	}
	if !strings.Contains(string(raw), `"ended": "`+summary.EndedOutOfMemory+`"`) {
		return errors.New("the summary does not say that the target was out of memory")
	}
	return nil
}

func secondTrace(r *round, _ *[]string) (func(), error) {
	other := exec.Command(r.allocscope, "trace", "--pid", strconv.Itoa(r.pid), "--duration", "4s",
		"--output", filepath.Join(r.folder, "other"))
	if err := other.Start(); err != nil {
		return nil, err
	}
	return func() { _ = other.Wait() }, nil
}

func perfProbes(r *round, _ *[]string) (func(), error) {
	name := fmt.Sprintf("probe_campaign%d:malloc", os.Getpid())
	library, err := libcOf(r.pid)
	if err != nil {
		return nil, err
	}

	add := exec.Command("perf", "probe", "-q", "-x", library, "-a", name+"=malloc")
	out, err := add.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("perf probe: %w: %s", err, out)
	}
	count := exec.Command("perf", "stat", "-e", name, "-p", strconv.Itoa(r.pid), "sleep", "3")
	if err := count.Start(); err != nil {
		return nil, err
	}
	return func() {
		_ = count.Wait()
		_ = exec.Command("perf", "probe", "-q", "-d", name).Run()
	}, nil
}

func bpftraceProbes(r *round, _ *[]string) (func(), error) {
	library, err := libcOf(r.pid)
	if err != nil {
		return nil, err
	}
	other := exec.Command("bpftrace", "-p", strconv.Itoa(r.pid), "-e",
		"uprobe:"+library+":malloc { @ = count(); } uretprobe:"+library+":malloc { @r = count(); } "+
			"interval:s:3 { exit(); }")
	if err := other.Start(); err != nil {
		return nil, err
	}
	return func() { _ = other.Wait() }, nil
}

// libcOf returns the C library of a process.
func libcOf(pid int) (string, error) {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(maps)) {
		if fields := strings.Fields(line); len(fields) == 6 && strings.Contains(fields[5], "/libc.so") {
			return fields[5], nil
		}
	}
	return "", errors.New("no C library is mapped")
}
