package tracer_test

// The checks of `make test-gpu`. The suite runs them with what stands for torch, CUDA's driver and NVML.

import (
	"fmt"
	"path"
	"slices"
	"testing"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// A gpuBench is where a trainer with a GPU runs: on one, or with what stands for it.
type gpuBench struct {
	libraries []string // by which its torch calls CUDA
	nvml      string   // Options.NVML
}

// A gpuTrace is a trainer and its trace, in which every block counts.
type gpuTrace struct {
	gpuBench
	tracertest.GPUTrainer
	s *tracer.Session
}

// watch traces a trainer with what sees memory of GPUs, and libraries that are loaded later.
func (b gpuBench) watch(t *testing.T, trainer tracertest.GPUTrainer) gpuTrace {
	t.Helper()
	s := open(t, tracer.Options{PID: trainer.PID(), Interval: 1, Sources: []string{"cuda", "mapping"}, NVML: b.nvml})
	t.Cleanup(func() {
		if _, losses, err := s.Counters(); err == nil && len(losses) > 0 {
			t.Logf("lost: %+v", losses)
		}
	})
	return gpuTrace{b, trainer, s}
}

// makeContext lets it call CUDA for the first time, and waits until its driver is watched: it is loaded only then.
func (g gpuTrace) makeContext(t *testing.T) {
	t.Helper()
	g.Do("context")
	awaited(t, "CUDA's driver is watched", func() bool {
		g.s.Sample()
		driver, _ := g.s.WatchesCUDA()
		return driver
	})
	awaitBlocks(t, g.s)
}

// traceFromStart traces a trainer since before its first call of CUDA.
func (b gpuBench) traceFromStart(t *testing.T, flags ...string) gpuTrace {
	t.Helper()
	g := b.watch(t, tracertest.StartGPUTrainer(t, flags...))
	g.makeContext(t)
	return g
}

// mustBeTorchs wants blocks and segments to be torch's own, to the byte, after each of these orders.
func (g gpuTrace) mustBeTorchs(t *testing.T, orders ...string) (f gpuFigures) {
	t.Helper()
	for _, order := range orders {
		g.Do(order)
		torch := g.Totals()
		f = mustFigure(t, g.s, g.libraries...)
		for _, text := range f.misfitsFromStart(torch) {
			t.Errorf("after %q: %s", order, text)
		}
	}
	return f
}

// outcome is what stands in the table: what has been found, unless it is not so.
func outcome(t *testing.T, found string) string {
	if t.Failed() {
		return "**no**"
	}
	return found
}

// checkFromStart compares blocks and segments with torch's own, from before the first tensor on.
func (b gpuBench) checkFromStart(t *testing.T, segments string, flags ...string) {
	g := b.traceFromStart(t, flags...)
	f := g.mustBeTorchs(t, "build", "train 2", "validate 1", "keep 20 300", "train 1")
	g.mustBeTorchs(t, "empty")
	yes := outcome(t, "yes, to the byte")
	tracertest.MeasuredOnGPU(t, "blocks equal `torch.cuda.memory_allocated()`, "+segments, "%s: %d MiB", yes, f.blocks/mib)
	tracertest.MeasuredOnGPU(t, "segments equal `torch.cuda.memory_reserved()`, "+segments, "%s: %d MiB", yes, f.segments/mib)
}

// checkLateAttach compares the totals of a trainer that is older than its trace, and the blocks since.
func (b gpuBench) checkLateAttach(t *testing.T, segments string, flags ...string) {
	const kept, kib = 50, 300
	trainer := tracertest.StartGPUTrainer(t, flags...)
	trainer.Do("context", "build", "train 1")
	before := trainer.Totals()
	g := b.watch(t, trainer)
	awaitBlocks(t, g.s)
	g.Do(fmt.Sprintf("keep %d %d", kept, kib))
	torch, f := g.Totals(), mustFigure(t, g.s, g.libraries...)
	for _, text := range f.misfits(torch) {
		t.Error(text)
	}
	if f.blocks != torch.Allocated-before.Allocated {
		t.Errorf("blocks of %d bytes since the attach, torch says %d", f.blocks, torch.Allocated-before.Allocated)
	}
	if got := heldThrough(snapshot(t, g.s), growth.KindCudaBlock, tracertest.GPUTrainerSource(), tracertest.GPULeakLine(t)); got != kept*kib<<10 {
		t.Errorf("keep() holds %d bytes, want %d", got, kept*kib<<10)
	}
	g.Do("train 2") // frees blocks that are older than the attach
	for _, text := range mustFigure(t, g.s, g.libraries...).misfits(g.Totals()) {
		t.Errorf("after training: %s", text)
	}
	tracertest.MeasuredOnGPU(t, "totals after a late attach equal torch's, "+segments, "%s", outcome(t, "yes, to the byte"))
}

// checkNVML compares what the driver has handed out, and the context, with what NVML counts.
func (b gpuBench) checkNVML(t *testing.T) {
	const largest = 0.02
	g := b.watch(t, tracertest.StartGPUTrainer(t, "--eager"))
	var before growth.TreeSample
	awaited(t, "NVML tells of a GPU (see `allocscope doctor`)", func() bool {
		before = g.s.Sample()
		return len(before.GPUs) > 0
	})
	g.makeContext(t)
	f := mustFigure(t, g.s, g.libraries...)
	context, by := g.used(t, before)
	context -= f.segments + f.others
	g.Do("build", "train 2", "hold 4096")
	torch := g.Totals()
	f = mustFigure(t, g.s, g.libraries...)
	used, _ := g.used(t, before)
	apart := f.apart(context, used)
	t.Logf("context %d, segments %d (torch: %d), others %d; used %d by %s; of the whole GPU CUDA says %d", context, f.segments, torch.Reserved, f.others, used, by, torch.Total-torch.Free)
	if apart > largest {
		t.Errorf("%d bytes of context, %d of segments and %d of others: %.1f %% from the %d that NVML counts", context, f.segments, f.others, 100*apart, used)
	}
	tracertest.MeasuredOnGPU(t, "driver and context equal NVML within 2 %", "%s, %.2f %% apart: context %d MiB, segments %d, others %d; NVML %d MiB (%s)",
		outcome(t, "yes"), 100*apart, context/mib, f.segments/mib, f.others/mib, used/mib, by)
}

// used is what NVML counts now.
func (g gpuTrace) used(t *testing.T, before growth.TreeSample) (bytes int64, by string) {
	t.Helper()
	bytes, by, err := usedOnGPUs(before, g.s.Sample())
	if err != nil {
		t.Fatal(err)
	}
	return bytes, by
}

// checkPinned compares what is pinned, and wants most of it to be the loader's.
func (b gpuBench) checkPinned(t *testing.T) {
	g := b.traceFromStart(t, "--batch", "64", "--length", "512", "--batches", "4", "--width", "64", "--layers", "1")
	g.Do("build", "train 2")
	torch, now := g.Totals(), snapshot(t, g.s)
	f, err := figuresOf(now, g.libraries...)
	if err != nil {
		t.Fatal(err)
	}
	told := "torch tells nothing to compare with"
	if torch.Pinned != tracertest.NotTold {
		told = "equal to `torch.cuda.host_memory_stats()`"
		if f.pinned != torch.Pinned {
			t.Errorf("%d bytes are pinned, torch says %d", f.pinned, torch.Pinned)
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
	tracertest.MeasuredOnGPU(t, "pinned memory of a loader", "%s: %d KiB, %d by the loader's thread, %d counted in RSS",
		outcome(t, told), f.pinned>>10, loader>>10, f.pinnedRAM>>10)
}

func isOfPinMemory(f growth.Frame) bool {
	return f.Python && path.Base(f.File) == "pin_memory.py"
}

// checkWithoutCache wants the driver's calls to tell what blocks would have told.
func (b gpuBench) checkWithoutCache(t *testing.T) {
	const kept, kib = 40, 300
	g := b.traceFromStart(t, "--no-cache")
	g.Do("build", "train 1", fmt.Sprintf("keep %d %d", kept, kib))
	got := heldThrough(snapshot(t, g.s), growth.KindCudaSegment, tracertest.GPUTrainerSource(), tracertest.GPULeakLine(t))
	if got != kept*kib<<10 {
		t.Errorf("keep() holds %d bytes, want %d", got, kept*kib<<10)
	}
	tracertest.MeasuredOnGPU(t, "without torch's cache the driver's calls name the line", "%s", outcome(t, "yes, to the byte"))
}
