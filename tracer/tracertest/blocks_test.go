package tracertest

import (
	"maps"
	"path/filepath"
	"slices"
	"testing"
)

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

// steps are orders of blocks.py with the totals after them, reckoned by hand: device, blocks, bytes, allocated, reserved.
var steps = []struct {
	orders []string
	want   []string
}{
	{[]string{"hold weights 3 1000 0"}, []string{"0 3 3072 3072 2097152"}},
	{[]string{"hold activations 2 3000000 0"}, []string{"0 5 6003712 6003712 23068672"}}, // 2 MiB and 20 MiB
	{[]string{"free weights 1 0", "churn 50 512 0", "cpu 100 64"}, []string{"0 4 6002688 6002688 23068672"}},
	{[]string{"hold weights 1 1024 0"}, []string{"0 5 6003712 6003712 23068672"}},
	{
		[]string{"hold weights 2 10485761 3"}, // 12 MiB each
		[]string{"0 5 6003712 6003712 23068672", "3 2 20972544 20972544 25165824"},
	},
	{
		[]string{"elsewhere activations 2 0", "free weights 2 3"},
		[]string{"0 3 3072 3072 23068672", "3 0 0 0 25165824"},
	},
	{[]string{"empty 0", "empty 3"}, []string{"0 3 3072 3072 2097152", "3 0 0 0 0"}},
	{[]string{"threads 8 100 2048 3"}, []string{"0 3 3072 3072 2097152", "3 800 1638400 1638400 2097152"}},
}

func mustTakeSteps(t *testing.T, g *Target) {
	t.Helper()
	for _, s := range steps {
		do(g, s.orders...)
		if got := do(g, "totals"); !slices.Equal(got, s.want) {
			t.Errorf("after %q: %q, want %q", s.orders, got, s.want)
		}
	}
}

func TestBlocksAreReportedToTheHookOfTheRealLibrary(t *testing.T) {
	library, g := realLibC10(t), startBlocks(t)
	said := do(g, "load "+library)
	if len(said) != 1 || !slices.Contains([]string{"hook " + hook + "lllNS_6DeviceE", "hook " + hook + "lmmNS_6DeviceE"}, said[0]) {
		t.Errorf("%s: %q", library, said)
	}
	mustTakeSteps(t, g)
}

func TestBlocksAreReportedToTheHookOfEveryVersion(t *testing.T) {
	for flag, parameters := range map[string]string{"-DREPORT": "lmm", "-DREPORT_SIGNED": "lll", "-DREPORT_WITHOUT_TOTALS": "l"} {
		g := startBlocks(t)
		said := do(g, "load "+BuildLibrary(t, "c10.cc", "libc10.so", flag))
		if want := []string{"hook " + hook + parameters + "NS_6DeviceE"}; !slices.Equal(said, want) {
			t.Errorf("%s: %q, want %q", flag, said, want)
		}
		mustTakeSteps(t, g)
	}
}

func TestTheHookIsToldWhatTheAllocatorDid(t *testing.T) {
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
			if got, want := do(g, step.order, "told"), step.before+totals[i]+step.after; len(got) != 1 || got[0] != want {
				t.Errorf("%s: after %q: %q, want %q", flag, step.order, got, want)
			}
		}
	}
}

func TestSegmentsAreTheDriversWhereThereIsOne(t *testing.T) {
	g := startBlocks(t)
	driver := BuildLibrary(t, "libcuda.c", "libcuda.so.1")
	do(g, "load "+realLibC10(t), "driver "+driver, "hold weights 3 1000 0", "hold activations 2 3000000 1", "hold weights 1 30000000 1")
	want := count{"device": {3, 2*mib + 20*mib + 30*mib}} // 28.6 MiB, in multiples of 2 MiB
	if got := totals(t, do(g, "driver_totals")); !maps.Equal(got, want) {
		t.Errorf("the driver counts %v, want %v", got, want)
	}
	do(g, "free weights 1 1", "empty 1")
	want = count{"device": {2, 22 * mib}}
	if got := totals(t, do(g, "driver_totals")); !maps.Equal(got, want) {
		t.Errorf("after the cache was emptied the driver counts %v, want %v", got, want)
	}
}
