package tracer_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/probe"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// TestContainer traces across PID and mount namespaces, from outside and from inside.
func TestContainer(t *testing.T) {
	t.Run("target in a container", testContainerTargetContainer)
	t.Run("target on a file system of its own", testContainerTargetFileSystem)
	t.Run("other processes inside the container", testContainerOtherProcessesInside)
	t.Run("target in another container is refused", testContainerTargetAnotherContainer)
	t.Run("child in a container of its own is not traced", testContainerChildNotTraced)
	t.Run("NVML counts by the PID outside", testContainerNVMLCountsPID)
}

// fillRoot makes a folder into which a program can change its root: the program and copies of the
// libraries that it needs.
func fillRoot(t *testing.T, program string) (root, inside string) {
	t.Helper()
	root = t.TempDir()
	inside = "/" + filepath.Base(program)
	copyFile(t, program, filepath.Join(root, inside))
	out, err := exec.Command("ldd", program).Output()
	if err != nil {
		t.Fatalf("ldd %s: %v (apt-get install libc-bin)", program, err)
	}

	for line := range strings.Lines(string(out)) {
		for _, word := range strings.Fields(line) {
			if strings.HasPrefix(word, "/") {
				copyFile(t, word, filepath.Join(root, word))
			}
		}
	}
	return root, inside
}

func namespace(t *testing.T, process any, kind string) string {
	t.Helper()
	link := tracertest.Must(os.Readlink(fmt.Sprintf("/proc/%v/ns/%s", process, kind)))(t)
	return link
}

// startContained starts the leaking program in a root folder and namespaces of its own.
// --kill-child: it ends with the test.
func startContained(t *testing.T, program string, namespaces ...string) (target *tracertest.Target,
	pid int,
) {
	t.Helper()
	root, inside := fillRoot(t, program)
	arguments := append(namespaces, "--fork", "--kill-child", "chroot", root, inside)
	target = start(t, "unshare", append(arguments, leakArguments...)...)
	pid = children(t, target.PID())[0]
	for _, kind := range []string{"mnt", "pid"} {
		if namespace(t, pid, kind) == namespace(t, "self", kind) {
			t.Fatalf("the target is in our %s namespace: the test is wrong", kind)
		}
	}
	return target, pid
}

func testContainerTargetContainer(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, mode probe.Mode) {
		program := tracertest.Build(t, "leak.c", "-pthread")
		target, pid := startContained(t, program, "--mount", "--pid", "--ipc", "--uts")
		s := mustCountLeak(t, target, tracer.Options{
			PID: pid, Interval: 1, Mode: mode, Sources: heapAlone,
		})
		mustLoseNothing(t, s)
		mustProbeIn(t, s, "libc.so.6", "malloc", "free")
	})
}

// Its file system is mounted in the container alone: no path of ours leads to it.
func testContainerTargetFileSystem(t *testing.T) {
	program := tracertest.Build(t, "leak.c", "-pthread")
	root, inside := fillRoot(t, program)
	private := t.TempDir()
	script := fmt.Sprintf(
		"mount -t tmpfs none %[1]s && cp -r %[2]s/. %[1]s && exec chroot %[1]s %[3]s 1 %[4]d %[5]d %[6]d",
		private, root, inside, leaks, leakSize, leakChurn)
	target := startCommand(t, exec.Command("unshare", "--mount", "--pid", "--fork",
		"--kill-child", "sh", "-c", script))
	if entries, err := os.ReadDir(private); err != nil || len(entries) != 0 {
		t.Fatalf("we see %v, %v in the target's file system: the test is wrong", entries, err)
	}

	s := mustCountLeak(t, target, tracer.Options{PID: children(t, target.PID())[0], Interval: 1})
	mustLoseNothing(t, s)
}

// inContainer is set where the test binary runs again, as a container would run it.
const inContainer = "ALLOCSCOPE_TEST_IN_CONTAINER"

// outsidesProc is the /proc of the namespace in which a test was started. It is passed to the one
// inside.
const outsidesProc = "/proc/self/fd/3"

// runContained runs the calling case once more in a PID namespace of its own, where it must pass.
func runContained(t *testing.T) {
	t.Helper()
	tracertest.NeedsRoot(t)
	program := tracertest.Must(os.Executable())(t)

	command := exec.Command("unshare", "--pid", "--fork", "--kill-child", "--mount-proc", program,
		"-test.run=^"+t.Name()+"$", "-test.v", "-test.count=1")
	command.Env = append(os.Environ(), inContainer+"="+namespace(t, "self", "pid"))
	proc := tracertest.Must(os.Open("/proc"))(t)
	defer proc.Close()
	command.ExtraFiles = []*os.File{proc}
	out, err := command.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("in a PID namespace of its own: %v\n%s", err, out)
	}
}

