package tracer

import (
	"slices"

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

// sampleDevices sums what processes have on GPUs; nothing where none uses one.
func (s *Session) sampleDevices() deviceSums {
	if !s.usesGPU() {
		return deviceSums{}
	}
	s.gpus.read(s.Options.NVML)
	s.glimpseTotals()
	sums := deviceSums{devices: s.devices()}
	sums.driver = make(map[uint32]driverTotal)
	err := readMap(s.kernel.Maps[bpf.KernelMapDeviceLive], func(key *bpf.KernelDeviceAddress, m *bpf.KernelDeviceMemory) {
		total, size := sums.driver[key.Tgid], int64(min(m.Size, mostBytes))
		switch m.Kind {
		case bpf.KernelAllocationKindKIND_SEGMENT:
			total.device += size
		case bpf.KernelAllocationKindKIND_PINNED, bpf.KernelAllocationKindKIND_REGISTERED:
			total.pinned += size
		}
		sums.driver[key.Tgid] = total
	})
	if err != nil {
		sums.driver = nil
	}
	return sums
}

// usesGPU tells whether any target has a library of those that use a GPU.
func (s *Session) usesGPU() bool {
	return slices.ContainsFunc(s.targets.list(), func(t *target) bool { return t.cuda.usesGPU() })
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
