package tracer_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// TestGPUAttach probes CUDA's driver when it is loaded, and leaves nothing behind.
func TestGPUAttach(t *testing.T) {
	t.Parallel()
	t.Run("driver is probed when it is loaded", testGPUAttachDriverProbedWhen)
	t.Run("memory allocated before tracing started does not count",
		testGPUAttachMemoryAllocatedTracing)
	t.Run("child's memory is not its parent's", testGPUAttachChildMemoryParent)
	t.Run("damaged driver is named", testGPUAttachDamagedDriverNamed)
	t.Run("exited program keeps its rows", testGPUAttachExitedProgramKeeps)
	t.Run("execution leaves nothing in the kernel", testGPUAttachExecutionLeavesNothing)
	t.Run("detach leaves nothing in the kernel", testGPUAttachDetachLeavesNothing)
}

// TestNVML reads the driver's count for a process, from a library whose answers a file sets.
func TestNVML(t *testing.T) {
	t.Run("driver's count is in the samples", testNVMLDriverCountSamples)
	t.Run("process without a GPU does not load NVML", testNVMLProcessWithoutGPU)
}

func testGPUAttachDriverProbedWhen(t *testing.T) {
	t.Parallel()
	for _, sources := range [][]string{nil, {"cuda"}} {
		t.Run(fmt.Sprint(sources), func(t *testing.T) {
			g, s := openOn(t, startCUDA(t), tracer.Options{Interval: 1, Sources: sources})
			taken, sample := snapshot(t, s), s.Sample().Processes[0]
			if sample.CudaDriver != growth.Unknown || sample.Pinned != growth.Unknown ||
				sample.CudaAllocated != growth.Unknown ||
				len(taken.GPUMemory)+len(taken.GPUHoldings) > 0 {
				t.Errorf("before it is loaded: %+v, %+v", sample, taken.GPUMemory)
			}

			g.Do("load " + libcuda(t))
			if sources != nil {
				g.Do("resolve") // as libcudart asks for the functions, by cuGetProcAddress
			}

			awaitCUDA(t, s)
			if said := sourceOf(t, s, "cuda"); !said.Attached || said.Reason != "" ||
				!strings.HasPrefix(said.Details[0], "cuMemFree_v2 in /") {
				t.Errorf("after it is loaded: %+v", said)
			}
			expected := newExpectation()
			for _, a := range gpuAPIs {
				g.Do(fmt.Sprintf("hold %s 5 %d", a.name, a.size), fmt.Sprintf("free %s 2", a.name))
				expected.add(a, 3, 5)
			}
			mustHoldExpected(t, g, s, "load", expected)
			mustLoseNothing(t, s)
		})
	}
}

// Neither memory from before tracing started nor its frees count.
func testGPUAttachMemoryAllocatedTracing(t *testing.T) {
	t.Parallel()
	g := startCUDA(t, libcuda(t))
	for _, a := range gpuAPIs {
		g.Do(fmt.Sprintf("hold %s 5 %d", a.name, a.size))
	}

	g.Do("retain 3", "free segment 1")
	before := g.totals("totals")
	s := open(t, tracer.Options{PID: g.PID(), Interval: 1})

	expected := newExpectation()
	for _, a := range gpuAPIs {
		held := int64(5)
		if a.name == "segment" { // one of them has been freed, and its handle is held
			held = 4
		}

		g.Do(fmt.Sprintf("free %s %d", a.name, held-2), fmt.Sprintf("keep %s 2", a.name),
			fmt.Sprintf("hold %s 7 %d", a.name, a.size), fmt.Sprintf("free %s 2", a.name))
		expected.add(a, 7, 7)
	}

	g.Do("release 3")
	held, allocated := bySite(snapshot(t, s))
	mustAmount(t, "held", held, expected.held)
	mustAmount(t, "allocated", allocated, expected.allocated)
	before.add("device", 2, 2000)
	if after := g.totals("totals"); after["device"] != before["device"] {
		t.Errorf("%v, want %v: the test is wrong", after, before)
	}
	mustLoseNothing(t, s)
}

func testGPUAttachChildMemoryParent(t *testing.T) {
	t.Parallel()
	g, s := openOn(t, startCUDA(t, libcuda(t)), exact)

	expected := newExpectation()
	g.Do("hold malloc 9 1000", "hold allochost 9 4096")
	expected.add(gpuAPINamed("malloc"), 9, 9)
	expected.add(gpuAPINamed("allochost"), 9, 9)
	g.Do("fork", "child free malloc 5", "child hold async 3 10", "child hold malloc 20 512",
		"child free allochost 9", "child wrong 2")
	mustHoldExpected(t, g, s, "what the child did", expected)
	g.Do("free malloc 4", "hold managed 2 70000")
	expected.add(gpuAPINamed("malloc"), -4, 0)
	expected.add(gpuAPINamed("managed"), 2, 2)
	mustHoldExpected(t, g, s, "what the parent did", expected)
	mustLoseNothing(t, s)
}

