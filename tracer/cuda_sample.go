package tracer

import (
	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/growth"
)

// driverTotal is what is alive of what CUDA's driver has allocated for a process, in bytes.
type driverTotal struct{ device, pinned int64 }

// deviceSums are the sums of one moment, by process.
type deviceSums struct {
	devices []growth.Device
	driver  map[uint32]driverTotal
}

// set writes what is known of a process's memory on GPUs into its sample.
func (d deviceSums) set(sample *growth.Sample, pid int) {
	for _, device := range d.devices {
		if device.PID != pid {
			continue
		}
		sample.DeviceUsed, sample.CudaAllocated, sample.CudaReserved = device.Used, device.Allocated, device.Reserved
		if device.DriverWatched && d.driver != nil {
			total := d.driver[uint32(pid)]
			sample.CudaDriver, sample.Pinned = total.device, total.pinned
		}
	}
}

// readDriverTotals sums what is alive of what the driver has allocated, by process; nil: it could not be read.
func readDriverTotals(k *kernel) map[uint32]driverTotal {
	totals := make(map[uint32]driverTotal)
	err := readMap(k.Maps[bpf.KernelMapDeviceLive], func(key *bpf.KernelDeviceAddress, m *bpf.KernelDeviceMemory) {
		total, size := totals[key.Tgid], int64(min(m.Size, mostBytes))
		switch m.Kind {
		case bpf.KernelAllocationKindKIND_SEGMENT:
			total.device += size
		case bpf.KernelAllocationKindKIND_PINNED, bpf.KernelAllocationKindKIND_REGISTERED:
			total.pinned += size
		}
		totals[key.Tgid] = total
	})
	if err != nil {
		return nil
	}
	return totals
}
