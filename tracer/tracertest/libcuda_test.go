package tracertest

import (
	"fmt"
	"os/exec"
	"regexp"
	"testing"
)

// TestLibcuda checks the behaviour of the stand-in for CUDA's driver on which the tests of source
// cuda rely.
func TestLibcuda(t *testing.T) {
	t.Run("functions call each other through the exports", testLibcudaNestedCalls)
	t.Run("device addresses are not mapped", testLibcudaDeviceAddresses)
}

// startCUDA starts cuda.c, which has loaded nothing.
func startCUDA(t *testing.T) *Target {
	t.Helper()
	target := Start(t, Build(t, "cuda.c", "-pthread"))
	target.Await("ready")
	return target
}

func testLibcudaNestedCalls(t *testing.T) {
	library := BuildLibrary(t, "libcuda.c", "libcuda.so.1")
	for _, c := range []struct{ function, how, callee string }{
		{"cuMemAllocPitch_v2", "(call|bl)", "cuMemAlloc_v2"},
		{"cuMemAllocHost_v2", "(call|bl)", "cuMemHostAlloc"},
		{"cuMemAllocAsync_ptsz", "(jmp|b)", "cuMemAllocAsync"},
		{"cuMemAllocFromPoolAsync_ptsz", "(jmp|b)", "cuMemAllocFromPoolAsync"},
		{"cuMemFreeAsync_ptsz", "(jmp|b)", "cuMemFreeAsync"},
	} {
		out, err := exec.Command("objdump", "-d", "--no-show-raw-insn", "--disassemble="+c.function,
			library).Output()
		if err != nil {
			t.Fatalf("objdump: %v (apt-get install binutils)", err)
		}

		if !regexp.MustCompile(`(?m)\s` + c.how + `\s.*<` + c.callee + `@plt>$`).Match(out) {
			t.Errorf("%s does not %s %s by its exported name:\n%s", c.function, c.how, c.callee,
				out)
		}
	}
}

// The library hands out device addresses of this range.
const firstDeviceAddress, lastDeviceAddress = 0x0a0000000000, 0x500000000000

func testLibcudaDeviceAddresses(t *testing.T) {
	g := startCUDA(t)
	g.Do("load "+BuildLibrary(t, "libcuda.c", "libcuda.so.1"), "hold malloc 5 100",
		"hold managed 5 70000000000", "hold segment 3 20971520")
	for _, line := range mappings(t, g.PID()) {
		var start, end uint64
		Must(fmt.Sscanf(line, "%x-%x", &start, &end))(t)
		if start < lastDeviceAddress && end > firstDeviceAddress {
			t.Errorf("mapped: %s", line)
		}
	}
}
