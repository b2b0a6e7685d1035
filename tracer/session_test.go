package tracer_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// TestSession attaches to processes and detaches from them: nothing of one process is left to
// another.
func TestSession(t *testing.T) {
	t.Run("ended process keeps its rows until the next attach", testSessionEndedProcessKeeps)
	t.Run("Python process leaves nothing in the kernel", testSessionPythonProcessLeaves)
	t.Run("stacks are named again after an execution", testSessionStacksNamedAgain)
	t.Run("attach after an execution lasts", testSessionAttachExecutionLasts)
	t.Run("reused PID is not the ended target", testSessionReusedPIDEnded)
	t.Run("reused PID is not attached to", testSessionReusedPIDAttached)
	t.Run("exit while attaching leaves nothing", testSessionExitDuringAttach)
	t.Run("fifty attaches leave nothing", testSessionFiftyAttachesLeave)
	t.Run("process that is being loaded gets its heap later", testSessionProcessBeingLoaded)
	t.Run("execution while attaching is refused", testSessionExecutionDuringAttach)
	t.Run("concurrent flushes are all answered", testSessionConcurrentFlushesAnswered)
}

// A processMap is a BPF map with entries of processes: pidAt is where the PID stands in the key, or
// -1 where the value begins with it.
type processMap struct {
	name  string
	m     *ebpf.Map
	pidAt int
}

func processMaps(k *kernel.Kernel) []processMap {
	return []processMap{
		{bpf.MapTargets, k.Targets, 0},
		{bpf.MapMappings, k.Mappings, 0},
		{bpf.MapPythons, k.Pythons, 0},
		{bpf.MapRequests, k.Requests, 0},
		{bpf.MapSteps, k.Steps, 0},
		{bpf.MapLive, k.Live, 8},
		{bpf.MapTensors, k.Tensors, 8},
		{bpf.MapTallies, k.Tallies, 8},
		{bpf.MapFaults, k.Faults, 8},
		{bpf.MapGpuLive, k.GpuLive, 8},
		{bpf.MapGpuMappings, k.GpuMappings, 8},
		{bpf.MapGpuUsers, k.GpuUsers, 0},
		{bpf.MapGpuTotals, k.GpuTotals, 0},
		{bpf.MapReportedCodes, k.ReportedCodes, 12},
		{bpf.MapReportedStacks, k.ReportedStacks, -1},
	}
}

// entries counts the entries of a process in each BPF map. Maps with nothing of it are left out.
func entries(t testing.TB, s *tracer.Session, pid int) map[string]int {
	t.Helper()
	found := make(map[string]int)
	for _, of := range processMaps(tracer.Kernel(s)) {
		key, value := make([]byte, of.m.KeySize()), make([]byte, of.m.ValueSize())
		all := of.m.Iterate()

		for all.Next(&key, &value) {
			at := value
			if of.pidAt >= 0 {
				at = key[of.pidAt:]
			}
			if binary.NativeEndian.Uint32(at) == uint32(pid) {
				found[of.name]++
			}
		}

		if err := all.Err(); err != nil {
			t.Fatalf("%s: %v", of.name, err)
		}
	}
	return found
}

func mustHaveNoEntries(t testing.TB, s *tracer.Session, pid int) {
	t.Helper()
	if left := entries(t, s, pid); len(left) != 0 {
		t.Errorf("the kernel still has %v", left)
	}
}

