package tracer_test

import (
	"fmt"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

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
	if details := source(t, s, "heap").Details; !slices.Contains(details, want) {
		t.Errorf("%q, want %q", details, want)
	}
}

func TestKernelRefusesTheModesThatItLacks(t *testing.T) {
	target := tracertest.Start(t, tracertest.Build(t, "semantics.c", "-pthread"))
	target.Await("ready")
	for mode := range since {
		s, err := tracer.Open(tracer.Options{PID: target.PID(), Mode: mode})
		attached := err == nil && source(t, s, "heap").Attached
		if s != nil {
			s.Close()
		}
		if attached != slices.Contains(modes, mode) {
			t.Errorf("%s: attached is %t (%v); this kernel should have %v", mode, attached, err, modes)
		}
	}
}
