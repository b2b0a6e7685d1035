package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

func TestTraceEnd(t *testing.T) {
	t.Run("target dies", testTargetDies)
	t.Run("target is out of memory", testTargetOutOfMemory)
	t.Run("target executes a program", testTargetExecutes)
	t.Run("target is stopped", testTargetStopped)
	t.Run("signal", testSignal)
	t.Run("interrupt while it starts", testInterruptWhileStarting)
	t.Run("second interrupt", testSecondInterrupt)
	t.Run("killed", testKilled)
	t.Run("killed with probes on a GPU's driver", testKilledOnGPU)
	t.Run("log that blocks", testBlockedLog)
	t.Run("disk fills up", testDiskFillsUp)
}

// traceToBaseline starts a trace with a snapshot every 100 ms, and waits for the one from which
// growth counts.
func traceToBaseline(t *testing.T, target *tracertest.Target) (c *command, dir string) {
	t.Helper()
	c, dir = tracing(t, target, "--snapshot-every", "100ms", "--warmup", "1ms")
	c.awaitFile(dir, "snapshots/001.pb.gz")
	return c, dir
}

func testTargetDies(t *testing.T) {
	t.Run("is killed", func(t *testing.T) {
		target := startSteps(t)
		c, dir := traceToBaseline(t, target)
		do(target, "leak 1000 96")
		c.awaitSnapshots(dir, 2)
		_ = target.Process.Kill()
		mustEndWithTarget(t, c, dir)
	})

	t.Run("exits after one snapshot", func(t *testing.T) {
		target := startSteps(t)
		c, dir := tracing(t, target)
		do(target, "leak 1000 96")
		target.Say("exit")
		mustEndWithTarget(t, c, dir)
	})
}

// The kernel names the process that it kills. The trace is complete until then.
func testTargetOutOfMemory(t *testing.T) {
	const limit = 64 << 20
	target := startSteps(t)
	cgroup := tracertest.LimitMemory(t, target.PID(), limit)
	c, dir := traceToBaseline(t, target)
	target.Say("leak 1000000 200")
	c.mustEnd(0)

	s := mustHaveEnded(t, dir, summary.EndedOutOfMemory)
	if s.Limit == nil || s.Limit.Of != growth.LimitCgroup || s.Limit.Bytes != limit {
		t.Errorf("the limit is %+v", s.Limit)
	}
	mustSay(t, "stdout", c.stdout.String(), "killed: out of memory, limit 64.0 MiB", "leak_here (steps)",
		"killed with ", " in RAM, at the limit of cgroup "+cgroup+", 64.0 MiB")
	if len(s.OOMKills) != 1 || s.OOMKills[0].PID != target.PID() || s.OOMKills[0].Cgroup != cgroup ||
		bytesOf(s.OOMKills[0].LimitBytes) != limit {
		t.Errorf("killed: %+v", s.OOMKills)
	}

	last := call(t, "show", "--last-oom", dir)
	last.mustEnd(0)
	last.mustPrint(fmt.Sprintf("the kernel killed steps (PID %d)", target.PID()), cgroup,
		"trace    "+dir)
}

// mustEndWithTarget checks that the leak of 1000 objects of 96 bytes is found although the target
// has ended. It has not been waited for: it is a zombie.
func mustEndWithTarget(t *testing.T, c *command, dir string) {
	t.Helper()
	c.mustEnd(0)
	s := mustHaveEnded(t, dir, summary.EndedExit)
	mustHaveLeaked(t, dir, folder.GrowthFile, 1000, 96)
	mustSay(t, "stdout", c.stdout.String(), words.End(summary.EndedExit), "leak_here (steps)",
		"93.8 KiB")
	if first, last := *s.RSS.StartBytes, *s.RSS.EndBytes; first <= 0 || last <= 0 {
		t.Errorf("RSS from %d to %d", first, last)
	}
}

func testTargetExecutes(t *testing.T) {
	for _, arguments := range [][]string{nil, {"--no-children"}} {
		target := startSteps(t)
		c, dir := tracing(t, target, append(arguments, "--snapshot-every", "100ms")...)
		do(target, "leak 1000 96")
		c.awaitSnapshots(dir, 2)
		target.Say("exec " + target.Path)
		target.Await("ready")

		c.await("trace of the new program", func() bool {
			return strings.Contains(c.stderr.String(), "Tracing PID "+itoa(target.PID())+" (steps)")
		})

		do(target, "leak 500 640")
		c.awaitSnapshots(dir, 2)
		c.interrupt()
		mustHaveEnded(t, dir, summary.EndedInterrupt)
		mustHaveLeaked(t, dir, folder.PlateauFile, 500, 640)
		mustSay(t, "stderr", c.stderr.String(), "PID "+itoa(target.PID())+" started a new program (steps)")
		checkDetached(t, target)
	}
}