func testSessionEndedProcessKeeps(t *testing.T) {
	dies, lives, late := startSteps(t), startSteps(t), startSteps(t)
	s := open(t, tracer.Options{PID: lives.PID(), Interval: 1})

	mustAttach(t, s, dies.PID())
	dies.Do("leak 300 96", "map 3 8192 8192")
	order(lives, "leak 200 64")
	end(t, s, dies)
	after := snapshot(t, s)
	mustHold(t, held(after.Of(dies.PID())), []string{"leak_here 300 28800"})
	mustHold(t, held(after.Of(lives.PID())), []string{"leak_here 200 12800"})
	if len(after.Alive) != 1 || after.Alive[0] != lives.PID() {
		t.Errorf("alive are %v, want %d alone", after.Alive, lives.PID())
	}

	if left := entries(t, s, dies.PID()); left[bpf.MapLive] != 300 ||
		left[bpf.MapReportedStacks] == 0 || left[bpf.MapMappings] != 1 {
		t.Errorf("before the next attach the kernel has %v",
			left) // and the check below proves something
	}

	mustAttach(t, s, late.PID())
	mustHaveNoEntries(t, s, dies.PID())

	last := snapshot(t, s)
	if n := len(last.Of(dies.PID()).Holdings); n != 0 {
		t.Errorf("%d holdings of a process that was given up", n)
	}

	mustHold(t, held(last.Of(lives.PID())), []string{"leak_here 200 12800"})
	mustLoseNothing(t, s)
}

func testSessionPythonProcessLeaves(t *testing.T) {
	script := `import sys
print("ready", flush=True)
for line in sys.stdin:
    for i in range(20): exec(compile(f"def f{i}(): return bytearray(5000)\nf{i}()", f"made{i}", "exec"))
    print("done", flush=True)`
	target, s := openOn(t, startCommand(t, exec.Command("python3", "-c", script)), exact)

	order(target, "go")
	if had := entries(t, s, target.PID()); had[bpf.MapReportedCodes] < 20 ||
		had[bpf.MapPythons] != 1 || had[bpf.MapTallies] == 0 {
		t.Fatalf("while it is traced the kernel has %v: the test is wrong", had)
	}

	end(t, s, target)
	_ = tracer.Detach(s, target.PID()) // a probe that cannot be detached has gone with its process
	mustHaveNoEntries(t, s, target.PID())
}

// Without address randomization, the functions of both programs lie at the same addresses. Their
// stacks have the same IDs.
func testSessionStacksNamedAgain(t *testing.T) {
	before := tracertest.Build(t, "steps.c", "-Dleak_here=leak_old")
	after := tracertest.Build(t, "steps.c", "-Dleak_here=leak_new")
	target, s := openOn(t, startCommand(t, exec.Command("setarch", "-R", before)), exact)

	order(target, "leak 300 96")
	old := snapshot(t, s)
	mustHold(t, held(old), []string{"leak_old 300 28800"})
	order(target, "leak 7 96") // reported, and not asked for any more
	target.Say("exec " + after)
	target.Await("ready")
	followUntilTraced(t, s, target.PID())
	order(target, "leak 200 64")
	now := snapshot(t, s)
	got := held(now)
	mustHold(t, got, []string{"leak_new 200 12800"})
	if _, ok := got["leak_old"]; ok {
		t.Errorf("of the old program it holds %v", got["leak_old"])
	}

	if a, b := stackOf(t, old, "leak_old"), stackOf(t, now, "leak_new"); a.ID != b.ID {
		t.Errorf("stacks %#x and %#x: addresses differ, the test is wrong", a.ID, b.ID)
	}
	mustLoseNothing(t, s)
}

func stackOf(t testing.TB, snapshot *growth.Snapshot, function string) *growth.Stack {
	t.Helper()
	for _, h := range snapshot.Holdings {
		if len(h.Stack.Frames) > 1 && h.Stack.Frames[1].Function == function {
			return h.Stack
		}
	}
	t.Fatalf("no stack of %s", function)
	return nil
}

// followUntilTraced follows the tree until a process is traced and its files have their unwind
// tables.
func followUntilTraced(t testing.TB, s *tracer.Session, pid int) {
	t.Helper()
	eventually(t, fmt.Sprintf("PID %d is traced", pid), func() bool {
		s.Follow()
		return s.IsTraced(pid)
	})
	awaitTables(s)
}

func testSessionAttachExecutionLasts(t *testing.T) {
	target, s := openOn(t, startSteps(t), exact)
	target.Say("exec " + target.Path)
	target.Await("ready")
	eventually(t, "the execution is noticed", func() bool { return !s.IsTraced(target.PID()) })
	mustAttach(t, s, target.PID()) // before the tree has been scanned
	order(target, "leak 300 96")
	s.Follow()
	mustHold(t, held(snapshot(t, s)), []string{"leak_here 300 28800"})
}

