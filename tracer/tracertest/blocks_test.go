package tracertest

import (
	"path/filepath"
	"slices"
	"testing"
)

// TestBlocks checks what c10::reportMemoryUsageToProfiler is called with, by the real library and
// by
// the stand-ins for other versions.
func TestBlocks(t *testing.T) {
	t.Run("signature of the real library", testBlocksSignature)
	t.Run("arguments of each version", testBlocksHookArguments)
}

const hook = "_ZN3c1027reportMemoryUsageToProfilerEPv"

// realLibC10 is that of the distribution's torch.
func realLibC10(t *testing.T) string {
	t.Helper()
	found, err := filepath.Glob("/usr/lib/*/libc10.so.*")
	if err != nil || len(found) == 0 {
		t.Fatalf("no libc10.so in /usr/lib (apt-get install python3-torch): %v", err)
	}
	return found[0]
}

func startBlocks(t *testing.T) *Target {
	t.Helper()
	g := Start(t, python, Source("blocks.py"))
	g.Await("ready")
	return g
}

func testBlocksSignature(t *testing.T) {
	library, g := realLibC10(t), startBlocks(t)
	got := do(g, "load "+library)
	known := []string{"hook " + hook + "lllNS_6DeviceE", "hook " + hook + "lmmNS_6DeviceE"}
	if len(got) != 1 || !slices.Contains(known, got[0]) {
		t.Errorf("%s: %q, want one of %q", library, got, known)
	}
}

func testBlocksHookArguments(t *testing.T) {
	for flag, totals := range map[string][3]string{
		"-DREPORT":                {"512 6003712 23068672", "-3000320 3003392 23068672", "64 128 0"},
		"-DREPORT_SIGNED":         {"512 6003712 23068672", "-3000320 3003392 23068672", "64 128 0"},
		"-DREPORT_WITHOUT_TOTALS": {"512 0 0", "-3000320 0 0", "64 0 0"},
	} {
		g := startBlocks(t)
		do(g, "load "+BuildLibrary(t, "c10.cc", "libc10.so", flag), "hold activations 2 3000000 5")
		for i, step := range []struct {
			order, before, after string
		}{
			{"hold weights 6 512 5", "8 6003712 ", " 1 5"},
			{"free activations 1 5", "9 3003392 ", " 1 5"},
			{"cpu 3 64", "13 3003392 ", " 0 -1"},
		} {
			if got, want := do(g, step.order, "reported"), step.before+totals[i]+step.after; len(got) != 1 ||
				got[0] != want {
				t.Errorf("%s: after %q: %q, want %q", flag, step.order, got, want)
			}
		}
	}
}
