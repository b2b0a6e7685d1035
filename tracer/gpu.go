package tracer

import (
	"cmp"
	"slices"
	"time"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/estimate"
	"github.com/allocscope/allocscope/tracer/gpu"
	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/mem"
)

// gpuState reads the GPU memory of the targets.
type gpuState struct {
	kernel  *kernel.Kernel
	targets *targetSet
	probing *probing
	library string // path of libnvidia-ml.so.1; empty: the dynamic linker finds it
	nvml    gpu.Monitor
}

// addTo adds GPU memory to a snapshot's GPU holdings, and host memory that the driver has
// allocated to held. Host memory that the driver has only pinned has another allocation site: it
// is in the breakdown alone. started is when the trace did, in ns, CLOCK_MONOTONIC.
func (g *gpuState) addTo(
	totals *gpu.Totals, caches map[int]*growth.GPUCache, snapshot *growth.Snapshot,
	held estimate.Holdings, started uint64,
) {
	onGPUs := make(estimate.Holdings)
	for key, sum := range totals.ByStack {
		t := g.targets.find(key.TGID)
		if t == nil {
			continue
		}
		stack := t.stackOf(key.ID, sum)
		switch key.Kind {
		case bpf.KindBlock:
			onGPUs.Add(stack, growth.KindCudaBlock, gpu.Name(key.GPU), sum)
		case bpf.KindSegment:
			onGPUs.Add(stack, growth.KindCudaSegment, gpu.Name(key.GPU), sum)
		case bpf.KindPinned:
			held.Add(stack, growth.KindPinned, "", sum)
		}
	}
	snapshot.GPUHoldings = onGPUs.List()
	snapshot.GPUMemory = g.processes()
	for i := range snapshot.GPUMemory {
		m := &snapshot.GPUMemory[i]
		if t := g.targets.find(uint32(m.PID)); t != nil && caches[m.PID] != nil {
			m.Cache = caches[m.PID]
			t.nameOrigins(m.Cache, totals.Origins[uint32(m.PID)], started)
		}
	}
}

// readCaches reads the segments of PyTorch's caching allocator in all targets, by PID, and which
// blocks are in use in them.
func (g *gpuState) readCaches() (map[int]*growth.GPUCache, gpu.Lists) {
	caches, lists := make(map[int]*growth.GPUCache), make(gpu.Lists)
	for _, m := range g.processes() {
		t := g.targets.traced(m.PID)
		if t == nil || m.Allocated == 0 {
			continue
		}
		at := kernel.Monotonic()
		if cache := t.listBlocks(); cache != nil {
			caches[m.PID], lists[uint32(m.PID)] = cache, gpu.NewList(cache, at)
		}
	}
	return caches, lists
}

// listBlocks reads the segments of PyTorch's caching allocator; nil: there is none, or it cannot
// be read.
func (t *target) listBlocks() *growth.GPUCache {
	t.listing.Lock()
	defer t.listing.Unlock()
	cache, err := t.cacheReader.Read(t.process)
	if err != nil {
		return nil
	}
	return cache
}

// nameOrigins sets the stacks and tensors of the cache's segments and blocks that are known, and
// in how many lists each block has been.
func (t *target) nameOrigins(cache *growth.GPUCache, known *gpu.Origins, started uint64) {
	t.countLists(cache)
	known = cmp.Or(known, &gpu.Origins{})
	tensors := t.tensorsOnGPUs.Load()
	for i := range cache.Segments {
		s := &cache.Segments[i]
		if origin, ok := known.Segments[s.Address]; ok {
			s.Stack = t.stacks.Get(origin.Stack)
		}
		for j := range s.Blocks {
			b := &s.Blocks[j]
			if origin, ok := known.Blocks[b.Address]; ok && b.State == growth.GPUBlockAllocated {
				b.Stack = t.stacks.Get(origin.Stack)
				b.Born = time.Duration(origin.Born - min(started, origin.Born))
			}
			if tensors != nil && b.State == growth.GPUBlockAllocated {
				b.Tensor = (*tensors)[b.Address]
			}
		}
	}
}

