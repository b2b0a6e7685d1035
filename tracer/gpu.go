package tracer

import (
	"cmp"
	"slices"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/estimate"
	nvml "github.com/allocscope/allocscope/tracer/gpu"
	"github.com/allocscope/allocscope/tracer/kernel"
)

// gpuState reads what the targets have on GPUs.
type gpuState struct {
	kernel  *kernel.Kernel
	targets *targetSet
	library string // path of libnvidia-ml.so.1; empty: where the dynamic linker finds it
	nvml    nvml.Monitor
}

// addTo adds them to a snapshot: what is on GPUs to its device holdings, and what the driver has allocated of the host's memory to held. Memory
// that it has merely pinned has been allocated by others; it is in the ledger alone.
func (g *gpuState) addTo(b *nvml.Totals, snapshot *growth.Snapshot, held estimate.Holdings) {
	devices := make(estimate.Holdings)
	for from, sum := range b.ByStack {
		t := g.targets.find(from.TGID)
		if t == nil {
			continue
		}
		stack := t.stacks.Get(from.ID)
		switch from.Kind {
		case bpf.KindBlock:
			devices.Add(stack, growth.KindCudaBlock, nvml.Name(from.GPU), sum)
		case bpf.KindSegment:
			devices.Add(stack, growth.KindCudaSegment, nvml.Name(from.GPU), sum)
		case bpf.KindPinned:
			held.Add(stack, growth.KindPinned, "", sum)
		}
	}
	snapshot.GPUHoldings = devices.List()
	snapshot.GPUMemory = g.devices()
}

// devices tells what is known of each target that uses a GPU, by PID.
func (g *gpuState) devices() []growth.ProcessGPUMemory {
	totals := nvml.ReadTorchTotals(g.kernel)
	var devices []growth.ProcessGPUMemory
	for _, t := range g.targets.list() {
		if t.err() != nil && len(totals[uint32(t.process.PID)]) == 0 || !t.gpu.UsesGPU() {
			continue
		}
		d := growth.ProcessGPUMemory{PID: t.process.PID, Allocated: growth.Unknown, Reserved: growth.Unknown, Totals: totals[uint32(t.process.PID)]}
		d.DriverProbed, d.BlocksProbed = t.gpu.Active()
		d.Allocated, d.Reserved = nvml.SumTotals(d.Totals)
		d.Used, d.Reason = g.nvml.Used(g.initialPID(t.process.PID))
		devices = append(devices, d)
	}
	slices.SortFunc(devices, func(a, b growth.ProcessGPUMemory) int { return cmp.Compare(a.PID, b.PID) })
	return devices
}

// sampleDevices sums what processes have on GPUs; nothing where none uses one.
func (g *gpuState) sample() nvml.Sample {
	if !g.isUsed() {
		return nvml.Sample{}
	}
	g.nvml.Read(g.library)
	g.glimpseTotals()
	sums := nvml.Sample{Processes: g.devices()}
	sums.Driver = nvml.ReadDriverTotals(g.kernel)
	return sums
}

// usesGPU tells whether any target has a library of those that use a GPU.
func (g *gpuState) isUsed() bool {
	return slices.ContainsFunc(g.targets.list(), func(t *target) bool { return t.gpu.UsesGPU() })
}

// glimpseTotals reads the totals of those whose blocks are not followed any more, for a moment, beside what goes on.
func (g *gpuState) glimpseTotals() {
	for _, t := range g.targets.list() {
		if t.err() == nil {
			t.watcher.Go(func() { t.gpu.SampleTotals(t.stop) })
		}
	}
}

// initialPIDs are the PIDs of targets by those in the initial namespace, as far as they are known.
func (g *gpuState) initialPIDs() map[int]int {
	pids := make(map[int]int)
	for _, t := range g.targets.list() {
		if initial := g.initialPID(t.process.PID); initial != 0 {
			pids[initial] = t.process.PID
		}
	}
	return pids
}

// initialPID is a process's PID in the initial namespace; 0: it is not known.
func (g *gpuState) initialPID(pid int) int {
	if _, inode, err := kernel.PIDNamespace(); err == nil && inode == 0 {
		return pid
	}
	var initial uint32
	if err := g.kernel.GpuUsers.Lookup(uint32(pid), &initial); err != nil {
		return 0
	}
	return int(initial)
}