// A file is not believed to be the driver for its name.
func testGPUAttachDamagedDriverNamed(t *testing.T) {
	t.Parallel()
	whole := tracertest.Must(os.ReadFile(libcuda(t)))(t)

	wrong := slicesOf(whole)
	g, s := openOn(t, startCUDA(t), exact)

	for what, content := range wrong {
		path := filepath.Join(t.TempDir(), "libcuda.so.1")
		must(t, os.WriteFile(path, content, 0o700))

		g.Do("map " + path)
		eventually(t, what+" is named",
			func() bool { return strings.Contains(tracer.Targets(s)[0].GPU.Status().Reason, path) })
		if said := sourceOf(t, s, "cuda"); said.Attached {
			t.Errorf("%s: %+v", what, said)
		}
	}

	empty := tracertest.BuildLibrary(t, "c10.cc", "libcuda.so.1")
	g.Do("map " + empty)
	eventually(t, "one without functions is named", func() bool {
		return strings.Contains(tracer.Targets(s)[0].GPU.Status().Reason,
			"find CUDA's driver in "+empty+": it exports no cuMemAlloc_v2 and cuMemFree_v2")
	})

	g.Do("load " + libcuda(t))
	awaitCUDA(t, s)
	g.Do("hold malloc 5 1000")
	mustHoldIn(t, heldBySite(snapshot(t, s)), "cuda-segment hold_malloc", 5, 5000)
	if said := sourceOf(t, s, "cuda"); !said.Attached ||
		strings.Count(said.Reason, ";") != len(wrong) {
		t.Errorf("%+v", said)
	}

	if !isAttached(s, "heap") {
		t.Errorf("%+v", s.Sources())
	}
}

// slicesOf returns damaged copies of a library, by the kind of damage.
func slicesOf(whole []byte) map[string][]byte {
	text := []byte(strings.Repeat("This is no library. ", 500))
	scrambled := append([]byte(nil), whole...)
	for i := 64; i < len(scrambled); i++ {
		scrambled[i] ^= 0xa5
	}

	return map[string][]byte{
		"a text":                          text,
		"a file of zeros":                 make([]byte, 8192),
		"one that ends in its header":     whole[:40],
		"one that ends in its first page": whole[:4000],
		"one that ends in the middle":     whole[:len(whole)/2],
		"one that is scrambled":           scrambled,
	}
}

func testGPUAttachExitedProgramKeeps(t *testing.T) {
	t.Parallel()
	g, s := openOn(t, startCUDA(t, libcuda(t)), exact)

	expected := newExpectation()
	for _, a := range gpuAPIs {
		g.Do(fmt.Sprintf("hold %s 3 %d", a.name, a.size))
		expected.add(a, 3, 3)
	}

	end(t, s, g.Target)
	mustAmount(t, "held at the end", heldBySite(snapshot(t, s)), expected.held)
	s.Sample()
}

func testGPUAttachExecutionLeavesNothing(t *testing.T) {
	t.Parallel()
	g, s := openOn(t, startCUDA(t, libcuda(t)), exact)

	g.Do("hold malloc 30 1000", "hold create 3 2097152", "hold lent 2 2097152", "hold register 2 9000")
	if had := entries(t, s, g.PID()); had[bpf.MapGpuLive] != 37 || had[bpf.MapGpuMappings] != 2 ||
		had[bpf.MapGpuUsers] != 1 {
		t.Errorf("the kernel has %v: the test is wrong", had)
	}

	g.Say("exec " + g.Path)
	g.Await("ready")
	followUntilTraced(t, s, g.PID())
	if left := entries(t, s, g.PID()); left[bpf.MapGpuLive]+left[bpf.MapGpuMappings]+
		left[bpf.MapGpuUsers] != 0 {
		t.Errorf("the kernel still has %v", left)
	}
	if taken := snapshot(t, s); len(taken.GPUMemory)+len(taken.GPUHoldings) > 0 {
		t.Errorf("%+v, %+v", taken.GPUMemory, taken.GPUHoldings)
	}

	g.Do("load " + libcuda(t))
	awaitCUDA(t, s)
	g.Do("hold malloc 7 1000")
	mustAmount(t, "of the new program", heldBySite(snapshot(t, s)),
		amounts{"cuda-segment hold_malloc": {7, 7000}})
}