func testSessionReusedPIDEnded(t *testing.T) {
	root, dies := startSteps(t), startSteps(t)
	s := open(t, tracer.Options{PID: root.PID(), Interval: 1, Children: true})

	mustAttach(t, s, dies.PID())
	order(dies, "leak 300 96")
	end(t, s, dies)
	impostor := startForkWithPID(t, dies.PID())
	before, _ := counters(t, s)
	order(impostor, "500")
	after, _ := counters(t, s)
	if more := after.MappingCalls - before.MappingCalls; more > 0 { // the root makes none
		t.Errorf("%d mapping calls are counted", more)
	}

	s.Follow()
	s.Sample()
	got := snapshot(t, s)
	mustHold(t, held(got.Of(dies.PID())), []string{"leak_here 300 28800"})
	for _, h := range got.Holdings {
		if h.Kind != growth.KindHeap && h.Stack.PID == dies.PID() && h.InuseBytes > 0 {
			t.Errorf("%v holds %d bytes of mappings", functions(h.Stack), h.InuseBytes)
		}
	}

	_ = tracer.Detach(s, dies.PID())
	mustHaveNoEntries(t, s, dies.PID())
}

// startForkWithPID starts a process with a free PID, which executes no program of its own. On an
// order N it makes N allocations and N mappings.
func startForkWithPID(t testing.TB, pid int) *tracertest.Target {
	t.Helper()
	command := exec.Command("python3", "-B", "-c", `import ctypes, os, sys
from forkas import fork_as
libc = ctypes.CDLL(None)
libc.malloc.restype = libc.mmap.restype = ctypes.c_void_p
child = fork_as(int(sys.argv[1]))
if child: os.waitpid(child, 0); sys.exit()
print("ready", flush=True)
for line in sys.stdin:
    for i in range(int(line)): libc.malloc(96); libc.mmap(None, ctypes.c_size_t(8192), 3, 34, -1, ctypes.c_long(0))
    print("done", flush=True)`, strconv.Itoa(pid))
	command.Env = append(os.Environ(), "PYTHONPATH="+tracertest.Source(""))
	return startCommand(t, command)
}

func testSessionReusedPIDAttached(t *testing.T) {
	root, dies := startSteps(t), startSteps(t)
	s := open(t, tracer.Options{PID: root.PID(), Interval: 1})

	held := openProcess(t, dies.PID())
	dies.Hangup()
	startForkWithPID(t, dies.PID())
	before := settledDescriptors(t)
	if err := tracer.Attach(s, held, nil); err == nil || !strings.Contains(err.Error(), "exited") {
		t.Errorf("%v, want that it has exited", err)
	}

	more := settledDescriptors(t) - before
	if len(tracer.Targets(s)) != 1 || more != 0 || len(entries(t, s, dies.PID())) != 0 {
		t.Errorf("%d targets, %d descriptors more, kernel has %v", len(tracer.Targets(s)), more,
			entries(t, s, dies.PID()))
	}
}

// A process exits at some moment of an attach, later in each round.
func testSessionExitDuringAttach(t *testing.T) {
	_, s := openOn(t, startSteps(t), exact)

	mustAttach(t, s, startSteps(t).PID()) // for objects that are made once
	awaitTables(s)
	const rounds, step = 30, 3 * time.Millisecond
	before, failed := settledDescriptors(t), 0
	for i := range rounds {
		pid, err := attachDying(t, s, time.Duration(i)*step)
		if err != nil {
			failed++
			mustBeGone(t, err)
		}

		eventually(t, "the end is noticed", func() bool { return !s.IsTraced(pid) })
		_ = tracer.Detach(s, pid)
		mustHaveNoEntries(t, s, pid)
	}
	if failed == 0 {
		t.Error("no attach has failed: the test is wrong")
	}

	if more := settledDescriptors(t) - before; more > 0 {
		t.Errorf("%d descriptors are left", more)
	}
	if len(tracer.Targets(s)) != 2 {
		t.Errorf("%d targets, want 2", len(tracer.Targets(s)))
	}
}

