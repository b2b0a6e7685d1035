package tracer_test

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/doctor"
	"github.com/allocscope/allocscope/tracer/probe"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// TestKernelModes checks in which modes this kernel probes functions.
func TestKernelModes(t *testing.T) {
	t.Run("best mode is chosen", testKernelModesBestModeChosen)
	t.Run("missing modes are refused", testKernelModesMissingModesRefused)
}

// TestKernelStacks checks that stacks are complete on every kernel.
func TestKernelStacks(t *testing.T) {
	t.Run("stacks of C are complete", testKernelStacksStacksCComplete)
	t.Run("stacks of Python name every line", testKernelStacksStacksPythonName)
	t.Run("more stacks than the kernel's map holds", testKernelStacksMoreStacksKernel)
}

// TestKernelBreakdown checks the RSS breakdown on every kernel.
func TestKernelBreakdown(t *testing.T) {
	t.Run("rows sum to RSS", testKernelBreakdownRowsSumRSS)
	t.Run("doctor reports how pages are found", testKernelBreakdownDoctorReportsHow)
}

func testKernelStacksMoreStacksKernel(t *testing.T) {
	const stacks, rounds = 1024, 3
	target := start(t, tracertest.Build(t, "stacks.c", "-fno-omit-frame-pointer"))
	s := open(t, tracer.Options{PID: target.PID(), Interval: 1, MaxStacks: 600})

	for range rounds {
		order(target, "go")
		snapshot(t, s)
	}

	seen := 0
	for _, h := range snapshot(t, s).Holdings {
		if len(h.Stack.Frames) < 12 || h.Stack.Truncated != "" {
			continue // of the C library
		}

		seen++
		if h.InuseObjects != rounds || h.InuseBytes != 100*rounds {
			t.Errorf("a stack holds %.0f objects, %d bytes, want %d, %d", h.InuseObjects,
				h.InuseBytes, rounds, 100*rounds)
		}
		if h.AllocObjects != rounds || h.AllocBytes != 100*rounds {
			t.Errorf("a stack has allocated %.0f objects, %.0f bytes, want %d, %d", h.AllocObjects,
				h.AllocBytes, rounds, 100*rounds)
		}
	}

	if seen != stacks {
		t.Errorf("%d distinct stacks, want %d", seen, stacks)
	}
	mustLoseNothing(t, s)
}

// since has the first kernel with a mode, as KERNEL_VERSION of <linux/version.h> packs major and
// minor.
var since = map[probe.Mode]int{
	probe.Single: 5<<8 | 15, probe.Multi: 6<<8 | 6,
	probe.Session: 6<<8 | 13,
}

// separatesZeroPages is the first kernel whose PAGEMAP_SCAN separates pages that only read zeros
// from others.
const separatesZeroPages = 6<<8 | 7

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
	if _, err := fmt.Sscanf(unix.ByteSliceToString(name.Release[:]), "%d.%d", &major,
		&minor); err != nil {
		panic(err)
	}
	return major<<8 | minor
}

func testKernelModesBestModeChosen(t *testing.T) {
	target := start(t, tracertest.Build(t, "semantics.c", "-pthread"))
	s := open(t, tracer.Options{PID: target.PID()})
	want := "attached by " + slices.Max(modes).String()
	if details := sourceOf(t, s, "heap").Details; !slices.Contains(details, want) {
		t.Errorf("%q, want %q", details, want)
	}
}

func testKernelModesMissingModesRefused(t *testing.T) {
	target := start(t, tracertest.Build(t, "semantics.c", "-pthread"))
	for mode := range since {
		s, err := tracer.Open(t.Context(), tracer.Options{PID: target.PID(), Mode: mode})
		attached := err == nil && sourceOf(t, s, "heap").Attached
		if s != nil {
			s.Close()
		}
		if attached != slices.Contains(modes, mode) {
			t.Errorf("%s: attached is %t (%v); this kernel should have %v", mode, attached, err,
				modes)
		}
	}
}

// Native frames, by unwind tables: this program keeps no frame pointers.
func testKernelStacksStacksCComplete(t *testing.T) {
	h := startHost(t)
	h.load(buildPlugin(t, 118), "kernel.so")
	h.mustFollow(118)
}

// Python frames with their lines, between native ones: deep.py calls itself through reduce() and
// sorted().
func testKernelStacksStacksPythonName(t *testing.T) {
	const mappings = 20
	target, s := openOn(t, start(t, python, tracertest.Source("deep.py")), tracer.Options{})

	target.Do(strconv.Itoa(mappings))
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
	if there, reported := rereadCodes(s); there != reported || reported < 5 {
		t.Errorf("%d of %d code objects have the fingerprint that the kernel side gave them", there,
			reported)
	}
	mustLoseNothing(t, s)
}