// pidOutside is the PID of one of our processes in the namespace in which the test was started.
func pidOutside(t *testing.T, pid int) int {
	t.Helper()
	entries := tracertest.Must(os.ReadDir(outsidesProc))(t)

	ours := namespace(t, "self", "pid")
	for _, e := range entries {
		outside, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}

		link, _ := os.Readlink(filepath.Join(outsidesProc, e.Name(), "ns/pid"))
		status, _ := os.ReadFile(filepath.Join(outsidesProc, e.Name(), "status"))
		if link == ours && strings.Contains(string(status),
			fmt.Sprintf("\nNSpid:\t%d\t%d\n", outside, pid)) {
			return outside
		}
	}

	t.Fatalf("pid %d is in no /proc outside", pid)
	return 0
}

// isContained reports whether the case runs in a PID namespace of its own. Outside, it has it run
// there.
func isContained(t *testing.T) bool {
	t.Helper()
	outside := os.Getenv(inContainer)
	if outside == "" {
		runContained(t)
		return false
	}

	if namespace(t, "self", "pid") == outside || os.Getpid() != 1 {
		t.Fatalf("pid %d in PID namespace %s: the test is wrong", os.Getpid(), outside)
	}
	return true
}

func testContainerOtherProcessesInside(t *testing.T) {
	t.Parallel()
	if !isContained(t) {
		return
	}

	for _, mode := range modes {
		target := start(t, tracertest.Build(t, "leak.c", "-pthread"), leakArguments...)
		if target.PID() > 100 {
			t.Fatalf("the target's PID is %d: the test is wrong", target.PID())
		}

		s := mustCountLeak(t, target, tracer.Options{
			PID: target.PID(), Interval: 1, Mode: mode, Sources: heapAlone,
		})
		mustLoseNothing(t, s)
	}

	target, program := startMappings(t)
	s := open(t, tracer.Options{PID: target.PID(), Interval: 1})
	truth := reported(t, target.Do("go"))
	mustBe(t, measured(snapshot(t, s), program), truth)
	mustLoseNothing(t, s)
}

// Inside a container, the kernel shows no PIDs of processes in another one.
func testContainerTargetAnotherContainer(t *testing.T) {
	if !isContained(t) {
		return
	}

	_, pid := startContained(t, tracertest.Build(t, "leak.c", "-pthread"), "--mount", "--pid")
	s, err := tracer.Open(t.Context(), tracer.Options{PID: pid})
	if err == nil {
		s.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "PID namespace") ||
		!strings.Contains(err.Error(), "host") {
		t.Errorf("%v, want a refusal that names where to trace it from", err)
	}
}

// Inside a container, a child starts a container of its own, as bubblewrap does, and outgrows its
// parent.
func testContainerChildNotTraced(t *testing.T) {
	t.Parallel()
	if !isContained(t) {
		return
	}

	program := tracertest.Build(t, "tree.c")
	script := filepath.Join(t.TempDir(), "nested")
	text := fmt.Sprintf("#!/bin/sh\n(while echo grow 8; do sleep 0.1; done) | "+
		"unshare --pid --fork --kill-child %s\n", program)
	must(t, os.WriteFile(script, []byte(text), 0o700))
	parent, s := openOn(t, start(t, program), tracer.Options{Children: true})
	parent.Do("run " + script)

	for deadline := time.Now().Add(10 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nothing is said about the child, which outgrows its parent")
		}
		sample := s.Sample()
		for _, change := range s.Follow() {
			switch {
			case change.Event == growth.TreeTraced:
				t.Fatalf("traced: %+v, whose events the BPF programs cannot see", change)
			case change.Event != growth.TreeNotTraced:
				continue
			case namespace(t, change.PID, "pid") == namespace(t, "self", "pid"):
				t.Fatalf("not traced: %+v, in the tracer's namespace", change)
			case change.Err == nil || !strings.Contains(change.Err.Error(), "PID namespace"):
				t.Errorf("not traced: %+v, want the reason", change)
			}
			isChild := func(m growth.Member) bool { return m.PID == change.PID && !m.Traced }
			if !slices.ContainsFunc(sample.Members, isChild) {
				t.Errorf("PID %d is not on the timeline: %+v", change.PID, sample.Members)
			}
			return
		}
	}
}

// NVML counts PIDs of the host. One of another process there may equal the target's PID in the
// container.
func testContainerNVMLCountsPID(t *testing.T) {
	if !isContained(t) {
		return
	}

	g := startCUDA(t, libcuda(t))
	file := filepath.Join(t.TempDir(), "answers")
	t.Setenv("NVML_STUB", file)
	nvmlAnswers(t, file, "count 1", "memory.0 9000 80000",
		fmt.Sprintf("compute.0 %d:4000 %d:77", pidOutside(t, g.PID()), g.PID()))
	s := open(t, tracer.Options{PID: g.PID(), NVML: tracertest.BuildNVML(t)})

	sampleUntil(t, s, "NVML is read", func(m growth.TreeSample) bool { return len(m.GPUs) == 1 })
	mustBeUsed(t, s, growth.Unknown, growth.GPUUnknownPID)
	g.Do("hold malloc 1 1000")
	moment := sampleUntil(t, s, "its own by its PID outside", usedIs(4000))
	if !slices.Equal(moment.GPUs[0].Users, []int{g.PID()}) {
		t.Errorf("GPU %+v, want PID %d on it", moment.GPUs[0], g.PID())
	}
}
