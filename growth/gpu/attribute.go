package gpu

import (
	"path"
	"slices"
	"strings"

	"github.com/allocscope/allocscope/growth"
)

// Attribute sets GPUBytes of the snapshot's GPU holdings, and adds holdings for memory without
// stacks. Over all GPU holdings of a process in GPUMemory they sum to NVML's count for it. Where
// NVML's count is unknown, they sum to the known parts: PyTorch's segments, and other memory that
// the driver handed out. Attribute may be called again.
//
// Torch segments are attributed as blocks + cached bytes. They are attributed as segments only
// where PyTorch's reserved total is unknown. Added holdings have GPUBytes alone. The sum is exact
// in any case: "[gpu: not attributed]" is negative where sampled blocks are overestimated, or
// processes share memory.
func Attribute(s *growth.Snapshot) {
	isAdded := func(h growth.Holding) bool { return isAttributed(&h) }
	s.GPUHoldings = slices.DeleteFunc(s.GPUHoldings, isAdded)
	for i := range s.GPUHoldings {
		s.GPUHoldings[i].GPUBytes = 0
	}

	for i := range s.GPUMemory {
		a := attribution{snapshot: s, memory: &s.GPUMemory[i], blocks: make(map[string]int64)}
		a.attributeStacks()
		a.addBlocks()
		a.addCached()
		a.add(growth.KindNotAttributed, growth.RootNotAttributed, "", a.total()-a.sum)
	}
}

// isAttributed is true of holdings that Attribute has added.
func isAttributed(h *growth.Holding) bool {
	switch h.Kind {
	case growth.KindCudaBeforeTracing, growth.KindNotAttributed:
		return true
	}
	return h.Kind.IsGPUCached() || h.Kind == growth.KindCudaBlock && h.Stack.Root == growth.RootCudaUntraced
}

// An attribution is the GPU memory of one process, in bytes.
type attribution struct {
	snapshot *growth.Snapshot
	memory   *growth.ProcessGPUMemory
	// blocks of stacks by GPU; others from the driver; sum of all GPUBytes so far.
	blocks      map[string]int64
	others, sum int64
}

// attributeStacks sets GPUBytes of the process's stacks.
func (a *attribution) attributeStacks() {
	m := a.memory
	for i := range a.snapshot.GPUHoldings {
		h := &a.snapshot.GPUHoldings[i]
		switch {
		case h.Stack.PID != m.PID:
			continue
		case h.Kind == growth.KindCudaBlock && (m.BlocksProbed || m.Allocated == growth.Unknown):
			a.blocks[h.GPU] += h.InuseBytes
		case h.Kind == growth.KindCudaSegment && (m.Reserved == growth.Unknown || !isOfTorch(h.Stack)):
			a.others += h.InuseBytes
		default:
			continue
		}
		h.GPUBytes = h.InuseBytes
		a.sum += h.InuseBytes
	}
}

// addBlocks adds PyTorch's blocks without stacks.
func (a *attribution) addBlocks() {
	m := a.memory
	var traced int64
	for _, bytes := range a.blocks {
		traced += bytes
	}
	kind, root := growth.KindCudaBeforeTracing, growth.RootCudaBeforeTracing
	if m.BlockBursts { // or between two bursts
		kind, root = growth.KindCudaBlock, growth.RootCudaUntraced
	}

	switch {
	case m.Allocated == growth.Unknown:
	case !m.BlocksProbed:
		a.addByGPU(growth.KindCudaBlock, growth.RootCudaUntraced, m.Allocated,
			func(t growth.GPUTotals) int64 { return t.Allocated })
	case a.areBlocksOn(m.Totals):
		a.addByGPU(kind, root, m.Allocated-traced,
			func(t growth.GPUTotals) int64 { return t.Allocated - a.blocks[t.GPU] })
	default:
		a.add(kind, root, "", max(0, m.Allocated-traced))
	}
}

