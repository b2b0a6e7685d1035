package tracertest

import (
	"debug/elf"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestLibcuda checks what the tests of source cuda rely on in the stand-in for CUDA's driver.
func TestLibcuda(t *testing.T) {
	t.Run("old driver lacks the newer names", testLibcudaOldDriver)
	t.Run("functions call each other through the exports", testLibcudaNestedCalls)
	t.Run("library is mapped when it is loaded", testLibcudaLateLoad)
	t.Run("device addresses are not mapped", testLibcudaDeviceAddresses)
	t.Run("child frees its own", testLibcudaChildFreesItsOwn)
}

// startCUDA starts cuda.c, which has loaded nothing.
func startCUDA(t *testing.T) *Target {
	t.Helper()
	target := Start(t, Build(t, "cuda.c", "-pthread"))
	target.Await("ready")
	return target
}

func mustCount(t *testing.T, g *Target, after string, want map[string]amount) {
	t.Helper()
	if got := totals(t, do(g, "totals")); !maps.Equal(got, want) {
		t.Errorf("after %q the library counts %v, want %v", after, got, want)
	}
}

// exported returns the functions of the driver that a library has.
func exported(t *testing.T, path string) (names []string) {
	t.Helper()
	file, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	symbols, err := file.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}

	for _, s := range symbols {
		if s.Section != elf.SHN_UNDEF && strings.HasPrefix(s.Name, "cu") {
			names = append(names, s.Name)
		}
	}

	slices.Sort(names)
	return names
}

// newer are the functions that came with CUDA 10.2 to 12; oldDriver are those of before.
var (
	newer = []string{
		"cuGetProcAddress_v2", "cuMemAddressFree", "cuMemAddressReserve", "cuMemAllocAsync",
		"cuMemAllocAsync_ptsz",
		"cuMemAllocFromPoolAsync", "cuMemAllocFromPoolAsync_ptsz", "cuMemCreate",
		"cuMemExportToShareableHandle", "cuMemFreeAsync",
		"cuMemFreeAsync_ptsz", "cuMemImportFromShareableHandle", "cuMemMap", "cuMemRelease",
		"cuMemRetainAllocationHandle",
		"cuMemSetAccess", "cuMemUnmap",
	}
	oldDriver = []string{
		"cuDriverGetVersion", "cuInit", "cuMemAllocHost_v2", "cuMemAllocManaged", "cuMemAllocPitch_v2",
		"cuMemAlloc_v2", "cuMemFreeHost",
		"cuMemFree_v2", "cuMemHostAlloc", "cuMemHostRegister_v2", "cuMemHostUnregister",
	}
)

func testLibcudaOldDriver(t *testing.T) {
	today, old := BuildLibrary(t, "libcuda.c", "libcuda.so.1"), BuildLibrary(t, "libcuda.c",
		"libcuda.so.1", "-DOLD")
	if filepath.Base(today) != "libcuda.so.1" || filepath.Base(old) != "libcuda.so.1" || today == old {
		t.Errorf("%s, %s", today, old)
	}
	if got := exported(t, old); !slices.Equal(got, oldDriver) {
		t.Errorf("the old one has %q, want %q", got, oldDriver)
	}
	if got, want := exported(t,
		today), slices.Sorted(slices.Values(append(newer, oldDriver...))); !slices.Equal(got, want) {
		t.Errorf("today's has %q, want %q", got, want)
	}

	g := startCUDA(t)
	var missing []string
	for _, name := range newer[1:] { // the program asks for the first one on an order of its own
		missing = append(missing, "missing "+name)
	}
	if got := do(g, "load "+old); !slices.Equal(slices.Sorted(slices.Values(got)), missing) {
		t.Errorf("the program printed %q, want %q", got, missing)
	}

	do(g, "hold malloc 2 1000", "hold allochost 1 50", "wrong 1", "fail pitch 2")
	mustCount(t, g, "hold", map[string]amount{"device": {2, 2000}, "pinned": {1, 50}})
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
			t.Errorf("%s does not %s %s by its exported name:\n%s", c.function, c.how, c.callee, out)
		}
	}
}

func testLibcudaLateLoad(t *testing.T) {
	g := startCUDA(t)
	library := BuildLibrary(t, "libcuda.c", "libcuda.so.1")
	loaded := func() bool {
		return slices.ContainsFunc(mappings(t, g.PID()),
			func(line string) bool { return strings.HasSuffix(line, library) })
	}
	if loaded() {
		t.Error("it is mapped at the start")
	}

	if do(g, "load "+library); !loaded() {
		t.Error("it is not mapped when it is loaded")
	}

	early := Start(t, Build(t, "cuda.c", "-pthread"), library)
	early.Await("ready")
	do(early, "hold malloc 2 300")
	mustCount(t, early, "hold", map[string]amount{"device": {2, 600}})
}

// The library hands out device addresses of this range.
const firstDeviceAddress, lastDeviceAddress = 0x0a0000000000, 0x500000000000

func testLibcudaDeviceAddresses(t *testing.T) {
	g := startCUDA(t)
	do(g, "load "+BuildLibrary(t, "libcuda.c", "libcuda.so.1"), "hold malloc 5 100",
		"hold managed 5 70000000000", "hold segment 3 20971520")
	for _, line := range mappings(t, g.PID()) {
		var start, end uint64
		if _, err := fmt.Sscanf(line, "%x-%x", &start, &end); err != nil {
			t.Fatal(err)
		}
		if start < lastDeviceAddress && end > firstDeviceAddress {
			t.Errorf("mapped: %s", line)
		}
	}
}

func testLibcudaChildFreesItsOwn(t *testing.T) {
	g := startCUDA(t)
	said := do(g, "load "+BuildLibrary(t, "libcuda.c", "libcuda.so.1"), "hold malloc 5 100",
		"hold allochost 2 100", "fork")
	var pid int
	if len(said) != 1 {
		t.Fatalf("%q", said)
	}
	if _, err := fmt.Sscanf(said[0], "child %d", &pid); err != nil || pid == g.PID() {
		t.Fatalf("%q", said)
	}

	do(g, "child free malloc 4", "child hold async 3 10")
	want := map[string]amount{"device": {1, 100}, "pinned": {2, 200}, "async": {3, 30}}
	if got := totals(t, do(g, "child totals")); !maps.Equal(got, want) {
		t.Errorf("the child counts %v, want %v", got, want)
	}
	mustCount(t, g, "child", map[string]amount{"device": {5, 500}, "pinned": {2, 200}})
}
