package main

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// traceToBoundary starts a trace with a snapshot every 100 ms, and waits for the one from which growth counts.
func traceToBoundary(t *testing.T, target *tracertest.Target) (c *command, folder string) {
	t.Helper()
	c, folder = tracing(t, target, "--snapshot-every", "100ms", "--warmup", "1ms")
	c.awaitFile(folder, "snapshots/001.pb.gz")
	return c, folder
}

var deaths = map[string]func(*tracertest.Target){
	"exits":     func(target *tracertest.Target) { target.Say("exit") },
	"is killed": func(target *tracertest.Target) { _ = target.Process.Kill() },
}

func TestWhatATargetHeldInTheLastSnapshotOfItsLifeIsItsGrowth(t *testing.T) {
	for name, die := range deaths {
		t.Run(name, func(t *testing.T) {
			target := startSteps(t)
			c, folder := traceToBoundary(t, target)
			do(target, "leak 1000 96")
			c.awaitSnapshots(folder, 2)
			die(target)
			mustEndWithTarget(t, c, folder)
		})
	}
}

func TestWhatATargetHeldAtItsEndIsItsGrowthWhereThereIsOneSnapshot(t *testing.T) {
	for name, die := range deaths {
		t.Run(name, func(t *testing.T) {
			target := startSteps(t)
			c, folder := tracing(t, target)
			do(target, "leak 1000 96")
			die(target)
			mustEndWithTarget(t, c, folder)
		})
	}
}

// mustEndWithTarget wants that the leak of 1000 objects of 96 bytes is found although the target has ended. Nobody has
// waited for it: it is a zombie.
func mustEndWithTarget(t *testing.T, c *command, dir string) {
	t.Helper()
	c.mustEnd(0)
	s := mustHaveEnded(t, dir, summary.EndedExit)
	mustHold(t, "leak_here", flat(readProfile(t, dir, folder.GrowthFile), "leak_here"), objects(1000, 96))
	mustSay(t, "stdout", c.stdout.String(), "target exited", "leak_here (steps)", "93.8 KiB")
	if first, last := *s.RSS.StartBytes, *s.RSS.EndBytes; first <= 0 || last <= 0 {
		t.Errorf("RSS from %d to %d", first, last)
	}
}

func TestATargetThatExecutesAnotherProgramIsTracedAnew(t *testing.T) {
	for _, arguments := range [][]string{nil, {"--no-children"}} {
		target := startSteps(t)
		c, dir := tracing(t, target, append(arguments, "--snapshot-every", "100ms")...)
		do(target, "leak 1000 96")
		c.awaitSnapshots(dir, 2)
		target.Say("exec " + target.Path)
		target.Await("ready")
		c.await("trace of the new program", func() bool {
			return strings.Contains(c.stderr.String(), "tracing PID "+itoa(target.PID())+" (steps)")
		})
		do(target, "leak 500 640")
		c.awaitSnapshots(dir, 2)
		c.signal(syscall.SIGINT)
		c.mustEnd(0)
		mustHaveEnded(t, dir, summary.EndedInterrupt)
		mustHold(t, "leak_here", flat(readProfile(t, dir, folder.PlateauFile), "leak_here"), objects(500, 640))
		mustSay(t, "stderr", c.stderr.String(), "PID "+itoa(target.PID())+" executed steps: what it was before is gone")
		checkDetached(t, target)
	}
}

func TestAStoppedTargetIsTracedAndSaidToBeStopped(t *testing.T) {
	for _, when := range []string{"before the trace", "during the trace"} {
		t.Run(when, func(t *testing.T) {
			target := startSteps(t)
			if when == "before the trace" {
				stop(t, target)
			}
			c, dir := tracing(t, target, "--duration", "1")
			if when == "during the trace" {
				do(target, "leak 100 100")
				stop(t, target)
			}
			c.mustEnd(0)
			mustHaveEnded(t, dir, summary.EndedDuration)
			mustSay(t, "stdout", c.stdout.String(), "warning: the target is stopped")
			if err := target.Process.Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			do(target, "leak 100 100")
		})
	}
}

func stop(t *testing.T, target *tracertest.Target) {
	t.Helper()
	if err := target.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	awaitState(t, target.PID(), "T")
}

func TestASignalEndsATraceWithoutDurationAndWritesTheFiles(t *testing.T) {
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		t.Run(unix.SignalName(s), func(t *testing.T) {
			target := startSteps(t)
			c, dir := tracing(t, target)
			do(target, "leak 1000 96")
			c.signal(s)
			c.mustEnd(0)
			mustHaveEnded(t, dir, summary.EndedInterrupt)
			mustHold(t, "leak_here", flat(readProfile(t, dir, folder.GrowthFile), "leak_here"), objects(1000, 96))
			mustSay(t, "stdout", c.stdout.String(), "interrupted", "leak_here (steps)")
			checkDetached(t, target)
		})
	}
}

// checkDetached wants that a target works and that its code is as it was before the trace.
func checkDetached(t *testing.T, target *tracertest.Target) {
	t.Helper()
	if found := patches(t, target.PID()); len(found) > 0 {
		t.Errorf("probes left in the target: %v", found)
	}
	do(target, "hold 1000 100")
	do(target, "drop")
}

