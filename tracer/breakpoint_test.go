package tracer_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/probe"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// TestBreakpoints checks that no process keeps breakpoints of a trace that has ended.
func TestBreakpoints(t *testing.T) {
	t.Run("forked worker loses its breakpoints", testBreakpointsWorker)
	t.Run("fork keeps no breakpoints", testBreakpointsFork)
	t.Run("executed program gets no breakpoints", testBreakpointsExecuted)
	t.Run("file mapped over a probed library gets no breakpoints", testBreakpointsRemapped)
	t.Run("job keeps no breakpoints after an interrupt or a kill", testBreakpointsJob)
}

// forks allocates objects of 777 bytes in a child and then of 778 itself.
const forks = `import os, sys, ctypes
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
print("ready", flush=True)
r, w = os.pipe()
sys.stdin.readline()
pid = os.fork()
if pid == 0:
    for i in range(3000): libc.malloc(777)
    os.write(w, b"x")
    sys.stdin.read()
    os._exit(0)
os.read(r, 1)
for i in range(50): libc.malloc(778)
print(pid, flush=True)
print("done", flush=True)
sys.stdin.read()`

// breakpoints are where the code of a process differs from the files that it was mapped from.
func breakpoints(t testing.TB, pid int) (at []uint64) {
	t.Helper()
	p := openProcess(t, pid)
	defer p.Close()
	maps := tracertest.Must(p.Maps())(t)

	compared := make(map[string]bool)
	for _, m := range maps {
		if !m.Execute || !m.IsFile() {
			continue
		}

		file, memory := readMapped(t, p, m), make([]byte, m.Len())
		must(t, p.ReadMemory(m.Start, memory))
		compared[m.Path] = true
		for i := range file {
			if file[i] != memory[i] {
				at = append(at, m.Start+uint64(i))
			}
		}
	}

	if program, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); !compared[program] {
		t.Fatalf("PID %d maps %v with code, and not its program (%v)", pid, compared, err)
	}
	return at
}

// readMapped reads the file behind a mapping. Bytes behind its end are zero, as in the mapping.
func readMapped(t testing.TB, p *process.Process, m process.Mapping) []byte {
	t.Helper()
	f := tracertest.Must(p.OpenMapped(m))(t)
	defer f.Close()
	content := make([]byte, m.Len())
	if n, err := f.ReadAt(content, int64(m.Offset)); n == 0 {
		t.Fatal(err)
	}
	return content
}

// A forked child has its parent's breakpoints until the trace takes them away from all.
func testBreakpointsFork(t *testing.T) {
	command := exec.Command(python, "-c", forks)
	command.Env = append(os.Environ(), "LD_LIBRARY_PATH="+ownLibc(t))
	target, s := openOn(t, startCommand(t, command), exact)

	child := tracertest.Must(strconv.Atoi(target.Do("go")[0]))(t)

	sizes := map[int64]float64{777: 0, 778: 50}
	got := snapshot(t, s)
	for _, h := range got.Holdings {
		if each := h.InuseBytes / max(1, int64(h.InuseObjects)); h.Kind == growth.KindHeap &&
			(each == 777 || each == 778) {
			sizes[each] -= h.InuseObjects
		}
	}
	if sizes[777] != 0 || sizes[778] != 0 {
		t.Errorf("of the child %v objects too few are counted, of the parent %v", sizes[777],
			sizes[778])
	}

	if len(breakpoints(t, child)) == 0 {
		t.Error("the child has not inherited breakpoints: the test is wrong")
	}
	must(t, s.Close())

	for _, pid := range []int{target.PID(), child} {
		if left := breakpoints(t, pid); len(left) != 0 {
			t.Errorf("PID %d has breakpoints left: %v", pid, left)
		}
	}
	if err := syscall.Kill(child, 0); err != nil {
		t.Errorf("the child: %v", err)
	}
}

// ownLibc returns a folder with a copy of the C library. Another tracer that probes the same file,
// such as the tracer of another test, removes the breakpoints of a child that it does not trace.
func ownLibc(t *testing.T) string {
	t.Helper()
	path := tracertest.Must(exec.Command("gcc", "-print-file-name=libc.so.6").Output())(t)
	folder := t.TempDir()
	copyFile(t, strings.TrimSpace(string(path)), filepath.Join(folder, "libc.so.6"))
	return folder
}

