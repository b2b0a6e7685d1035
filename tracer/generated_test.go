package tracer_test

import (
	"slices"
	"testing"

	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// TestGeneratedCode follows stacks through code that the program generates and lists in a perf map,
// and through a function without unwind information in a file that has some for others.
func TestGeneratedCode(t *testing.T) {
	const calls, size = 100, 208
	target := start(t, tracertest.Build(t, "generated.c", "-O2", "-fomit-frame-pointer"))
	s := open(t, tracer.Options{PID: target.PID(), Interval: 1})
	target.Do("list JS:~keep /srv/app.js:2:19,JS:*alloc node:buffer:9:1", "call 100")

	const generator = "call_generated [by frame pointer]"
	chain := []string{"malloc", "alloc", "built_in [by frame pointer]", "keep", generator, "main"}
	seen := 0
	for _, h := range snapshot(t, s).Holdings {
		names := functions(h.Stack)
		if len(names) < len(chain) || !slices.Contains(names, generator) {
			continue
		}
		if h.Stack.Truncated != "" || !slices.Equal(names[:len(chain)], chain) {
			t.Errorf("stack %q, truncated %q", names, h.Stack.Truncated)
		}
		outer := h.Stack.Frames[3]
		if outer.File != "/srv/app.js" || outer.StartLine != 2 || !outer.IsOwnNative() {
			t.Errorf("outer function %+v", outer)
		}
		seen += int(h.InuseObjects)
		if h.InuseBytes != size*int64(h.InuseObjects) {
			t.Errorf("%d bytes in %v objects", h.InuseBytes, h.InuseObjects)
		}
	}
	if seen != calls {
		t.Errorf("%d allocations below generated code, want %d", seen, calls)
	}
}
