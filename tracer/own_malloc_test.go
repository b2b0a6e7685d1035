package tracer_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// TestOwnMalloc loads a library that does not call the malloc of the program, or that does so in a
// program which the dynamic linker has started. Its malloc calls the C library's: each object counts
// once.
func TestOwnMalloc(t *testing.T) {
	const calls, size = 100, 112
	names := filepath.Join(t.TempDir(), "names")
	text := "{ global: plugin_outer; local: *; };\n"
	must(t, os.WriteFile(names, []byte(text), 0o600))

	own := tracertest.Source("preload.c")
	program := tracertest.Build(t, "plugins.c", "-ldl")
	for name, c := range map[string]struct {
		library []string // flags
		order   string
		linker  bool
	}{
		"names of its own":       {[]string{own, "-Wl,-Bsymbolic"}, "load", false},
		"names not exported":     {[]string{own, "-Wl,--version-script," + names}, "load", false},
		"loaded deep":            {[]string{own}, "deep", false},
		"in another namespace":   {nil, "apart", false},
		"own, another namespace": {[]string{own}, "apart", false},
		"program by the linker":  {nil, "load", true},
	} {
		t.Run(name, func(t *testing.T) {
			command := exec.Command(program)
			if c.linker {
				command = exec.Command(linkerOf(t, program), program)
			}
			target := startCommand(t, command)
			order(target, "%s %s", c.order, buildPlugin(t, size, c.library...))
			_, s := openOn(t, target, tracer.Options{Interval: 1, Sources: heapAlone})
			order(target, "call %d", calls)

			want := [2]int64{calls, calls * size}
			if got := held(snapshot(t, s))["plugin_inner"]; got != want {
				t.Errorf("%+v, want %+v", got, want)
			}
		})
	}
}

// linkerOf returns the path of the dynamic linker that a program names.
func linkerOf(t *testing.T, program string) string {
	t.Helper()
	out := tracertest.Must(exec.Command("ldd", program).Output())(t)
	for field := range strings.FieldsSeq(string(out)) {
		if strings.HasPrefix(filepath.Base(field), "ld-") {
			return field
		}
	}
	t.Fatalf("ldd names no linker: %s", out)
	return ""
}

// A library has jemalloc within, and no symbols of it. The source is attached, and names it.
func TestHiddenMalloc(t *testing.T) {
	names := filepath.Join(t.TempDir(), "names")
	text := "{ global: plugin_outer; local: *; };\n"
	must(t, os.WriteFile(names, []byte(text), 0o600))
	out := tracertest.Must(exec.Command("gcc", "-print-file-name=libjemalloc_pic.a").Output())(t)
	archive := strings.TrimSpace(string(out))
	library := buildPlugin(t, 112, archive, "-lm", "-Wl,--version-script,"+names, "-Wl,--strip-all")

	command := exec.Command(tracertest.Build(t, "plugins.c", "-ldl"))
	command.Env = append(os.Environ(), "GLIBC_TUNABLES=glibc.rtld.optional_static_tls=16384")
	target := startCommand(t, command)
	order(target, "load %s", library)
	_, s := openOn(t, target, tracer.Options{Interval: 1, Sources: heapAlone})

	heap := sourceOf(t, s, "heap")
	if !heap.Attached || heap.Gap != growth.GapAllocator || heap.Allocator != "jemalloc" ||
		heap.File != library {
		t.Errorf("%+v, want the gap of jemalloc in %s", heap, library)
	}
}
