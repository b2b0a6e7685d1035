//go:build gpu

package tracer_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/growth/component"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// TestOnAGPU compares PyTorch on a real GPU with its own figures: `make test-gpu`.
func TestOnAGPU(t *testing.T) {
	t.Run("blocks and segments are PyTorch's", testOnAGPUBlocksSegmentsPyTorch)
	t.Run("late attach knows PyTorch's totals", testOnAGPULateAttachKnows)
	t.Run("driver and context are what NVML counts", onGPU.checkNVML)
	t.Run("pinned memory is the loader's", onGPU.checkPinned)
	t.Run("driver calls name the line without PyTorch's cache", onGPU.checkWithoutCache)
	t.Run("compiled code is the component of its blocks", testOnAGPUCompiledCodeComponent)
}

// onGPU is PyTorch's own: it calls CUDA from its allocator of GPU memory, and from its allocator of
// pinned memory.
var onGPU = gpuSetup{libraries: []string{"libc10_cuda", "libtorch_cuda"}}

const segmentsOff, segmentsOn = "expandable segments off", "expandable segments on"

func testOnAGPUBlocksSegmentsPyTorch(t *testing.T) {
	t.Run(segmentsOff, func(t *testing.T) { onGPU.checkFromStart(t, segmentsOff) })
	t.Run(segmentsOn, func(t *testing.T) { onGPU.checkFromStart(t, segmentsOn, "--expandable") })
}

func testOnAGPULateAttachKnows(t *testing.T) {
	t.Run(segmentsOff, func(t *testing.T) { onGPU.checkLateAttach(t, segmentsOff) })
	t.Run(segmentsOn, func(t *testing.T) { onGPU.checkLateAttach(t, segmentsOn, "--expandable") })
}

func testOnAGPUCompiledCodeComponent(t *testing.T) {
	g := onGPU.traceFromStart(t, "--compile")
	f := g.mustBeTorchs(t, "build", "train 2")
	owners, bytes := component.DefaultRules(), make(map[string]int64)
	for _, h := range snapshot(t, g.s).GPUHoldings {
		if h.Kind == growth.KindCudaBlock {
			bytes[owners.Of(h.Stack)] += h.InuseBytes
		}
	}
	if bytes["inductor-run"] == 0 {
		t.Errorf("generated code owns no block; bytes by owner: %v", bytes)
	}

	t.Logf("bytes by owner: %v", bytes)
	tracertest.MeasuredOnGPU(t, "`torch.compile` with Inductor", "%s: %d MiB of blocks, owners %s",
		outcome(t, "blocks and segments equal torch's"), f.blocks/mib, strings.Join(largestFirst(bytes),
			", "))
}

// largestFirst are names by their bytes.
func largestFirst(bytes map[string]int64) []string {
	return slices.SortedFunc(maps.Keys(bytes),
		func(a, b string) int { return int(bytes[b]/mib - bytes[a]/mib) })
}