func testTargetStopped(t *testing.T) {
	for _, when := range []string{"before the trace", "during the trace"} {
		t.Run(when, func(t *testing.T) {
			target := startSteps(t)
			if when == "before the trace" {
				stop(t, target)
			}

			c, dir := tracing(t, target)
			if when == "during the trace" {
				do(target, "leak 100 100")
				stop(t, target)
			}

			c.interrupt()
			mustHaveEnded(t, dir, summary.EndedInterrupt)
			mustSay(t, "stdout", c.stdout.String(), "warning: the target is stopped")
			must(t, target.Process.Signal(syscall.SIGCONT))

			do(target, "leak 100 100")
		})
	}
}

func stop(t *testing.T, target *tracertest.Target) {
	t.Helper()
	must(t, target.Process.Signal(syscall.SIGSTOP))
	awaitState(t, target.PID(), "T")
}

func testSignal(t *testing.T) {
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP} { // SIGINT ends TestTrace's
		t.Run(unix.SignalName(s), func(t *testing.T) {
			target := startSteps(t)
			c, dir := tracing(t, target)
			do(target, "leak 1000 96")
			c.signal(s)
			c.mustEnd(0)
			mustHaveEnded(t, dir, summary.EndedInterrupt)
			mustHaveLeaked(t, dir, folder.GrowthFile, 1000, 96)
			mustSay(t, "stdout", c.stdout.String(), words.End(summary.EndedInterrupt),
				"leak_here (steps)")
			checkDetached(t, target)
		})
	}
}

// checkDetached checks that a target works after its trace. Package tracer checks that its code is
// as before.
func checkDetached(t *testing.T, target *tracertest.Target) {
	t.Helper()
	do(target, "hold 1000 100")
	do(target, "drop")
}

// testInterruptWhileStarting interrupts traces in the first second, while BPF programs are loaded
// and probes attached. On a fast machine tracing may have started by then.
func testInterruptWhileStarting(t *testing.T) {
	target := startSteps(t)
	for _, after := range []time.Duration{0, 200 * time.Millisecond, 500 * time.Millisecond} {
		dir := newFolder(t)
		c := begin(t, allocscope(t, traceArguments(target.PID(), dir)...))
		c.await("it uses BPF", c.usesBPF)
		time.Sleep(after)
		c.signal(syscall.SIGINT)
		c.mustEnd(0)

		if _, err := os.Stat(dir); err == nil {
			mustHaveEnded(t, dir, summary.EndedInterrupt)
		} else {
			mustSay(t, "stderr", c.stderr.String(),
				"interrupted before tracing started: nothing is written")
		}
		checkDetached(t, target)
	}
}

// usesBPF is true once the command has a BPF map or program.
func (c *command) usesBPF() bool {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", c.Process.Pid))
	return slices.ContainsFunc(files, func(file string) bool {
		name, _ := os.Readlink(file)
		return strings.HasPrefix(name, "anon_inode:bpf")
	})
}

// The second Ctrl-C comes while allocscope waits for the reader of its output.
func testSecondInterrupt(t *testing.T) {
	// In the background of a script the signal is ignored, also by our children, unless we catch
	// it.
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, os.Interrupt)
	defer signal.Stop(caught)

	target, dir := startSteps(t), newFolder(t)
	cmd := allocscope(t, traceArguments(target.PID(), dir)...)
	cmd.Stdout = fullPipe(t)
	c := begin(t, cmd)
	c.awaitFile(dir, "snapshots/000.pb.gz")
	c.signal(syscall.SIGINT)
	c.awaitFile(dir, folder.SummaryFile)
	c.signal(syscall.SIGINT)
	c.wait()
	if status := c.ProcessState.Sys().(syscall.WaitStatus); !status.Signaled() ||
		status.Signal() != syscall.SIGINT {
		t.Errorf("%v, want death by SIGINT", c.ProcessState)
	}

	checkDetached(t, target)
}

