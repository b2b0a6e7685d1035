package shim

import (
	"fmt"
	"testing"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

func TestMain(m *testing.M) { tracertest.Main(m) }

// TestTruth compares the live memory with the programs' own counts, at interval 1.
func TestTruth(t *testing.T) {
	for _, c := range []struct{ name, source, behind string }{
		{"glibc", "semantics.c", ""},
		{"glibc, all functions", "allocators.c", ""},
		{"jemalloc", "allocators.c", "libjemalloc.so.2"},
		{"tcmalloc", "allocators.c", "libtcmalloc.so.4"},
		{"mimalloc", "allocators.c", "libmimalloc.so.2"},
		{"operators", "operators.cc", ""},
		{"operators of jemalloc", "operators.cc", "libjemalloc.so.2"},
		{"operators of tcmalloc", "operators.cc", "libtcmalloc.so.4"},
		{"operators of mimalloc", "operators.cc", "libmimalloc.so.2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRecorder(t)
			r.mark(MaxMarkers)
			testTruth(r, c.behind, tracertest.Build(t, c.source, "-pthread"))
		})
	}
}

func testTruth(r *recorder, behind, path string) {
	target := r.start(behind, path)
	target.Await("ready")
	r.read()
	target.Say("go")
	lines := target.Await("done")
	events := r.read()

	bySize := make(map[uint64]int64)
	for _, size := range live(events, target.PID()) {
		bySize[size]++
	}
	for _, e := range events {
		if e.Kind == allocated && e.Weighted != e.Size {
			r.t.Errorf("weight %d of %d bytes at interval 1", e.Weighted, e.Size)
		}
	}

	truth := make(map[uint64]int64)
	for _, line := range lines {
		var name string
		var objects, bytes int64
		if n, _ := fmt.Sscan(line, &name, &objects, &bytes); n == 3 && name != "calls" {
			truth[uint64(bytes/objects)] += objects
		}
	}
	if len(truth) == 0 {
		r.t.Fatalf("the program said nothing: %q", lines)
	}
	for size, objects := range truth {
		if bySize[size] != objects {
			r.t.Errorf("%d objects of %d bytes are alive, want %d", bySize[size], size, objects)
		}
	}
}

// TestPlugin: a program without operators new and delete loads a library that needs them. With
// RTLD_DEEPBIND that library finds the operators of its own libraries, and their malloc, which
// nothing sees.
func TestPlugin(t *testing.T) {
	plugin := tracertest.Build(t, "operators_plugin.cc", "-shared", "-fPIC", "-std=c++17")
	for flag, seen := range map[string]int{"RTLD_LOCAL": 1, "RTLD_DEEPBIND": 0} {
		t.Run(flag, func(t *testing.T) {
			r := newRecorder(t)
			r.mark(MaxMarkers)
			script := "import ctypes, os, sys; sys.exit(ctypes.CDLL(%q, os.%s | os.RTLD_NOW).use())"
			command := r.command("", "python3", "-c", fmt.Sprintf(script, plugin, flag))
			if err := command.Run(); command.ProcessState.ExitCode() != 3 {
				t.Fatalf("caught not 3 exceptions: %v", err)
			}

			bySize := make(map[uint64]int)
			for _, size := range live(r.read(), command.Process.Pid) {
				bySize[size]++
			}
			for _, size := range []uint64{1001, 1002, 1003, 1008} {
				if bySize[size] != seen {
					t.Errorf("%d objects of %d bytes are alive, want %d", bySize[size], size, seen)
				}
			}
		})
	}
}

// TestShadowed: a program with an allocator of its own has a part of the calls alone go through the
// library, which then samples none.
func TestShadowed(t *testing.T) {
	r := newRecorder(t)
	r.mark(MaxMarkers)
	allocator := tracertest.Source("preload.c")
	target := r.start("", tracertest.Build(t, "semantics.c", "-pthread", allocator))
	target.Await("ready")
	target.Say("go")
	target.Await("done")
	for _, e := range r.read() {
		if e.Kind != started {
			t.Fatalf("%+v", e)
		}
	}
}
