package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// heldByKernel are the BPF programs and links that a process has open, by ID: programs by name, links by the name of the
// program that they run.
type heldByKernel struct {
	programs map[ebpf.ProgramID]string
	links    map[link.ID]string
}

// openIn reads from /proc what a process has open.
func openIn(t *testing.T, pid int) heldByKernel {
	t.Helper()
	held := heldByKernel{make(map[ebpf.ProgramID]string), make(map[link.ID]string)}
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file) // it may have been closed meanwhile
		if err != nil {
			continue
		}
		var program ebpf.ProgramID
		var of link.ID
		isLink := false
		for line := range strings.Lines(string(text)) {
			if n, _ := fmt.Sscanf(line, "link_id: %d", &of); n == 1 {
				isLink = true
			}
			_, _ = fmt.Sscanf(line, "prog_id: %d", &program) // or another line
		}
		if isLink {
			held.links[of] = nameOf(t, program)
		} else if program != 0 {
			held.programs[program] = nameOf(t, program)
		}
	}
	return held
}

func nameOf(t *testing.T, id ebpf.ProgramID) string {
	t.Helper()
	program, err := ebpf.NewProgramFromID(id)
	if err != nil {
		return "" // it has gone
	}
	defer program.Close()
	info, err := program.Info()
	if err != nil {
		t.Fatal(err)
	}
	return info.Name
}

// left counts what the kernel still has.
func (h heldByKernel) left() (n int) {
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

// Programs that are loaded can be seen; perf events cannot, and go with their links.
func TestNothingStaysInTheKernelAfterAKill(t *testing.T) {
	target := startSteps(t)
	c, _ := tracing(t, target)
	held := openIn(t, c.Process.Pid)
	var events int
	for _, name := range held.links {
		if name == "on_fault" {
			events++
		}
	}
	if events < runtime.NumCPU() || len(held.programs) < 5 || held.left() != len(held.programs)+len(held.links) {
		t.Fatalf("%d events of page faults, of %+v: the test is wrong", events, held)
	}
	c.signal(syscall.SIGKILL)
	c.wait()
	eventually(t, "the kernel has let go of all", func() bool { return held.left() == 0 })
	again, dir := tracing(t, target)
	do(target, "leak 1000 96")
	again.interrupt()
	for name, state := range states(readSummary(t, dir)) {
		if state != summary.SourceAttached && name != "step" {
			t.Errorf("source %s of the next trace is %s", name, state)
		}
	}
	mustHold(t, "leak_here", flat(readProfile(t, dir, folder.GrowthFile), "leak_here"), objects(1000, 96))
}

// Its functions are those of a library that the program has loaded, and its torch's allocator.
func TestNoProbeOnAGPUsDriverStaysAfterAKill(t *testing.T) {
	target := ready(tracertest.Start(t, tracertest.Build(t, "cuda.c", "-pthread"), tracertest.BuildLibrary(t, "libcuda.c", "libcuda.so.1")))
	do(target, "map %s", tracertest.BuildLibrary(t, "c10.cc", "libc10_cuda.so", "-DREPORT"))
	c, _ := tracing(t, target)
	held := openIn(t, c.Process.Pid)
	found := make(map[string]bool)
	for _, name := range held.links {
		found[name] = true
	}
	if !found["cuda_on_entry"] || !found["cuda_on_return"] || !found["on_block"] {
		t.Fatalf("%+v: the test is wrong", held)
	}
	c.signal(syscall.SIGKILL)
	c.wait()
	eventually(t, "the kernel has let go of all", func() bool { return held.left() == 0 })
	again, dir := tracing(t, target)
	again.interrupt()
	if state := states(readSummary(t, dir))["cuda"]; state != summary.SourceAttached {
		t.Errorf("source cuda of the next trace is %s", state)
	}
}