// fullPipe is the writing end of a pipe that has no room left.
func fullPipe(t *testing.T) *os.File {
	t.Helper()
	var ends [2]int
	must(t, unix.Pipe2(ends[:], unix.O_CLOEXEC|unix.O_NONBLOCK))

	t.Cleanup(func() { unix.Close(ends[0]) })
	var err error
	for err == nil {
		_, err = unix.Write(ends[1], make([]byte, 4096))
	}

	if !errors.Is(err, unix.EAGAIN) {
		t.Fatal(err)
	}

	must(t, unix.SetNonblock(ends[1], false))

	writer := os.NewFile(uintptr(ends[1]), "full pipe")
	t.Cleanup(func() { writer.Close() })
	return writer
}

// A killed trace leaves its snapshots and its timeline, and nothing in the kernel. The next trace is
// complete.
func testKilled(t *testing.T) {
	target := startSteps(t)
	c, dir := tracing(t, target, "--snapshot-every", "100ms")
	do(target, "leak 1000 96")
	c.awaitSnapshots(dir, 3)

	held := heldBy(t, c.Process.Pid)
	if n := held.linksOf("on_fault"); n < runtime.NumCPU() || len(held.programs) < 5 {
		t.Fatalf("%d events of page faults, of %+v: the test is wrong", n, held)
	}
	held.mustVanish(t, c)

	files := snapshotFiles(t, dir)
	latest := parseProfile(t, files[len(files)-1])
	mustHold(t, "leak_here", flat(latest, "leak_here"), heldObjects(1000, 96))
	if len(readTimeline(t, dir)) == 0 {
		t.Error("the timeline has no rows")
	}

	checkDetached(t, target)

	again, dir := tracing(t, target)
	do(target, "leak 1000 96")
	again.interrupt()

	for name, state := range states(readSummary(t, dir)) {
		if state != summary.SourceAttached && name != "step" {
			t.Errorf("source %s of the next trace is %s", name, state)
		}
	}

	mustHaveLeaked(t, dir, folder.GrowthFile, 1000, 96)
}

// A killed trace leaves a result of a moment before, with the line that leaks.
func TestKilledWithResult(t *testing.T) {
	t.Parallel() // it waits for five seconds
	target := startSteps(t)
	c, dir := tracing(t, target, "--snapshot-every", "1s", "--warmup", "1ms")
	ordered := int64(0)
	c.await("there is a result", func() bool {
		do(target, "leak 50 4096")
		ordered += 50
		time.Sleep(50 * time.Millisecond)
		return exists(filepath.Join(dir, folder.SummaryFile))
	})
	must(t, c.Process.Kill())
	c.wait()

	s := mustHaveEnded(t, dir, summary.EndedRunning)
	if exists(filepath.Join(dir, folder.ReportFile)) || s.Files["report"] != "" || s.Text.Verdict == "" {
		t.Errorf("files %v, verdict %q", s.Files, s.Text.Verdict)
	}
	held := flat(readProfile(t, dir, folder.PlateauFile), "leak_here")
	if held.inuseObjects == 0 || held.inuseObjects > ordered ||
		held.inuseSpace != 4096*held.inuseObjects {
		t.Errorf("leak_here holds %+v of %d objects", held, ordered)
	}
	show := call(t, "show", dir)
	show.mustEnd(0)
	show.mustPrint("leak_here (steps)", "written while the trace ran, ")
	call(t, "report", dir).mustEnd(0)
	call(t, "diff", dir, dir).mustEnd(0)
}

// The probes are in a library that the program has loaded, and in its PyTorch's allocator.
func testKilledOnGPU(t *testing.T) {
	target := ready(tracertest.Start(t, tracertest.Build(t, "cuda.c", "-pthread"),
		tracertest.BuildLibrary(t, "libcuda.c", "libcuda.so.1")))
	do(target, "map %s", tracertest.BuildLibrary(t, "c10.cc", "libc10_cuda.so", "-DREPORT"))

	c, _ := tracing(t, target)
	held := heldBy(t, c.Process.Pid)
	for _, program := range []string{"cuda_on_entry", "cuda_on_return", "on_block"} {
		if held.linksOf(program) == 0 {
			t.Fatalf("no link of %s in %+v: the test is wrong", program, held)
		}
	}
	held.mustVanish(t, c)
}

// kernelObjects are the BPF programs and links that a process has open, by ID. A link has the name
// of its program. Perf events have no ID; they go with their links.
type kernelObjects struct {
	programs map[ebpf.ProgramID]string
	links    map[link.ID]string
}

