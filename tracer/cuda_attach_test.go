package tracer_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

func TestTheDriverIsProbedWhenItIsLoaded(t *testing.T) {
	t.Parallel()
	for _, sources := range [][]string{nil, {"cuda", "mapping"}, {"cuda"}} {
		t.Run(fmt.Sprint(sources), func(t *testing.T) {
			g := startCUDA(t)
			s := open(t, tracer.Options{PID: g.PID(), Interval: 1, Sources: sources})
			if said := s.CUDASource(); said.Attached || said.Reason != "CUDA's driver (libcuda.so.1) is not mapped" || len(said.Details) > 0 {
				t.Errorf("before it is loaded: %+v", said)
			}
			if sample := s.Sample().Processes[0]; sample.CudaDriver != growth.Unknown || sample.Pinned != growth.Unknown || sample.CudaAllocated != growth.Unknown {
				t.Errorf("before it is loaded: %+v", sample)
			}
			g.do("load " + libcuda(t))
			awaitCUDA(t, s)
			if said := sourceOf(t, s, "cuda"); !said.Attached || said.Reason != "" || !strings.HasPrefix(said.Details[0], "cuMemFree_v2 in /") {
				t.Errorf("after it is loaded: %+v", said)
			}
			reckoned := newReckoning()
			for _, a := range gpuAPIs {
				g.do(fmt.Sprintf("hold %s 5 %d", a.name, a.size), fmt.Sprintf("free %s 2", a.name))
				reckoned.add(a, 3, 5)
			}
			mustHoldReckoned(t, g, s, "load", reckoned)
			mustLoseNothing(t, s)
		})
	}
}

func TestAProgramThatUsesNoGPUHasNoSourceCUDA(t *testing.T) {
	t.Parallel()
	g := startCUDA(t)
	s := open(t, tracer.Options{PID: g.PID(), Interval: 1})
	for _, said := range s.Sources() {
		if said.Name == "cuda" {
			t.Errorf("%+v", said)
		}
	}
	if taken := snapshot(t, s); len(taken.GPUMemory) > 0 || len(taken.GPUHoldings) > 0 {
		t.Errorf("%+v, %+v", taken.GPUMemory, taken.GPUHoldings)
	}
}

// What was there at the attach is not known, nor that it goes.
func TestWhatWasAllocatedBeforeTheAttachNeitherCountsNorChangesAnything(t *testing.T) {
	t.Parallel()
	g := startCUDA(t, libcuda(t))
	for _, a := range gpuAPIs {
		g.do(fmt.Sprintf("hold %s 5 %d", a.name, a.size))
	}
	g.do("retain 3", "free segment 1")
	before := g.totals("totals")
	s := open(t, tracer.Options{PID: g.PID(), Interval: 1})
	reckoned := newReckoning()
	for _, a := range gpuAPIs {
		held := int64(5)
		if a.name == "segment" { // one of them has been freed, and its handle is held
			held = 4
		}
		g.do(fmt.Sprintf("free %s %d", a.name, held-2), fmt.Sprintf("keep %s 2", a.name), fmt.Sprintf("hold %s 7 %d", a.name, a.size), fmt.Sprintf("free %s 2", a.name))
		reckoned.add(a, 7, 7)
	}
	g.do("release 3")
	taken := snapshot(t, s)
	mustAmount(t, "held", heldByCaller(taken), reckoned.held)
	mustAmount(t, "allocated", allocatedByCaller(taken), reckoned.allocated)
	if after := g.totals("totals"); after["device"] != [2]int64{before["device"][0] + 2, before["device"][1] + 2000} {
		t.Errorf("%v, before %v: the test is wrong", after, before)
	}
	mustLoseNothing(t, s)
}