// processes returns the state of each target that uses a GPU, by PID. A target that has ended is
// left out unless totals of it remain.
func (g *gpuState) processes() []growth.ProcessGPUMemory {
	totals := gpu.ReadTorchTotals(g.kernel)
	var processes []growth.ProcessGPUMemory
	for _, t := range g.targets.list() {
		pid := t.process.PID
		own := totals[uint32(pid)]
		if t.err() != nil && len(own) == 0 || !t.sources.GPU.UsesGPU() {
			continue
		}

		d := growth.ProcessGPUMemory{PID: pid, Totals: own}
		d.DriverProbed, d.BlocksProbed = t.sources.GPU.Active()
		d.BlockBursts = d.BlocksProbed && g.probing.hasBlockBursts(t)
		d.Allocated, d.Reserved = gpu.SumTotals(own)
		d.Used, d.GPUUnknown = g.nvml.Used(g.kernel.InitialPID(pid))
		processes = append(processes, d)
	}
	slices.SortFunc(processes, func(a, b growth.ProcessGPUMemory) int { return cmp.Compare(a.PID, b.PID) })
	return processes
}

// sample sums GPU memory by process; nothing if no target uses a GPU.
func (g *gpuState) sample() gpu.Sample {
	if !g.isUsed() {
		return gpu.Sample{}
	}
	g.nvml.Read(g.library)
	g.sampleTotals()
	return gpu.Sample{Processes: g.processes(), Driver: gpu.ReadDriverTotals(g.kernel)}
}

// isUsed reports whether any target has loaded a library of those that use a GPU.
func (g *gpuState) isUsed() bool {
	uses := func(t *target) bool { return t.sources.GPU.UsesGPU() }
	return slices.ContainsFunc(g.targets.list(), uses)
}

// sampleTotals starts totals samples of the targets whose blocks are not sampled any more.
func (g *gpuState) sampleTotals() {
	for _, t := range g.targets.list() {
		if t.err() == nil {
			t.watcher.Go(func() { t.sources.GPU.SampleTotals(t.stop) })
		}
	}
}

// initialPIDs maps PIDs in the initial PID namespace, in which NVML counts, to the targets' PIDs.
// It has the known ones.
func (g *gpuState) initialPIDs() map[int]int {
	pids := make(map[int]int)
	for _, t := range g.targets.list() {
		if initial := g.kernel.InitialPID(t.process.PID); initial != 0 {
			pids[initial] = t.process.PID
		}
	}
	return pids
}

// A listedBlock is a block of the lists before: in how many lists it has been, and for how many
// since then its segment was in none.
type listedBlock struct {
	size          int64
	lists, missed int
}

// maxMissed is for how many lists the block of a segment that is in none is kept: the segment may
// be gone.
const maxMissed = 3

// countLists counts in how many of the latest lists each block was allocated. A segment that
// changed while it was read is in no list, and says nothing of its blocks.
func (t *target) countLists(cache *growth.GPUCache) {
	t.cacheLists++
	cache.Lists = t.cacheLists
	before := t.listed
	t.listed = make(map[uint64]listedBlock, len(before))
	spans := make([]mem.Span, 0, len(cache.Segments))
	for i := range cache.Segments {
		s := &cache.Segments[i]
		spans = append(spans, mem.Span{Start: s.Address, End: s.Address + uint64(s.Size)})
		for j := range s.Blocks {
			b := &s.Blocks[j]
			if b.State != growth.GPUBlockAllocated {
				continue
			}

			b.Lists = 1
			if was := before[b.Address]; was.size == b.Size {
				b.Lists += was.lists
			}
			t.listed[b.Address] = listedBlock{size: b.Size, lists: b.Lists}
		}
	}

	known := mem.MergeSpans(spans)
	for address, b := range before {
		b.missed++
		if _, isKnown := known.Find(address); !isKnown && b.missed <= maxMissed {
			t.listed[address] = b
		}
	}
}