// attachDying attaches to a process that is killed so long after attaching began, or at its
// end.
func attachDying(t testing.TB, s *tracer.Session, after time.Duration) (pid int, err error) {
	t.Helper()
	target := exec.Command(tracertest.Build(t, "steps.c"))
	input := tracertest.Must(target.StdinPipe())(t)
	must(t, target.Start())

	held := openProcess(t, target.Process.Pid)
	killer := time.AfterFunc(after, func() { target.Process.Kill() })
	err = tracer.Attach(s, held, nil)
	killer.Stop()
	held.Close()
	target.Process.Kill()
	input.Close()
	target.Wait()
	return target.Process.Pid, err
}

// mustBeGone wants an error about the end of a process, or about its being too young.
func mustBeGone(t testing.TB, err error) {
	t.Helper()
	gone := []error{tracer.ErrExited, process.ErrNotFound, process.ErrZombie, process.ErrKernelThread}
	if !slices.ContainsFunc(gone, func(known error) bool { return errors.Is(err, known) }) &&
		!errors.Is(err, tracer.ErrNoSource) &&
		!strings.Contains(err.Error(), "executed another program") {
		t.Errorf("%v", err)
	}
}

func testSessionFiftyAttachesLeave(t *testing.T) {
	root, target := startSteps(t), startSteps(t)
	s := open(t, tracer.Options{PID: root.PID(), Interval: 1})

	round := func() {
		mustAttach(t, s, target.PID())
		target.Do("hold 100 64", "drop")
		mustDetach(t, s, target.PID())
	}

	round()
	awaitTables(s)
	mustLeaveNothing(t, func() {
		for range 50 {
			round()
		}
	})

	mustHaveNoEntries(t, s, target.PID())

	order(target, "hold 100 64") // it works as before
	mustLoseNothing(t, s)
}

// The process is stopped at the start of its program, before its linker has run.
func testSessionProcessBeingLoaded(t *testing.T) {
	runtime.LockOSThread() // the tracer is this thread
	defer runtime.UnlockOSThread()
	command := exec.Command(tracertest.Build(t, "steps.c"))
	command.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	target := tracertest.StartCommand(t, command)
	_, err := unix.Wait4(target.PID(), nil, 0, nil)
	must(t, err)

	s := open(t, tracer.Options{PID: target.PID(), Interval: 1})

	if isAttached(s, "heap") {
		t.Fatal("there is an allocator already: the test is wrong")
	}
	must(t, unix.PtraceDetach(target.PID()))

	target.Await("ready")
	s.Follow()
	awaitTables(s)
	if !isAttached(s, "heap") {
		t.Errorf("%+v", s.Sources())
	}

	order(target, "leak 300 96")
	mustHold(t, held(snapshot(t, s)), []string{"leak_here 300 28800"})
}

func testSessionExecutionDuringAttach(t *testing.T) {
	root, target := startSteps(t), startSteps(t)
	s := open(t, tracer.Options{PID: root.PID(), Interval: 1})

	err := tracer.Attach(s, openProcess(t, target.PID()), func() {
		target.Say("exec " + target.Path)
		target.Await("ready")
	})
	if err == nil || !strings.Contains(err.Error(), "executed another program") {
		t.Errorf("%v", err)
	}
	mustHaveNoEntries(t, s, target.PID())
}

// Two flushes at a time wake the reader once. Each has to get its answer.
func testSessionConcurrentFlushesAnswered(t *testing.T) {
	_, s := openOn(t, start(t, tracertest.Build(t, "bursts.c")), exact)

	done := make(chan struct{})
	var flushing sync.WaitGroup
	for range 8 {
		flushing.Go(func() {
			for range 500 {
				tracer.Flush(s)
			}
		})
	}

	go func() { flushing.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("a flush waits for ever")
	}
}
