package tracer_test

import (
	"fmt"
	"math"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// TestGPUChecks runs the checks of `make test-gpu` with stand-ins for torch, CUDA's driver and
// NVML.
func TestGPUChecks(t *testing.T) {
	t.Run("checks pass with the stand-ins", testGPUChecksChecksPassStand)
	t.Run("memory of all GPUs replaces that of the process", testGPUChecksMemoryGPUsReplaces)
	t.Run("wrong totals are found", testGPUChecksWrongTotalsFound)
}

// A gpuSetup is where a trainer runs: on a GPU, or with stand-ins.
type gpuSetup struct {
	libraries []string // by which its torch calls CUDA
	nvml      string   // Options.NVML
}

// A gpuTrace is a trainer and its trace, in which every block counts.
type gpuTrace struct {
	gpuSetup
	tracertest.GPUTrainer
	s *tracer.Session
}

// trace traces a trainer with the sources of GPU memory, and of libraries that are loaded later.
func (b gpuSetup) trace(t *testing.T, trainer tracertest.GPUTrainer) gpuTrace {
	t.Helper()
	s := open(t, tracer.Options{
		PID: trainer.PID(), Interval: 1, Sources: []string{"cuda", "mapping"},
		NVML: b.nvml,
	})
	t.Cleanup(func() {
		if _, losses, err := s.Counters(); err == nil && len(losses) > 0 {
			t.Logf("lost: %+v", losses)
		}
	})
	return gpuTrace{b, trainer, s}
}

// makeContext lets the trainer call CUDA for the first time, which loads the driver, and waits
// until the driver is probed.
func (g gpuTrace) makeContext(t *testing.T) {
	t.Helper()
	g.Do("context")
	awaitCUDA(t, g.s)
	awaitBlocks(t, g.s)
}

// traceFromStart traces a trainer since before its first call of CUDA.
func (b gpuSetup) traceFromStart(t *testing.T, flags ...string) gpuTrace {
	t.Helper()
	g := b.trace(t, tracertest.StartGPUTrainer(t, flags...))
	g.makeContext(t)
	return g
}

// mustBeTorchs wants blocks and segments to be torch's own, to the byte, after each of these
// orders.
func (g gpuTrace) mustBeTorchs(t *testing.T, orders ...string) (f gpuFigures) {
	t.Helper()
	for _, order := range orders {
		g.Do(order)
		torch := g.Totals()
		f = figuresFrom(t, g.s, g.libraries...)
		for _, text := range f.misfitsFromStart(torch) {
			t.Errorf("after %q: %s", order, text)
		}
	}
	return f
}

// outcome returns the text of the table unless the check has failed.
func outcome(t *testing.T, found string) string {
	if t.Failed() {
		return "**no**"
	}
	return found
}

// checkFromStart compares blocks and segments with torch's own, from before the first tensor on.
func (b gpuSetup) checkFromStart(t *testing.T, segments string, flags ...string) {
	g := b.traceFromStart(t, flags...)
	f := g.mustBeTorchs(t, "build", "train 2", "validate 1", "keep 20 300", "train 1")
	g.mustBeTorchs(t, "empty")
	yes := outcome(t, "yes, to the byte")
	tracertest.MeasuredOnGPU(t, "blocks equal `torch.cuda.memory_allocated()`, "+segments,
		"%s: %d MiB", yes, f.blocks/mib)
	tracertest.MeasuredOnGPU(t, "segments equal `torch.cuda.memory_reserved()`, "+segments,
		"%s: %d MiB", yes, f.segments/mib)
}

// checkLateAttach compares the totals of a trainer that is older than its trace, and the blocks
// since.
func (b gpuSetup) checkLateAttach(t *testing.T, segments string, flags ...string) {
	const kept, kib = 50, 300
	trainer := tracertest.StartGPUTrainer(t, flags...)
	trainer.Do("context", "build", "train 1")
	before := trainer.Totals()
	g := b.trace(t, trainer)
	awaitBlocks(t, g.s)
	g.Do(fmt.Sprintf("keep %d %d", kept, kib))
	torch, f := g.Totals(), figuresFrom(t, g.s, g.libraries...)
	for _, text := range f.misfits(torch) {
		t.Error(text)
	}

	if f.blocks != torch.Allocated-before.Allocated {
		t.Errorf("blocks of %d bytes since tracing started, PyTorch reports %d", f.blocks,
			torch.Allocated-before.Allocated)
	}
	g.mustKeep(t, growth.KindCudaBlock, kept*kib<<10)

	g.Do("train 2") // frees blocks that are older than the trace
	for _, text := range figuresFrom(t, g.s, g.libraries...).misfits(g.Totals()) {
		t.Errorf("after training: %s", text)
	}

	tracertest.MeasuredOnGPU(t, "totals after a late attach equal torch's, "+segments, "%s",
		outcome(t, "yes, to the byte"))
}

// checkNVML compares the memory from the driver, and the context with the modules that the first
// steps load, with NVML's count.
func (b gpuSetup) checkNVML(t *testing.T) {
	const largest = 0.02
	g := b.trace(t, tracertest.StartGPUTrainer(t, "--eager"))
	var before growth.TreeSample
	eventually(t, "NVML reports a GPU (see `allocscope doctor`)", func() bool {
		before = g.s.Sample()
		return len(before.GPUs) > 0
	})

	g.makeContext(t)
	f := figuresFrom(t, g.s, g.libraries...)
	context, by := usedOnGPUs(t, before, g.s.Sample())
	context -= f.segments + f.others

	// cuBLAS and others load their modules when they are first used, without a call that is probed.
	g.Do("build", "train 2")
	f = figuresFrom(t, g.s, g.libraries...)
	modules, _ := usedOnGPUs(t, before, g.s.Sample())
	modules -= context + f.segments + f.others

	g.Do("hold 4096", "train 2")
	torch := g.Totals()
	f = figuresFrom(t, g.s, g.libraries...)
	used, _ := usedOnGPUs(t, before, g.s.Sample())
	apart := f.apart(context+modules, used)
	t.Logf("context %d, modules %d, segments %d (torch: %d), others %d; used %d by %s; "+
		"of the whole GPU CUDA reports %d", context, modules, f.segments, torch.Reserved, f.others,
		used, by, torch.Total-torch.Free)
	if apart > largest {
		t.Errorf("%d bytes of context, %d of modules, %d of segments and %d of others: "+
			"%.1f %% from the %d that NVML counts",
			context, modules, f.segments, f.others, 100*apart, used)
	}

	tracertest.MeasuredOnGPU(t, "driver, context and modules equal NVML within 2 %",
		"%s, %.2f %% apart: context %d MiB, modules of the first steps %d, segments %d, others %d; "+
			"NVML %d MiB (%s)", outcome(t, "yes"), 100*apart, context/mib, modules/mib,
		f.segments/mib, f.others/mib, used/mib, by)
}

// checkPinned compares the pinned memory, and wants most of it to be the loader's.
func (b gpuSetup) checkPinned(t *testing.T) {
	g := b.traceFromStart(t, "--batch", "64", "--length", "512", "--batches", "4", "--width", "64",
		"--layers", "1")
	g.Do("build", "train 2")
	torch, now := g.Totals(), snapshot(t, g.s)
	f := figuresOf(t, now, g.libraries...)

	reported := "PyTorch reports nothing to compare with"
	if torch.Pinned != tracertest.NotReported {
		reported = "equal to `torch.cuda.host_memory_stats()`"
		if f.pinned != torch.Pinned {
			t.Errorf("%d bytes are pinned, PyTorch reports %d", f.pinned, torch.Pinned)
		}
	}

	var loader int64
	for _, h := range now.Holdings {
		if h.Kind == growth.KindPinned && slices.ContainsFunc(h.Stack.Frames, isOfPinMemory) {
			loader += h.InuseBytes
		}
	}
	if loader == 0 || loader < f.pinned/2 {
		t.Errorf("the loader's thread holds %d of the %d bytes that are pinned", loader, f.pinned)
	}

	tracertest.MeasuredOnGPU(t, "pinned memory of a loader",
		"%s: %d KiB, %d by the loader's thread, %d counted in RSS",
		outcome(t, reported), f.pinned>>10, loader>>10, f.pinnedRAM>>10)
}

func isOfPinMemory(f growth.Frame) bool {
	return f.Python && path.Base(f.File) == "pin_memory.py"
}

// checkWithoutCache wants the driver's calls to show what blocks would have shown.
func (b gpuSetup) checkWithoutCache(t *testing.T) {
	const kept, kib = 40, 300
	g := b.traceFromStart(t, "--no-cache")
	g.Do("build", "train 1", fmt.Sprintf("keep %d %d", kept, kib))
	g.mustKeep(t, growth.KindCudaSegment, kept*kib<<10)
	tracertest.MeasuredOnGPU(t, "without torch's cache the driver's calls name the line", "%s",
		outcome(t, "yes, to the byte"))
}

// gpuFigures are the GPU memory of the only process of a snapshot, in bytes.
type gpuFigures struct {
	allocated, reserved int64 // totals of PyTorch's allocator
	blocks              int64 // that are known by stack
	segments            int64 // memory of torch's allocator from the driver
	others              int64 // memory of others from it
	pinned, pinnedRAM   int64 // of the host's memory, by torch: asked for, and resident
}

// figuresOf counts as PyTorch's the calls from libraries whose names begin so.
func figuresOf(t *testing.T, snapshot *growth.Snapshot, torch ...string) gpuFigures {
	t.Helper()
	if len(snapshot.GPUMemory) != 1 {
		t.Fatalf("%d processes use a GPU, want one: %+v", len(snapshot.GPUMemory),
			snapshot.GPUMemory)
	}

	d := snapshot.GPUMemory[0]
	f := gpuFigures{allocated: d.Allocated, reserved: d.Reserved}
	for _, h := range snapshot.GPUHoldings {
		switch {
		case h.Kind == growth.KindCudaBlock:
			f.blocks += h.InuseBytes
		case h.Kind != growth.KindCudaSegment:
		case isCalledFrom(h.Stack, torch):
			f.segments += h.InuseBytes
		default:
			f.others += h.InuseBytes
		}
	}

	for _, h := range snapshot.Holdings {
		if h.Kind == growth.KindPinned && isCalledFrom(h.Stack, torch) {
			f.pinned += h.InuseBytes
			f.pinnedRAM += h.ResidentBytes
		}
	}
	return f
}

// isCalledFrom reports whether CUDA was called from one of these libraries. CUDA's driver, and
// mostly its runtime, are above them on the stack.
func isCalledFrom(stack *growth.Stack, libraries []string) bool {
	for _, f := range stack.Frames {
		if f.Module == nil {
			return false
		}
		name := path.Base(f.Module.Path)
		if strings.HasPrefix(name, "libcuda.so") || strings.HasPrefix(name, "libcudart") {
			continue
		}

		return slices.ContainsFunc(libraries,
			func(library string) bool { return strings.HasPrefix(name, library) })
	}
	return false
}

// misfit is in words how a figure differs from PyTorch's, if it does.
func misfit(what string, got, want int64) (texts []string) {
	if got != want {
		texts = append(texts, fmt.Sprintf("%s: %d bytes, PyTorch reports %d", what, got, want))
	}
	return texts
}

// misfits are the totals that differ.
func (f gpuFigures) misfits(torch tracertest.TorchTotals) []string {
	return append(misfit("allocated", f.allocated, torch.Allocated),
		misfit("reserved", f.reserved, torch.Reserved)...)
}

// misfitsFromStart are the misfits of a process that has been traced since before its first tensor.
// Its blocks and segments are known as well.
func (f gpuFigures) misfitsFromStart(torch tracertest.TorchTotals) []string {
	besides := fmt.Sprintf("segments, besides %d bytes of others", f.others)
	return slices.Concat(f.misfits(torch), misfit("blocks", f.blocks, torch.Allocated),
		misfit(besides, f.segments, torch.Reserved))
}

// apart is the difference of the memory from the driver and a context to the driver's count, as a
// share of the count.
func (f gpuFigures) apart(context, used int64) float64 {
	return math.Abs(float64(used-context-f.segments-f.others)) / float64(used)
}

// usedOnGPUs is the driver's count for the only process. In many containers NVML does not list it:
// then it is the growth of all GPUs since before the process came. by names the counter.
func usedOnGPUs(t *testing.T, before, now growth.TreeSample) (bytes int64, by string) {
	t.Helper()
	if len(now.Processes) == 1 && now.Processes[0].GPUUsed != growth.Unknown {
		return now.Processes[0].GPUUsed, "the process"
	}
	if len(now.GPUs) == 0 || len(before.GPUs) != len(now.GPUs) {
		t.Fatalf("NVML reports neither the process's memory nor that of GPUs: %d before, %d now",
			len(before.GPUs), len(now.GPUs))
	}

	for i, g := range now.GPUs {
		if g.Used == growth.Unknown || before.GPUs[i].Used == growth.Unknown {
			t.Fatalf("NVML does not report the memory of GPU %d", g.Index)
		}
		bytes += g.Used - before.GPUs[i].Used
	}
	return bytes, "all GPUs, what they had before taken off"
}

// mustKeep wants the line that keeps tensors to hold so many bytes of a kind.
func (g gpuTrace) mustKeep(t *testing.T, kind growth.Kind, want int64) {
	t.Helper()
	file, line, got := tracertest.GPUTrainerSource(), tracertest.GPULeakLine(t), int64(0)
	isKeep := func(f growth.Frame) bool { return f.Python && f.File == file && f.Line == line }
	for _, h := range snapshot(t, g.s).GPUHoldings {
		if h.Kind == kind && slices.ContainsFunc(h.Stack.Frames, isKeep) {
			got += h.InuseBytes
		}
	}
	if got != want {
		t.Errorf("keep() holds %d bytes, want %d", got, want)
	}
}

// figuresFrom returns the figures of a new snapshot.
func figuresFrom(t *testing.T, s *tracer.Session, torch ...string) gpuFigures {
	t.Helper()
	return figuresOf(t, snapshot(t, s), torch...)
}

const callsForTorch = "libffi.so" // by which Python's ctypes calls CUDA's driver

func testGPUChecksWrongTotalsFound(t *testing.T) {
	f := gpuFigures{allocated: 512, blocks: 512, reserved: 2 * mib, segments: 2 * mib}
	torch := tracertest.TorchTotals{Allocated: 512, Reserved: 2 * mib}
	if texts := f.misfitsFromStart(torch); len(texts) > 0 {
		t.Errorf("of torch's own totals these are found: %q", texts)
	}

	torch.Allocated++
	torch.Reserved++
	if texts := f.misfitsFromStart(torch); len(texts) != 4 {
		t.Errorf("of totals that are not torch's these are found: %q", texts)
	}
}

func testGPUChecksMemoryGPUsReplaces(t *testing.T) {
	moment := func(used int64) growth.TreeSample {
		return growth.TreeSample{GPUs: []growth.GPUSample{{Used: used}, {Index: 1, Used: 7}}}
	}
	used, by := usedOnGPUs(t, moment(100), moment(5000))
	if used != 4900 || !strings.HasPrefix(by, "all GPUs") {
		t.Errorf("%d by %s, want 4900 by all GPUs", used, by)
	}
}

// startStandIns makes trainers run with stand-ins for PyTorch and for CUDA's driver, and the tracer
// with one for NVML.
func startStandIns(t *testing.T) gpuSetup {
	t.Helper()
	answers := filepath.Join(t.TempDir(), "answers")
	nvmlAnswers(t, answers, "count 1", "memory.0 5000 80000", "compute.0 1:77")
	libraries := []string{
		realLibC10(t), libcuda(t), tracertest.BuildLibrary(t, "c10.cc", "libc10_cuda.so"),
	}

	for name, value := range map[string]string{
		"PYTHON": python, "PYTHONPATH": tracertest.Source("gpu/standin"), "PYTHONDONTWRITEBYTECODE": "1",
		"STANDIN": strings.Join(libraries, ":"), "NVML_STUB": answers,
	} {
		t.Setenv(name, value)
	}
	return gpuSetup{libraries: []string{callsForTorch}, nvml: tracertest.BuildNVML(t)}
}

func testGPUChecksChecksPassStand(t *testing.T) {
	for name, check := range map[string]func(gpuSetup, *testing.T){
		"from the start":      func(b gpuSetup, t *testing.T) { b.checkFromStart(t, "of the stand-in") },
		"late":                func(b gpuSetup, t *testing.T) { b.checkLateAttach(t, "of the stand-in") },
		"NVML":                gpuSetup.checkNVML,
		"pinned":              gpuSetup.checkPinned,
		"without torch's own": gpuSetup.checkWithoutCache,
	} {
		t.Run(name, func(t *testing.T) { check(startStandIns(t), t) })
	}
}
