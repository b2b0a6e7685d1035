package shim

import (
	"testing"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

// TestWithoutC: the loader runs the library's constructor in a program without a C library, too.
func TestWithoutC(t *testing.T) {
	r := newRecorder(t)
	r.mark(1)
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
	r.mark(1)
	r.start("", tracertest.Build(t, "walker.c", "-fno-builtin", "-ldl")).Await("done")
}
