package tracertest

import (
	"path/filepath"
	"slices"
	"testing"
)

const hook = "_ZN3c1027reportMemoryUsageToProfilerEPv"

// TestBlocks checks the signature of c10::reportMemoryUsageToProfiler in the real library.
func TestBlocks(t *testing.T) {
	found, err := filepath.Glob("/usr/lib/*/libc10.so.*")
	if err != nil || len(found) == 0 {
		t.Fatalf("no libc10.so in /usr/lib (apt-get install python3-torch): %v", err)
	}

	g := Start(t, python, Source("blocks.py"))
	g.Await("ready")
	got := g.Do("load " + found[0])
	known := []string{"hook " + hook + "lllNS_6DeviceE", "hook " + hook + "lmmNS_6DeviceE"}
	if len(got) != 1 || !slices.Contains(known, got[0]) {
		t.Errorf("%s: %q, want one of %q", found[0], got, known)
	}
}