// areBlocksOn is true where each block is on a GPU with totals.
func (a *attribution) areBlocksOn(totals []growth.GPUTotals) bool {
	for gpu := range a.blocks {
		if !slices.ContainsFunc(totals, func(t growth.GPUTotals) bool { return t.GPU == gpu }) {
			return false
		}
	}
	return true
}

// addCached adds the part of PyTorch's segments that is not allocated: as the allocator's own list
// divides it, and the rest. Totals and list are of different moments.
func (a *attribution) addCached() {
	m := a.memory
	if m.Reserved == growth.Unknown || m.Allocated == growth.Unknown {
		return
	}
	left := make(map[string]int64)
	for _, t := range m.Totals {
		left[t.GPU] = max(0, t.Reserved-t.Allocated)
	}
	if m.Cache != nil {
		for i := range m.Cache.Sums {
			a.addParts(&m.Cache.Sums[i], left)
		}
	}
	listed := int64(0)
	for _, t := range m.Totals {
		listed += max(0, t.Reserved-t.Allocated) - left[t.GPU]
	}
	a.addByGPU(growth.KindCudaCached, growth.RootCudaCached, m.Reserved-m.Allocated-listed,
		func(t growth.GPUTotals) int64 { return left[t.GPU] })
}

// addParts adds the parts of the memory of a GPU that is cached, and takes them off the rest.
func (a *attribution) addParts(sum *growth.GPUCacheSum, left map[string]int64) {
	take := func(kind growth.Kind, root string, bytes int64) {
		bytes = min(bytes, left[sum.GPU])
		left[sum.GPU] -= bytes
		a.add(kind, root, sum.GPU, bytes)
	}
	if sum.Kind != growth.GPUPoolDefault {
		take(growth.KindCudaPools, growth.RootCudaPools, sum.Free())
		return
	}
	take(growth.KindCudaPinned, growth.RootCudaPinned, sum.Pinned+sum.Pending)
	take(growth.KindCudaReturnable, growth.RootCudaReturnable, sum.Returnable)
}

// addByGPU adds a holding per GPU. It adds one for all GPUs where there are no totals by GPU, or
// they do not sum to the totals of the process. Negative bytes count as 0.
func (a *attribution) addByGPU(
	kind growth.Kind, root string, all int64, ofGPU func(growth.GPUTotals) int64,
) {
	m := a.memory
	var allocated, reserved int64
	for _, t := range m.Totals {
		allocated += t.Allocated
		reserved += t.Reserved
	}

	if len(m.Totals) == 0 || allocated != m.Allocated || reserved != m.Reserved {
		a.add(kind, root, "", max(0, all))
		return
	}
	for _, t := range m.Totals {
		a.add(kind, root, t.GPU, max(0, ofGPU(t)))
	}
}

func (a *attribution) add(kind growth.Kind, root, gpu string, bytes int64) {
	if bytes == 0 {
		return
	}
	a.sum += bytes
	a.snapshot.GPUHoldings = append(a.snapshot.GPUHoldings, growth.Holding{
		Stack: growth.NamedStack(a.memory.PID, root), Kind: kind, GPU: gpu, GPUBytes: bytes,
	})
}

// total is the sum of all GPUBytes of the process.
func (a *attribution) total() int64 {
	switch m := a.memory; {
	case m.Used != growth.Unknown:
		return m.Used
	case m.Reserved != growth.Unknown:
		return m.Reserved + a.others
	case m.Allocated != growth.Unknown:
		return m.Allocated + a.others
	}
	return a.sum
}

// isOfTorch is true of memory that PyTorch's caching allocator requested, in its own library or
// linked into the program. A truncated stack counts as its: it nearly always is where there is one.
func isOfTorch(s *growth.Stack) bool {
	isTorchFrame := func(f growth.Frame) bool {
		if f.Python {
			return false
		}
		isLibrary := f.Module != nil && strings.HasPrefix(path.Base(f.Module.Path), "libc10_cuda")
		return isLibrary || strings.Contains(f.Function, "CUDACachingAllocator")
	}
	return s.Truncated != "" || len(s.Frames) == 0 || slices.ContainsFunc(s.Frames, isTorchFrame)
}
