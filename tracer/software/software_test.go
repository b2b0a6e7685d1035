package software

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// TestLibc compares the version with the one that getconf prints.
func TestLibc(t *testing.T) {
	want, err := exec.Command("getconf", "GNU_LIBC_VERSION").Output() // "glibc 2.36"
	tracertest.NoError(t, err)
	libraries, err := filepath.Glob("/lib/*-linux-gnu*/libc.so.6")
	if err != nil || len(libraries) == 0 {
		t.Fatalf("no C library: %v", err)
	}

	got := Of("/", libraries[:1])
	if got != (growth.Software{Libc: strings.TrimSpace(string(want))}) {
		t.Errorf("got %+v, want %q", got, want)
	}
}

func TestTorch(t *testing.T) {
	const module = "/v/torch/_C.cpython-311-x86_64-linux-gnu.so"
	for name, c := range map[string]struct{ module, source, want string }{
		"package": {
			module, "from typing import Optional\n\n__all__ = ['__version__', 'debug']\n" +
				"__version__ = '2.5.1+cu124'\ndebug = False\n",
			"2.5.1+cu124",
		},
		"another package": {"/v/other/_C.so", "__version__ = '2.5.1'", ""},
		"no version":      {module, "__version__ = 'www.example.org'", ""},
		"no file":         {module, "", ""},
		"too large": {
			module, strings.Repeat("#\n", maxSourceBytes) + "__version__ = '2.5.1'", "",
		},
	} {
		root := t.TempDir()
		if c.source != "" {
			folder := filepath.Join(root, filepath.Dir(c.module))
			tracertest.NoError(t, os.MkdirAll(folder, 0o755))
			file := filepath.Join(folder, "version.py")
			tracertest.NoError(t, os.WriteFile(file, []byte(c.source), 0o644))
		}
		if got := Of(root, []string{c.module}); got != (growth.Software{Torch: c.want}) {
			t.Errorf("%s: got %+v, want %q", name, got, c.want)
		}
	}
}

// TestMalloc proves that a malloc is named beside a C library that cannot be read.
func TestMalloc(t *testing.T) {
	got := Of(t.TempDir(), []string{"/lib/libc.so.6", "/opt/libjemalloc.so.2", "/lib/libz.so"})
	if got != (growth.Software{Libc: "glibc", Malloc: "jemalloc"}) {
		t.Errorf("got %+v", got)
	}
}