func TestWhatAChildAllocatesAndFreesIsNotItsParents(t *testing.T) {
	t.Parallel()
	g := startCUDA(t, libcuda(t))
	s := open(t, tracer.Options{PID: g.PID(), Interval: 1})
	reckoned := newReckoning()
	g.do("hold malloc 9 1000", "hold allochost 9 4096")
	reckoned.add(gpuAPINamed("malloc"), 9, 9)
	reckoned.add(gpuAPINamed("allochost"), 9, 9)
	g.do("fork", "child free malloc 5", "child hold async 3 10", "child hold malloc 20 512", "child free allochost 9", "child wrong 2")
	mustHoldReckoned(t, g, s, "what the child did", reckoned)
	g.do("free malloc 4", "hold managed 2 70000")
	reckoned.add(gpuAPINamed("malloc"), -4, 0)
	reckoned.add(gpuAPINamed("managed"), 2, 2)
	mustHoldReckoned(t, g, s, "what the parent did", reckoned)
	mustLoseNothing(t, s)
}

func TestWhatAnOldDriverLacksIsNamedAndTheRestCounts(t *testing.T) {
	t.Parallel()
	g := startCUDA(t, libcuda(t, "-DOLD"))
	s := open(t, tracer.Options{PID: g.PID(), Interval: 1})
	said := sourceOf(t, s, "cuda")
	for _, name := range []string{
		"cuMemAllocAsync", "cuMemAllocAsync_ptsz", "cuMemAllocFromPoolAsync", "cuMemAllocFromPoolAsync_ptsz", "cuMemCreate", "cuMemFreeAsync",
		"cuMemFreeAsync_ptsz", "cuMemMap", "cuMemRelease", "cuMemRetainAllocationHandle", "cuMemUnmap",
	} {
		if !strings.Contains(strings.Join(said.Details, "\n")+"\n", ": "+name+" is not in this driver\n") {
			t.Errorf("%s is not named in %q", name, said.Details)
		}
	}
	if !said.Attached || said.Reason != "" || strings.Count(strings.Join(said.Details, " "), "is not in this driver") != 11 {
		t.Errorf("%+v", said)
	}
	reckoned := newReckoning()
	for _, name := range []string{"malloc", "pitch", "managed", "hostalloc", "allochost", "register"} {
		a := gpuAPINamed(name)
		g.do(fmt.Sprintf("hold %s 5 %d", a.name, a.size), fmt.Sprintf("free %s 2", a.name))
		reckoned.add(a, 3, 5)
	}
	mustHoldReckoned(t, g, s, "an old driver", reckoned)
	mustLoseNothing(t, s)
}

// A file of that name is not believed to be the driver for its name.
func TestADriverThatIsDamagedIsSaidToBeSoAndTheRestGoesOn(t *testing.T) {
	t.Parallel()
	whole, err := os.ReadFile(libcuda(t))
	if err != nil {
		t.Fatal(err)
	}
	wrong := slicesOf(whole)
	g := startCUDA(t)
	s := open(t, tracer.Options{PID: g.PID(), Interval: 1})
	for what, content := range wrong {
		path := filepath.Join(t.TempDir(), "libcuda.so.1")
		if err := os.WriteFile(path, content, 0o700); err != nil {
			t.Fatal(err)
		}
		g.do("map " + path)
		awaited(t, what+" is named", func() bool { return strings.Contains(s.CUDASource().Reason, path) })
		if said := sourceOf(t, s, "cuda"); said.Attached {
			t.Errorf("%s: %+v", what, said)
		}
	}
	empty := tracertest.BuildLibrary(t, "c10.cc", "libcuda.so.1")
	g.do("map " + empty)
	awaited(t, "one without functions is named", func() bool {
		return strings.Contains(s.CUDASource().Reason, "find CUDA's driver in "+empty+": it exports no cuMemAlloc_v2 and cuMemFree_v2")
	})
	g.do("load " + libcuda(t))
	awaitCUDA(t, s)
	g.do("hold malloc 5 1000")
	if got := heldByCaller(snapshot(t, s))["cuda_segment hold_malloc"]; got != [2]int64{5, 5000} {
		t.Errorf("the good one's caller holds %d", got)
	}
	if said := sourceOf(t, s, "cuda"); !said.Attached || strings.Count(said.Reason, ";") != len(wrong) {
		t.Errorf("%+v", said)
	}
	if !isAttached(s, "heap") {
		t.Errorf("%+v", s.Sources())
	}
}

