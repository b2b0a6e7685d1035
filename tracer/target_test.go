package tracer_test

// What belongs to one process stays with it, and goes with it.

import (
	"encoding/binary"
	"fmt"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

func startSteps(t testing.TB, flags ...string) *tracertest.Target {
	t.Helper()
	target := tracertest.Start(t, tracertest.Build(t, "steps.c", flags...))
	target.Await("ready")
	return target
}

func order(target *tracertest.Target, format string, arguments ...any) {
	target.Say(fmt.Sprintf(format, arguments...))
	target.Await("done")
}

// end makes a target exit, and waits for it.
func end(t testing.TB, s *tracer.Session, target *tracertest.Target) {
	t.Helper()
	target.Hangup()
	eventually(t, "the end is noticed", func() bool { return !s.IsTraced(target.PID()) })
}

func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for range 1000 {
		if holds() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("not in ten seconds: %s", what)
}

// maps of the kernel side by process: where the PID stands in the key, or in the value.
var mapsByProcess = map[string]func(key, value []byte) []byte{
	"targets":         func(key, _ []byte) []byte { return key },
	"mappings":        func(key, _ []byte) []byte { return key },
	"pythons":         func(key, _ []byte) []byte { return key },
	"requests":        func(key, _ []byte) []byte { return key },
	"steps":           func(key, _ []byte) []byte { return key },
	"live":            func(key, _ []byte) []byte { return key[8:] },
	"tensors":         func(key, _ []byte) []byte { return key[8:] },
	"tallies":         func(key, _ []byte) []byte { return key[8:] },
	"gpu_live":        func(key, _ []byte) []byte { return key[8:] },
	"gpu_mappings":    func(key, _ []byte) []byte { return key[8:] },
	"gpu_users":       func(key, _ []byte) []byte { return key },
	"gpu_totals":      func(key, _ []byte) []byte { return key },
	"reported_codes":  func(key, _ []byte) []byte { return key[12:] },
	"reported_stacks": func(_, value []byte) []byte { return value },
}

// entries counts what each map of the kernel side has of a process; maps with nothing of it are left out.
func entries(t testing.TB, s *tracer.Session, pid int) map[string]int {
	t.Helper()
	found := make(map[string]int)
	for name, place := range mapsByProcess {
		all := s.Maps()[name].Iterate()
		key := make([]byte, s.Maps()[name].KeySize())
		value := make([]byte, s.Maps()[name].ValueSize())
		for all.Next(&key, &value) {
			if binary.NativeEndian.Uint32(place(key, value)) == uint32(pid) {
				found[name]++
			}
		}
		if err := all.Err(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	return found
}

func TestWhatAnEndedProcessHeldStaysUntilAnotherIsAttachedAndNothingIsLeftThen(t *testing.T) {
	dies, lives, late := startSteps(t), startSteps(t), startSteps(t)
	s := open(t, tracer.Options{PID: lives.PID(), Interval: 1})
	if err := s.Attach(dies.PID()); err != nil {
		t.Fatal(err)
	}
	order(dies, "leak 300 96")
	order(dies, "map 3 8192 8192")
	order(lives, "leak 200 64")
	end(t, s, dies)
	after := snapshot(t, s)
	mustHold(t, held(after.Of(dies.PID())), []string{"leak_here 300 28800"})
	mustHold(t, held(after.Of(lives.PID())), []string{"leak_here 200 12800"})
	if len(after.Alive) != 1 || after.Alive[0] != lives.PID() {
		t.Errorf("alive are %v, want %d alone", after.Alive, lives.PID())
	}
	if left := entries(t, s, dies.PID()); left["live"] != 300 || left["seen"] == 0 || left["mappings"] != 1 {
		t.Errorf("before the next attach the kernel has %v", left) // and the check below proves something
	}
	if err := s.Attach(late.PID()); err != nil {
		t.Fatal(err)
	}
	if left := entries(t, s, dies.PID()); len(left) != 0 {
		t.Errorf("the kernel still has %v", left)
	}
	last := snapshot(t, s)
	if n := len(last.Of(dies.PID()).Holdings); n != 0 {
		t.Errorf("%d holdings of a process that was given up", n)
	}
	mustHold(t, held(last.Of(lives.PID())), []string{"leak_here 200 12800"})
	mustLoseNothing(t, s)
}

func TestNothingOfAPythonProcessIsLeftInTheKernel(t *testing.T) {
	script := `import sys
print("ready", flush=True)
for line in sys.stdin:
    for i in range(20): exec(compile(f"def f{i}(): return bytearray(5000)\nf{i}()", f"made{i}", "exec"))
    print("done", flush=True)`
	target := tracertest.StartCommand(t, exec.Command("python3", "-c", script))
	target.Await("ready")
	s := open(t, tracer.Options{PID: target.PID(), Interval: 1})
	order(target, "go")
	if had := entries(t, s, target.PID()); had["codes"] < 20 || had["pythons"] != 1 || had["tallies"] == 0 {
		t.Fatalf("while it is traced the kernel has %v: the test is wrong", had)
	}
	end(t, s, target)
	s.RetireEnded()
	if left := entries(t, s, target.PID()); len(left) != 0 {
		t.Errorf("the kernel still has %v", left)
	}
}

// Without randomization, the functions of two programs lie at the same addresses: their stacks have the same IDs.
func TestStacksOfAProgramExecutedInPlaceAreNamedAfresh(t *testing.T) {
	before := tracertest.Build(t, "steps.c", "-Dleak_here=leak_old")
	after := tracertest.Build(t, "steps.c", "-Dleak_here=leak_new")
	target := tracertest.StartCommand(t, exec.Command("setarch", "-R", before))
	target.Await("ready")
	s := open(t, tracer.Options{PID: target.PID(), Interval: 1})
	order(target, "leak 300 96")
	old := snapshot(t, s)
	mustHold(t, held(old), []string{"leak_old 300 28800"})
	order(target, "leak 7 96") // told, and not asked for any more
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

// stackOf is the stack of the allocations that a function has made.
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

// followUntilTraced follows the tree until a process is traced, and its files have their unwind tables.
func followUntilTraced(t testing.TB, s *tracer.Session, pid int) {
	t.Helper()
	eventually(t, fmt.Sprintf("PID %d is traced", pid), func() bool {
		s.Follow()
		return s.IsTraced(pid)
	})
	s.AwaitTables()
}

func TestAProgramThatIsAttachedAfterItsExecutionIsNotGivenUpForIt(t *testing.T) {
	target := startSteps(t)
	s := open(t, tracer.Options{PID: target.PID(), Interval: 1})
	target.Say("exec " + target.Path)
	target.Await("ready")
	eventually(t, "the execution is noticed", func() bool { return !s.IsTraced(target.PID()) })
	if err := s.Attach(target.PID()); err != nil { // before the tree has been looked at
		t.Fatal(err)
	}
	order(target, "leak 300 96")
	s.Follow()
	mustHold(t, held(snapshot(t, s)), []string{"leak_here 300 28800"})
}

func TestAReusedPIDIsNotTakenForATargetThatHasEnded(t *testing.T) {
	root, dies := startSteps(t), startSteps(t)
	s := open(t, tracer.Options{PID: root.PID(), Interval: 1, Children: true})
	if err := s.Attach(dies.PID()); err != nil {
		t.Fatal(err)
	}
	order(dies, "leak 300 96")
	end(t, s, dies)
	impostor := startForkWithPID(t, dies.PID())
	before, kept := mappingCalls(t, s), s.KeptCalls()
	order(impostor, "500")
	if more := mappingCalls(t, s) - before; more > 0 { // the root makes none
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
	if more := s.KeptCalls() - kept; more > 0 {
		t.Errorf("%d calls of a process that is not traced are kept", more)
	}
	s.RetireEnded()
	if left := entries(t, s, dies.PID()); len(left) != 0 {
		t.Errorf("the kernel still has %v", left)
	}
}

func mappingCalls(t testing.TB, s *tracer.Session) uint64 {
	t.Helper()
	events, _, err := s.Counters()
	if err != nil {
		t.Fatal(err)
	}
	return events.MappingCalls
}

// startForkWithPID starts a process that has the PID, which must be free, and executes no program of its own. Told N, it
// makes N allocations and N mappings.
func startForkWithPID(t testing.TB, pid int) *tracertest.Target {
	t.Helper()
	target := tracertest.StartCommand(t, exec.Command("python3", "-c", `import ctypes, os, sys
libc = ctypes.CDLL(None)
libc.malloc.restype = libc.mmap.restype = ctypes.c_void_p
wanted = int(sys.argv[1])
for i in range(1000):
    with open("/proc/sys/kernel/ns_last_pid", "w") as last: last.write(str(wanted - 1))
    pid = os.fork()
    if pid == 0: break
    if pid == wanted: os.waitpid(pid, 0); sys.exit()
    os.kill(pid, 9); os.waitpid(pid, 0)
if os.getpid() != wanted: libc.pause()
print("ready", flush=True)
for line in sys.stdin:
    for i in range(int(line)): libc.malloc(96); libc.mmap(None, ctypes.c_size_t(8192), 3, 34, -1, ctypes.c_long(0))
    print("done", flush=True)`, strconv.Itoa(pid)))
	target.Await("ready")
	return target
}