// The second Ctrl-C comes while allocscope waits for the reader of its output.
func TestASecondInterruptLeavesAtOnce(t *testing.T) {
	if signal.Ignored(os.Interrupt) { // in the background of a script; what we begin would ignore it, too
		caught := make(chan os.Signal, 1)
		signal.Notify(caught, os.Interrupt)
		defer signal.Stop(caught)
	}
	target, dir := startSteps(t), newFolder(t)
	cmd := allocscope(t, traceArguments(target.PID(), dir)...)
	cmd.Stdout = fullPipe(t)
	c := begin(t, cmd)
	c.awaitFile(dir, "snapshots/000.pb.gz")
	c.signal(syscall.SIGINT)
	c.awaitFile(dir, folder.SummaryFile)
	c.signal(syscall.SIGINT)
	c.wait()
	if status := c.ProcessState.Sys().(syscall.WaitStatus); !status.Signaled() || status.Signal() != syscall.SIGINT {
		t.Errorf("%v, want death by SIGINT", c.ProcessState)
	}
	checkDetached(t, target)
}

// fullPipe is the writing end of a pipe that has no room left.
func fullPipe(t *testing.T) *os.File {
	t.Helper()
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(ends[0]) })
	var err error
	for err == nil {
		_, err = unix.Write(ends[1], make([]byte, 4096))
	}
	if !errors.Is(err, unix.EAGAIN) {
		t.Fatal(err)
	}
	if err := unix.SetNonblock(ends[1], false); err != nil {
		t.Fatal(err)
	}
	writer := os.NewFile(uintptr(ends[1]), "full pipe")
	t.Cleanup(func() { writer.Close() })
	return writer
}

func TestProbesAreThereWhileTracedAndGoneEvenAfterAKill(t *testing.T) {
	target := startSteps(t)
	libc := libcOf(t, target.PID())
	checkDetached(t, target)
	for name, end := range map[string]func(*command){
		"interrupted": (*command).interrupt,
		"killed":      func(c *command) { c.signal(syscall.SIGKILL); c.wait() },
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := tracing(t, target)
			found := patches(t, target.PID())
			for _, function := range []string{"malloc", "calloc", "realloc", "free"} {
				if !isPatched(t, found, libc, function) {
					t.Errorf("no breakpoint in %s; patched are %v", function, found)
				}
			}
			do(target, "hold 1000 100")
			end(c)
			checkDetached(t, target)
		})
	}
}

func TestAKilledTraceLeavesItsSnapshotsAndTimelineReadable(t *testing.T) {
	target := startSteps(t)
	c, folder := tracing(t, target, "--snapshot-every", "100ms")
	do(target, "leak 1000 96")
	c.awaitSnapshots(folder, 3)
	c.signal(syscall.SIGKILL)
	c.wait()
	files := snapshotFiles(t, folder)
	mustHold(t, "leak_here", flat(parseProfile(t, files[len(files)-1]), "leak_here"), objects(1000, 96))
	if len(readTimeline(t, folder)) == 0 {
		t.Error("the timeline has no rows")
	}
}

func TestTheProgramMayBeReplacedOnDiskWhileItIsTraced(t *testing.T) {
	plain, err := os.ReadFile(tracertest.Build(t, "steps.c"))
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "upgraded")
	if err := os.WriteFile(program, plain, 0o755); err != nil {
		t.Fatal(err)
	}
	target := ready(tracertest.Start(t, program))
	if err := os.Remove(program); err != nil {
		t.Fatal(err)
	}
	c, dir := tracing(t, target)
	do(target, "leak 1000 96")
	c.interrupt()
	mustHold(t, "leak_here", flat(readProfile(t, dir, folder.GrowthFile), "leak_here"), objects(1000, 96))
}

// While allocscope sleeps, the target leaks and dies, and another program gets its PID.
func TestAReusedPIDIsNotTakenForTheTarget(t *testing.T) {
	const foreign = 8 << 20 // bytes
	target := startSteps(t)
	c, dir := tracing(t, target)
	c.signal(syscall.SIGSTOP)
	awaitState(t, c.Process.Pid, "T")
	do(target, "leak 1000 96")
	target.Say("exit")
	_ = target.Wait()
	impostor := startWithPID(t, target.PID())
	do(impostor, "leak 5000 96")
	do(impostor, "map 10 %d %[1]d", foreign)
	c.signal(syscall.SIGCONT)
	c.mustEnd(0)
	s := readSummary(t, dir)
	if !strings.HasPrefix(s.Ended, "target e") {
		t.Errorf("ended: %q", s.Ended)
	}
	mustHold(t, "leak_here", flat(readProfile(t, dir, folder.GrowthFile), "leak_here"), objects(1000, 96))
	mustHold(t, "map_here", flat(readProfile(t, dir, folder.GrowthFile), "map_here"), values{})
	for _, sample := range readTimeline(t, dir) {
		if sample.RSS > foreign {
			t.Errorf("RSS of %d bytes after %s is another process's", sample.RSS, sample.Elapsed)
		}
	}
	checkDetached(t, impostor)
}

// startWithPID starts programs until one gets the PID, which must be free.
func startWithPID(t *testing.T, pid int) *tracertest.Target {
	t.Helper()
	program := tracertest.Build(t, "steps.c")
	for range 1000 {
		if err := os.WriteFile("/proc/sys/kernel/ns_last_pid", []byte(itoa(pid-1)), 0); err != nil {
			t.Fatal(err)
		}
		target := tracertest.StartCommand(t, exec.Command(program))
		if target.PID() == pid {
			return ready(target)
		}
		target.Hangup()
	}
	t.Fatalf("no process got PID %d", pid)
	return nil
}