// heldBy returns the objects of a process.
func heldBy(t *testing.T, pid int) kernelObjects {
	t.Helper()
	held := kernelObjects{make(map[ebpf.ProgramID]string), make(map[link.ID]string)}
	programs, links := tracertest.BPFFiles(t, pid)
	for _, program := range programs {
		held.programs[ebpf.ProgramID(program)] = programName(t, ebpf.ProgramID(program))
	}
	for id, program := range links {
		held.links[link.ID(id)] = programName(t, ebpf.ProgramID(program))
	}
	return held
}

// programName returns the name of a BPF program; empty for one that is gone.
func programName(t *testing.T, id ebpf.ProgramID) string {
	t.Helper()
	program, err := ebpf.NewProgramFromID(id)
	if err != nil {
		return ""
	}
	defer program.Close()

	info := tracertest.Must(program.Info())(t)
	return info.Name
}

// linksOf counts the links of a program.
func (h kernelObjects) linksOf(program string) (n int) {
	for _, name := range h.links {
		if name == program {
			n++
		}
	}
	return n
}

// left counts the objects that the kernel still has.
func (h kernelObjects) left() (n int) {
	for id := range h.programs {
		program, err := ebpf.NewProgramFromID(id)
		program.Close()
		if !errors.Is(err, os.ErrNotExist) {
			n++
		}
	}

	for id := range h.links {
		l, err := link.NewFromID(id)
		if err == nil {
			l.Close()
		}
		if !errors.Is(err, os.ErrNotExist) {
			n++
		}
	}
	return n
}

// mustVanish kills the process that holds the objects, and waits until the kernel has none of them.
func (h kernelObjects) mustVanish(t *testing.T, c *command) {
	t.Helper()
	if n := h.left(); n != len(h.programs)+len(h.links) {
		t.Fatalf("%d objects before the kill, of %+v: the test is wrong", n, h)
	}

	c.signal(syscall.SIGKILL)
	c.wait()
	eventually(t, "the kernel has let go of all", func() bool { return h.left() == 0 })
}

func testBlockedLog(t *testing.T) {
	t.Parallel()
	target, dir := startSteps(t), newFolder(t)
	cmd := allocscope(t, traceArguments(target.PID(), dir, "--duration", "1s")...)
	cmd.Stderr = fullPipe(t)
	c := begin(t, cmd)
	c.mustEnd(0)
	if s := readSummary(t, dir); s.Ended != summary.EndedDuration {
		t.Errorf("ended by %s", s.Ended)
	}

	mustSay(t, "stdout", c.stdout.String(), words.End(summary.EndedDuration))
}

func testDiskFillsUp(t *testing.T) {
	disk, target := mountTmpfs(t), startSteps(t)
	dir := filepath.Join(disk, "out")
	c := begin(t, allocscope(t, traceArguments(target.PID(), dir, "--snapshot-every", "100ms",
		"--warmup", "100ms")...))
	c.awaitFile(dir, "snapshots/002.pb.gz")
	do(target, "leak 1000 1000")
	fill(t, disk)
	c.await("it notices", func() bool { return strings.Contains(c.stderr.String(), "error: ") })
	c.signal(syscall.SIGINT)
	c.mustEnd(1)
	mustSay(t, "stdout", c.stdout.String(), "leak_here", "977 KiB", "1000")
	mustSay(t, "stderr", c.stderr.String(), "error: write snapshots/",
		"no space left on device (make room, or choose a folder on another disk with -o)")
	mustSay(t, "the last line of stderr", lastLine(c.stderr.String()), "files could not be written")
	mustBeWhole(t, dir)
}

// fill takes all room that a file system has left.
func fill(t *testing.T, dir string) {
	t.Helper()
	file, err := os.Create(filepath.Join(dir, "fill"))
	must(t, err)
	defer file.Close()
	for page := make([]byte, 4096); err == nil; _, err = file.Write(page) {
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
}

// mustBeWhole checks that each profile that is there is complete, and nothing else.
func mustBeWhole(t *testing.T, dir string) {
	t.Helper()
	for _, pattern := range []string{"*.pb.gz", "snapshots/*"} {
		paths := tracertest.Must(filepath.Glob(filepath.Join(dir, pattern)))(t)
		for _, path := range paths {
			parseProfile(t, path)
		}
	}

	for _, pattern := range []string{".*.tmp", "snapshots/.*.tmp"} {
		if left, err := filepath.Glob(filepath.Join(dir, pattern)); err != nil || len(left) > 0 {
			t.Errorf("unfinished files %q, %v", left, err)
		}
	}
}