func testGPUAttachDetachLeavesNothing(t *testing.T) {
	t.Parallel()
	c10 := realLibC10(t)
	g, other := startBlocks(t, c10), startBlocks(t, c10)
	s := traceBlocks(t, other, exact)

	g.Do("driver " + libcuda(t))
	mustAttach(t, s, g.PID())
	g.Do("hold weights 30 1000 1")
	other.Do("hold weights 7 1000 1", "hold weights 1 1000 2")
	if had := entries(t, s, g.PID()); had[bpf.MapGpuLive] != 31 || had[bpf.MapGpuTotals] != 1 {
		t.Errorf("the kernel has %v: the test is wrong", had)
	}

	mustDetach(t, s, g.PID())
	g.Do("hold weights 3 1000 1")
	mustHaveNoEntries(t, s, g.PID())

	mustAmount(t, "of the other", heldByBlocks(snapshot(t, s)),
		amounts{"1 hold_weights": {7, 7168}, "2 hold_weights": {1, 1024}})
	mustReportTotals(t, other, s, "of the other")
}

// nvmlAnswers replaces the file that steers testdata/nvml.c.
func nvmlAnswers(t *testing.T, file string, lines ...string) {
	t.Helper()
	part := file + ".part"
	must(t, os.WriteFile(part, []byte(strings.Join(lines, "\n")+"\n"), 0o600))
	must(t, os.Rename(part, file))
}

// sampleUntil samples until the moment is as wanted. NVML is opened in the background.
func sampleUntil(t *testing.T, s *tracer.Session, what string,
	good func(growth.TreeSample) bool,
) growth.TreeSample {
	t.Helper()
	var moment growth.TreeSample
	eventually(t, what, func() bool {
		moment = s.Sample()
		return len(moment.Processes) == 1 && good(moment)
	})
	return moment
}

func usedIs(bytes int64) func(growth.TreeSample) bool {
	return func(m growth.TreeSample) bool { return m.Processes[0].GPUUsed == bytes }
}

// The library stays loaded in this program: a file steers its answers in all parts of the case.
func testNVMLDriverCountSamples(t *testing.T) {
	file := filepath.Join(t.TempDir(), "answers")
	t.Setenv("NVML_STUB", file)
	target := startCUDA(t, libcuda(t))
	process := func(gpu string, bytes int64) string {
		return fmt.Sprintf("compute.%s 1:77 %d:%d", gpu, target.PID(), bytes)
	}

	nvmlAnswers(t, file, "count 2", "memory.0 5000 80000", "mig.1 1", "memory.1.0 700 90000",
		process("0", 4000), process("1.0", 600))
	s := open(t, tracer.Options{PID: target.PID(), NVML: tracertest.BuildNVML(t)})

	moment := sampleUntil(t, s, "4600 bytes of two GPUs", usedIs(4600))
	if len(moment.GPUs) != 3 || moment.GPUs[0].Used != 5000 || moment.GPUs[0].Instance != -1 ||
		moment.GPUs[1].Total != 90000 || moment.GPUs[1].Instance != 0 ||
		!slices.Equal(moment.GPUs[1].Users, []int{target.PID()}) {
		t.Errorf("GPUs and instances %+v", moment.GPUs)
	}

	mustBeUsed(t, s, 4600, "")

	nvmlAnswers(t, file, "count 1", "memory.0 9000 80000", process("0", 8000))
	sampleUntil(t, s, "growth to 8000 bytes", usedIs(8000))
	nvmlAnswers(t, file, "count 1", "memory.0 9000 80000", "compute.0 1:77")
	sampleUntil(t, s, "nothing of a process that is not listed", usedIs(growth.Unknown))
	mustBeUsed(t, s, growth.Unknown, growth.GPUNotListed)
	nvmlAnswers(t, file, "count 1", "memory.0 9000 80000", "compute.0 !4")
	sampleUntil(t, s, "nothing without permission", func(growth.TreeSample) bool {
		return strings.Contains(snapshot(t, s).GPUMemory[0].Detail, "permission")
	})
}

// mustBeUsed wants a snapshot to report the driver's count for the only process, or why it does
// not.
func mustBeUsed(t *testing.T, s *tracer.Session, bytes int64, reason growth.GPUReason) {
	t.Helper()
	memory := snapshot(t, s).GPUMemory
	if len(memory) != 1 || memory[0].Used != bytes || memory[0].Reason != reason {
		t.Errorf("devices %+v, want %d bytes, %q", memory, bytes, reason)
	}
}

func testNVMLProcessWithoutGPU(t *testing.T) {
	target := start(t, tracertest.Build(t, "leak.c"))
	library := tracertest.BuildNVML(t, "-DNEVER_LOADED")
	s := open(t, tracer.Options{PID: target.PID(), NVML: library})

	moment, taken := s.Sample(), snapshot(t, s)
	maps := tracertest.Must(os.ReadFile("/proc/self/maps"))(t)

	if moment.GPUs != nil || moment.Processes[0].CudaDriver != growth.Unknown ||
		taken.GPUMemory != nil || strings.Contains(string(maps), library) {
		t.Errorf("GPUs %+v, devices %+v, sample %+v", moment.GPUs, taken.GPUMemory,
			moment.Processes[0].Sample)
	}
}