// rereadCodes reads the code objects that the kernel side has reported once more from the process.
// It returns how many there are, and how many still have their fingerprints.
func rereadCodes(s *tracer.Session) (there, reported int) {
	stacks := tracer.Targets(s)[0].Stacks
	stacks.Mu.Lock()
	defer stacks.Mu.Unlock()

	codes := stacks.Namer.Codes
	for key, code := range codes.Known {
		if code == nil {
			continue
		}

		reported++
		if again := codes.Read(key); again != nil && again.Function == code.Function {
			there++
		}
	}
	return there, reported
}

func ofPython(s *growth.Stack) []growth.Frame {
	return slices.DeleteFunc(slices.Clone(s.Frames), func(f growth.Frame) bool { return !f.Python })
}

// mustBeDeep compares the frames with the lines of deep.py that make the calls.
func mustBeDeep(t *testing.T, frames []growth.Frame) {
	t.Helper()
	source := tracertest.Must(os.ReadFile(tracertest.Source("deep.py")))(t)

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
			t.Errorf("frame %d is %s in line %d, want the line with %q", i, f.Function, f.Line,
				want[i])
		}
	}
}

// The first kernels that count resident memory for each CPU, not for each thread, and that add up
// the counts of CPUs when they are asked.
const (
	countsByCPU   = 6<<8 | 2
	countsExactly = 6<<8 | 17
)

// countSlack bounds how far the kernel's count of a process's resident memory is off the pages, in
// bytes. The count leaves out the last 64 page faults of threads, of up to 16 pages each, or
// batches of CPUs.
func countSlack(r growth.Resident) int64 {
	const counters = 3 // private, of files, shared
	kernel, cpus, page := runningKernel(), int64(runtime.NumCPU()), int64(process.PageSize)
	switch {
	case kernel < countsByCPU:
		return r.Threads * 64 * 16 * page
	case kernel < countsExactly:
		return counters * cpus * max(32, 2*cpus) * page
	}
	return 32 * page // of the kernel's own for it
}

func testKernelBreakdownDoctorReportsHow(t *testing.T) {
	for _, check := range doctor.Check(0) {
		if check.Name != "breakdown" {
			continue
		}
		if mayMiss := check.Remedy != ""; mayMiss != (runningKernel() < separatesZeroPages) {
			t.Errorf("%+v", check)
		}

		return
	}
	t.Error("there is no check of the page map")
}

// Each order needs another reading: of pages, of the signatures in them, of page faults and of
// pages that a fork shares.
func testKernelBreakdownRowsSumRSS(t *testing.T) {
	target := startBreakdown(t)
	do(t, target, "map_beyond")
	s := open(t, tracer.Options{PID: target.PID(), Interval: 1, Children: true})

	var facts []fact
	for _, order := range []string{
		"map_beyond", "heap_small", "heap_fragment", "map_touched",
		"file_read " + dataFile(t, 8<<20), "hold_inherited",
	} {
		facts = append(facts, do(t, target, order)...)
		mustReport(t, balanced(t, s), target.PID(), facts)
	}

	child := startChild(t, target, "fork", "done")
	awaitMember(t, s, child)
	copied := do(t, target, "child write_inherited")
	after := balanced(t, s)
	// A process that is not traced is scanned as often as a budget of CPU time allows: under emulation
	// not for each snapshot.
	for range 120 {
		if rowsOf(after, child)[growth.KindCOW] >= copied[0].bytes {
			break
		}
		time.Sleep(time.Second)
		after = balanced(t, s)
	}
	mustReport(t, after, target.PID(), facts)
	mustReport(t, after, child, copied)
	mustBeCopiesByTheKernel(t, after, child)
	var unmeasured int64
	if runningKernel() < separatesZeroPages { // which therefore reads the page map
		unmeasured = 128 << 30
	}

	if after.Mappings.Unmeasured != unmeasured {
		t.Errorf("%d bytes have not been scanned, want %d", after.Mappings.Unmeasured, unmeasured)
	}

	for _, r := range after.Residents {
		t.Logf("PID %d: RSS %d, by its pages %d, unexplained %d", r.PID, r.RSS, rollup(t, r.PID)["Rss"],
			rowsOf(after, r.PID)[growth.KindUnexplained])
	}
}
