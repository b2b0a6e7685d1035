package tracer

import (
	"cmp"
	"slices"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/growth"
)

// gpuState reads what the targets have on GPUs.
type gpuState struct {
	kernel  *kernel
	targets *targetSet
	library string // path of libnvidia-ml.so.1; empty: where the dynamic linker finds it
	nvml    gpuWatch
}

// addTo adds them to a snapshot: what is on GPUs to its device holdings, and what the driver has allocated of the host's memory to held. Memory
// that it has merely pinned has been allocated by others; it is in the ledger alone.
func (g *gpuState) addTo(b *deviceBooks, snapshot *growth.Snapshot, held holdings) {
	devices := make(holdings)
	for from, sum := range b.sums {
		t := g.targets.find(from.tgid)
		if t == nil {
			continue
		}
		stack := t.stacks.get(from.stack)
		switch from.kind {
		case bpf.KernelAllocationKindKIND_BLOCK:
			devices.add(stack, growth.KindCudaBlock, gpuName(from.gpu), sum)
		case bpf.KernelAllocationKindKIND_SEGMENT:
			devices.add(stack, growth.KindCudaSegment, gpuName(from.gpu), sum)
		case bpf.KernelAllocationKindKIND_PINNED:
			held.add(stack, growth.KindPinned, "", sum)
		}
	}
	snapshot.DeviceHoldings = devices.list()
	snapshot.Devices = g.devices()
}

// devices tells what is known of each target that uses a GPU, by PID.
func (g *gpuState) devices() []growth.Device {
	totals := readCUDATotals(g.kernel)
	var devices []growth.Device
	for _, t := range g.targets.list() {
		if t.err() != nil && len(totals[uint32(t.process.PID)]) == 0 || !t.cuda.usesGPU() {
			continue
		}
		d := growth.Device{PID: t.process.PID, Allocated: growth.Unknown, Reserved: growth.Unknown, Totals: totals[uint32(t.process.PID)]}
		d.DriverWatched, d.BlocksWatched = t.cuda.watches()
		d.Allocated, d.Reserved = sumTotals(d.Totals)
		d.Used, d.Reason = g.nvml.used(g.initialPID(t.process.PID))
		devices = append(devices, d)
	}
	slices.SortFunc(devices, func(a, b growth.Device) int { return cmp.Compare(a.PID, b.PID) })
	return devices
}

// sampleDevices sums what processes have on GPUs; nothing where none uses one.
func (g *gpuState) sample() deviceSums {
	if !g.isUsed() {
		return deviceSums{}
	}
	g.nvml.read(g.library)
	g.glimpseTotals()
	sums := deviceSums{devices: g.devices()}
	sums.driver = readDriverTotals(g.kernel)
	return sums
}

// usesGPU tells whether any target has a library of those that use a GPU.
func (g *gpuState) isUsed() bool {
	return slices.ContainsFunc(g.targets.list(), func(t *target) bool { return t.cuda.usesGPU() })
}

// glimpseTotals reads the totals of those whose blocks are not followed any more, for a moment, beside what goes on.
func (g *gpuState) glimpseTotals() {
	for _, t := range g.targets.list() {
		if t.err() == nil {
			t.watcher.Go(func() { t.cuda.glimpse(t.stop) })
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
	if _, inode, err := pidNamespace(); err == nil && inode == 0 {
		return pid
	}
	var initial uint32
	if err := g.kernel.Maps[bpf.KernelMapDeviceUsers].Lookup(uint32(pid), &initial); err != nil {
		return 0
	}
	return int(initial)
}
