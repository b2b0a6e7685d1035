package shim

import (
	"fmt"
	"maps"
	"testing"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

// TestWithoutC: the loader runs the library's constructor in a program without a C library, too.
func TestWithoutC(t *testing.T) {
	r := newRecorder(t)
	r.mark(MaxMarkers)
	program := tracertest.Build(t, "bare.c", "-nostdlib", "-ffreestanding", "-fno-stack-protector",
		"-fno-omit-frame-pointer")
	r.start("", program).Await("ready")
	if events := r.read(); len(events) > 0 {
		t.Errorf("%d events of a program that has no allocator", len(events))
	}
}

// TestWalker: a program's own dl_iterate_phdr allocates while the library looks for malloc.
func TestWalker(t *testing.T) {
	r := newRecorder(t)
	r.mark(MaxMarkers)
	r.start("", tracertest.Build(t, "walker.c", "-fno-builtin", "-ldl")).Await("done")
}

// TestSandbox: a sample makes no system call, and nor does the first one of a fork, while programs
// that start are held.
func TestSandbox(t *testing.T) {
	r := newRecorder(t)
	r.mark(MaxMarkers)
	target := r.start("", buildPreloaded(t), "sandbox")
	target.Await("ready")
	r.probe(HoldProbe, r.nothing)
	target.Say("go")
	lines := target.Await("done")
	if len(lines) != 1 {
		t.Fatalf("the program printed %q", lines)
	}

	var pid uint32
	fmt.Sscan(lines[0], &pid)
	counts := make(map[kind]int)
	for _, e := range r.read() {
		if e.PID == pid {
			counts[e.Kind]++
		}
	}
	if want := map[kind]int{started: 1, allocated: 200, freed: 200}; !maps.Equal(counts, want) {
		t.Errorf("events of the child: %v, want %v", counts, want)
	}
}

// TestForbidden: where a program has inherited a filter that forbids to sleep or to read the clock, it
// goes on at once.
func TestForbidden(t *testing.T) {
	r := newIdle(t)
	r.probe(HoldProbe, r.nothing)
	for _, call := range []string{"SYS_nanosleep", "SYS_clock_gettime"} {
		deny := tracertest.Build(t, "deny.c", "-DDENIED="+call)
		r.start("", deny, buildPreloaded(t), "idle").Await("ready")
	}
}