// slicesOf are what is left of a library that is not whole, by what has happened to it.
func slicesOf(whole []byte) map[string][]byte {
	text := []byte(strings.Repeat("This is no library. ", 500))
	scrambled := append([]byte(nil), whole...)
	for i := 64; i < len(scrambled); i++ {
		scrambled[i] ^= 0xa5
	}
	return map[string][]byte{
		"a text": text, "a file of nothing but zeros": make([]byte, 8192), "one that ends in its header": whole[:40], "one that ends in its first page": whole[:4000],
		"one that ends in the middle": whole[:len(whole)/2], "one that is scrambled": scrambled,
	}
}

func TestWhatAProgramHeldOnGPUsStaysKnownWhenItHasExited(t *testing.T) {
	t.Parallel()
	g := startCUDA(t, libcuda(t))
	s := open(t, tracer.Options{PID: g.PID(), Interval: 1})
	reckoned := newReckoning()
	for _, a := range gpuAPIs {
		g.do(fmt.Sprintf("hold %s 3 %d", a.name, a.size))
		reckoned.add(a, 3, 3)
	}
	end(t, s, g.Target)
	mustAmount(t, "held at the end", heldByCaller(snapshot(t, s)), reckoned.held)
	s.Sample()
}

func TestNothingOfGPUsIsLeftOfAProgramThatExecutesAnother(t *testing.T) {
	t.Parallel()
	g := startCUDA(t, libcuda(t))
	s := open(t, tracer.Options{PID: g.PID(), Interval: 1})
	g.do("hold malloc 30 1000", "hold create 3 2097152", "hold lent 2 2097152", "hold register 2 9000")
	if had := entries(t, s, g.PID()); had[bpf.MapGpuLive] != 37 || had[bpf.MapGpuMappings] != 2 || had[bpf.MapGpuUsers] != 1 {
		t.Errorf("the kernel has %v: the test is wrong", had)
	}
	g.Say("exec " + g.Path)
	g.Await("ready")
	followUntilTraced(t, s, g.PID())
	for _, name := range []string{bpf.MapGpuLive, bpf.MapGpuMappings, bpf.MapGpuUsers} {
		if n := entries(t, s, g.PID())[name]; n != 0 {
			t.Errorf("%s still has %d entries", name, n)
		}
	}
	if taken := snapshot(t, s); len(taken.GPUMemory)+len(taken.GPUHoldings) > 0 {
		t.Errorf("%+v, %+v", taken.GPUMemory, taken.GPUHoldings)
	}
	g.do("load " + libcuda(t))
	awaitCUDA(t, s)
	g.do("hold malloc 7 1000")
	mustAmount(t, "of the new program", heldByCaller(snapshot(t, s)), amounts{"cuda_segment hold_malloc": {7, 7000}})
}

func TestNothingOfGPUsIsLeftInTheKernelOfAProcessThatIsGivenUp(t *testing.T) {
	t.Parallel()
	c10 := realLibC10(t)
	g, other := startBlocks(t, c10), startBlocks(t, c10)
	s := traceBlocks(t, other, tracer.Options{Interval: 1})
	g.do("driver " + libcuda(t))
	if err := s.Attach(g.PID()); err != nil {
		t.Fatal(err)
	}
	g.do("hold weights 30 1000 1")
	other.do("hold weights 7 1000 1", "hold weights 1 1000 2")
	if had := entries(t, s, g.PID()); had[bpf.MapGpuLive] != 31 || had[bpf.MapGpuTotals] != 1 {
		t.Errorf("the kernel has %v: the test is wrong", had)
	}
	if err := s.Detach(g.PID()); err != nil {
		t.Fatal(err)
	}
	g.do("hold weights 3 1000 1")
	if left := entries(t, s, g.PID()); len(left) != 0 {
		t.Errorf("the kernel still has %v", left)
	}
	mustAmount(t, "of the other", heldByBlocks(snapshot(t, s)), amounts{"1 hold_weights": {7, 7168}, "2 hold_weights": {1, 1024}})
	mustTellTotals(t, other, s, "of the other")
}
