package tracer_test

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/probe"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// since has the first kernel with a mode, as KERNEL_VERSION of <linux/version.h> packs major and minor.
var since = map[probe.Mode]int{probe.Single: 5<<8 | 15, probe.Multi: 6<<8 | 6, probe.Session: 6<<8 | 13}

// tellsZeroPages is the first kernel that tells pages which only read zeros from others, by PAGEMAP_SCAN.
const tellsZeroPages = 6<<8 | 7

// The tests of every mode use those that this kernel has; the others are tried below.
func init() {
	modes = slices.DeleteFunc(modes, func(m probe.Mode) bool { return since[m] > runningKernel() })
}

// runningKernel is its version in the form of since.
func runningKernel() int {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		panic(err)
	}
	var major, minor int
	if _, err := fmt.Sscanf(unix.ByteSliceToString(name.Release[:]), "%d.%d", &major, &minor); err != nil {
		panic(err)
	}
	return major<<8 | minor
}

func TestKernelChoosesItsBestMode(t *testing.T) {
	target := tracertest.Start(t, tracertest.Build(t, "semantics.c", "-pthread"))
	target.Await("ready")
	s := open(t, tracer.Options{PID: target.PID()})
	want := "attached by " + slices.Max(modes).String()
	if details := sourceOf(t, s, "heap").Details; !slices.Contains(details, want) {
		t.Errorf("%q, want %q", details, want)
	}
}

func TestKernelRefusesTheModesThatItLacks(t *testing.T) {
	target := tracertest.Start(t, tracertest.Build(t, "semantics.c", "-pthread"))
	target.Await("ready")
	for mode := range since {
		s, err := tracer.Open(t.Context(), tracer.Options{PID: target.PID(), Mode: mode})
		attached := err == nil && sourceOf(t, s, "heap").Attached
		if s != nil {
			s.Close()
		}
		if attached != slices.Contains(modes, mode) {
			t.Errorf("%s: attached is %t (%v); this kernel should have %v", mode, attached, err, modes)
		}
	}
}

// Native frames, by unwind tables: this program keeps no frame pointers.
func TestKernelStacksOfCAreWhole(t *testing.T) {
	h := startHost(t)
	h.load(tracertest.Build(t, "plugin.c", "-shared", "-fPIC", "-fomit-frame-pointer", "-DSIZE=118"), "kernel.so")
	h.mustFollow(118)
}

// Python frames with their lines, between native ones: deep.py calls itself through reduce() and sorted().
func TestKernelStacksOfPythonNameEveryLine(t *testing.T) {
	const mappings = 20
	target := tracertest.Start(t, python, tracertest.Source("deep.py"))
	target.Await("ready")
	s := open(t, tracer.Options{PID: target.PID()})
	target.Say(strconv.Itoa(mappings))
	target.Await("done")
	calls := 0
	for _, h := range snapshot(t, s).Holdings {
		if frames := ofPython(h.Stack); len(frames) > 0 && frames[0].Function == "work" {
			calls += int(h.AllocObjects)
			mustBeDeep(t, frames)
		}
	}
	if calls != mappings {
		t.Errorf("%d mappings by work(), want %d", calls, mappings)
	}
	if there, told := s.RereadCodes(); there != told || told < 5 {
		t.Errorf("%d of %d code objects have the fingerprint that the kernel side gave them", there, told)
	}
	mustLoseNothing(t, s)
}

func ofPython(s *growth.Stack) []growth.Frame {
	return slices.DeleteFunc(slices.Clone(s.Frames), func(f growth.Frame) bool { return !f.Python })
}

// mustBeDeep compares with what deep.py does, whose lines the text of the program tells.
func mustBeDeep(t *testing.T, frames []growth.Frame) {
	t.Helper()
	source, err := os.ReadFile(tracertest.Source("deep.py"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(source), "\n")
	want := []string{"mmap.mmap(", "work(times)"}
	for level := 1; level <= 3; level++ {
		call := []string{"functools.reduce(", "sorted("}[1-level%2]
		want = append(want, call, call) // the lambda, and the function that it is in
	}
	want = append(want, "descend(LEVELS, ", "main()")
	if len(frames) != len(want) {
		t.Errorf("%d frames, want %d: %v", len(frames), len(want), frames)
		return
	}
	for i, f := range frames {
		if f.Line < 1 || f.Line > len(lines) || !strings.Contains(lines[f.Line-1], want[i]) {
			t.Errorf("frame %d is %s in line %d, want the line with %q", i, f.Function, f.Line, want[i])
		}
	}
}