// A worker that is forked during a trace loses its breakpoints while the trace goes on, and its
// parent keeps its own. The program is linked statically: another tracer that probes the same file
// may remove or keep breakpoints, too.
func testBreakpointsWorker(t *testing.T) {
	eachMode(t, func(t *testing.T, mode probe.Mode) {
		program := tracertest.Build(t, "pair.c", "-static")
		target := startCommand(t, exec.Command(program, "1000", "64"))
		s := open(t, tracer.Options{PID: target.PID(), Children: true, Interval: 1, Mode: mode})
		probed := breakpoints(t, target.PID())

		child := tracertest.Must(strconv.Atoi(target.Do("fork")[0]))(t)
		if left := breakpoints(t, child); len(probed) == 0 || !slices.Equal(left, probed) {
			t.Fatalf("the child has inherited %v of %v", left, probed)
		}

		s.Follow()
		target.Do("go")
		most := 0
		if mode == probe.Single { // each removes itself at its first hit: malloc's and free's
			most = len(probed) - 2
		}
		if left := breakpoints(t, child); len(left) > most {
			t.Errorf("the child has %v left of %v", left, probed)
		}
		if left := breakpoints(t, target.PID()); !slices.Equal(left, probed) {
			t.Errorf("the parent has %v left of %v", left, probed)
		}
		target.Do("leave")
	})
}

// The next program of a process is rid of the probes at once, whether it will be traced or not.
func testBreakpointsExecuted(t *testing.T) {
	eachMode(t, func(t *testing.T, mode probe.Mode) {
		next := tracertest.Build(t, "pair.c")
		target := startCommand(t,
			exec.Command("sh", "-c", "echo ready; read line; exec "+next+" 1000 64"))
		open(t, tracer.Options{PID: target.PID(), Interval: 1, Mode: mode})
		if len(breakpoints(t, target.PID())) == 0 {
			t.Fatal("the shell has no breakpoints: the test is wrong")
		}

		target.Say("go")
		target.Await("ready")
		eventually(t, "the next program has no breakpoints", func() bool {
			return len(breakpoints(t, target.PID())) == 0
		})
	})
}

// Probes stay with the file that was read. If they followed the path of its mapping, a process could
// have any file changed that it can map, at offsets of its choice: a setuid program, too.
func testBreakpointsRemapped(t *testing.T) {
	eachMode(t, func(t *testing.T, mode probe.Mode) {
		library := tracertest.Build(t, "preload.c", "-shared", "-fPIC")
		other := copied(t, library, "other.so")
		command := preloading(library, exec.Command(tracertest.Build(t, "remap.c"), library, other))
		target, s := openOn(t, startCommand(t, command), tracer.Options{Interval: 1, Mode: mode})
		if len(breakpoints(t, target.PID())) == 0 {
			t.Fatal("the library has no breakpoints: the test is wrong")
		}

		closeHeap(t, s)
		target.Do("remap")
		openBurst(t, s)

		maps := mapsOf(t, target.PID())
		for _, at := range breakpoints(t, target.PID()) {
			if m, _ := process.FindMapping(maps, at); m.Path == other {
				t.Errorf("%s has a breakpoint at %#x, and was never read", other, at)
			}
		}
	})
}

func testBreakpointsJob(t *testing.T) {
	tracertest.NeedsRoot(t)
	command, j := buildCommand(t), startJob(t, 4)
	for _, signal := range []os.Signal{os.Interrupt, os.Kill} {
		trace := exec.Command(command, "trace", "--pid", strconv.Itoa(j.PID()), "--interval", "1",
			"--overhead", "off", "--output", filepath.Join(t.TempDir(), "trace"))
		var said bytes.Buffer
		trace.Stdout, trace.Stderr = io.Discard, &said
		must(t, trace.Start())

		for _, r := range j.ranks {
			eventually(t, "breakpoints are there", func() bool { return len(breakpoints(t, r.pid)) > 5 })
			r.order("leak 100 64")
		}
		trace.Process.Signal(signal)
		if err := trace.Wait(); err != nil && signal == os.Interrupt {
			t.Errorf("%v: %s", err, said.String())
		}

		for _, r := range j.ranks {
			if left := breakpoints(t, r.pid); len(left) != 0 {
				t.Errorf("after %v, PID %d has breakpoints left: %v", signal, r.pid, left)
			}
			r.order("leak 100 64")
		}
	}
}
