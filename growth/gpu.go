package growth

import "slices"

// A ProcessGPUMemory is the known memory of one process on all its GPUs at one moment, in bytes.
type ProcessGPUMemory struct {
	PID int
	// Used is NVML's count for the process. Where NVML does not report it, Used is Unknown and
	// GPUUnknown is the cause.
	Used int64
	GPUUnknown
	// Allocated and Reserved are the totals of PyTorch's caching allocator: blocks handed out, and
	// segments. Unknown before its first event since tracing started, and in processes without it.
	Allocated, Reserved int64
	// Totals are the same by GPU, in order.
	Totals []GPUTotals
	// DriverProbed: calls of the CUDA driver API are traced, so the snapshot's holdings of
	// KindCudaSegment have the memory that it handed out since tracing started.
	DriverProbed bool
	// BlocksProbed: PyTorch's blocks have been traced all the time since tracing started, so they
	// are in holdings of KindCudaBlock. BlockBursts: they have been in bursts, so these
	// holdings are estimates, and some blocks have no stack.
	BlocksProbed, BlockBursts bool
	// Cache is the caching allocator's own list of its memory; nil where it could not be read.
	Cache *GPUCache
}

// A GPUReason is why NVML's count for a process is not known.
type GPUReason string

// Why NVML's count is not known.
const (
	GPUNotBuilt      GPUReason = "not-built"      // this build cannot load NVML
	GPUNoLibrary     GPUReason = "no-library"     // there is no libnvidia-ml.so.1
	GPUBadLibrary    GPUReason = "bad-library"    // it cannot be used: Detail
	GPUNoDriver      GPUReason = "no-driver"      // the kernel driver is not loaded
	GPUMismatch      GPUReason = "mismatch"       // library and driver are of different versions
	GPUNoPermission  GPUReason = "no-permission"  // the driver's device files cannot be opened
	GPUNoAnswer      GPUReason = "no-answer"      // NVML has not answered within Waited
	GPUUnknownPID    GPUReason = "unknown-pid"    // the PID on the host is not known yet
	GPUWithoutMemory GPUReason = "without-memory" // NVML lists the process without its memory
	GPUNotListed     GPUReason = "not-listed"     // NVML does not list the process
	GPUOther         GPUReason = "other"          // Detail
)

// An NVIDIA is the part of NVIDIA's that a machine without a usable NVML has.
type NVIDIA string

// The parts.
const (
	NVIDIAGPU    NVIDIA = "gpu"    // a GPU, and no driver
	NVIDIADriver NVIDIA = "driver" // the kernel driver
)

// A GPUUnknown is why NVML's count for a process is not known, with the values that its reason has.
// The zero value: it is known.
type GPUUnknown struct {
	Reason GPUReason `json:"reason,omitempty"`
	// NVIDIA is the part that the machine has, where NVML is unavailable; absent: none.
	NVIDIA NVIDIA `json:"nvidia,omitempty"`
	// Waited is how long NVML has not answered, in seconds.
	Waited float64 `json:"waited_s,omitempty"`
	// Detail is the error, in up to 200 bytes.
	Detail string `json:"detail,omitempty"`
}

// GPUTotals are the totals of PyTorch's caching allocator on one GPU, in bytes.
type GPUTotals struct {
	GPU                 string // as Holding.GPU
	Allocated, Reserved int64
}

// A GPUSample is the state of one GPU of the machine at one moment, or of one instance of a
// partitioned GPU (MIG).
type GPUSample struct {
	// Index of the GPU in NVML's order, and of the Instance on it; -1 for the whole GPU.
	Index, Instance int
	UUID, Name      string
	// Used by all processes, and Total, in bytes; Unknown where NVML does not report them.
	Used, Total int64
	// Users are the PIDs of the traced processes that NVML lists on it.
	Users []int
}

// GPUsOf returns the GPUs that a process uses. Where NVML lists the process on none, that is the
// machine's only GPU, or none if there are several.
func GPUsOf(gpus []GPUSample, pid int) []GPUSample {
	var own []GPUSample
	for _, g := range gpus {
		if slices.Contains(g.Users, pid) {
			own = append(own, g)
		}
	}

	if len(own) == 0 && len(gpus) == 1 {
		return gpus
	}
	return own
}

// GPUHeadroom returns the free memory of the fullest GPU that a process uses, in bytes; Unknown
// where none is known.
func GPUHeadroom(gpus []GPUSample, pid int) int64 {
	least := int64(Unknown)
	for _, g := range GPUsOf(gpus, pid) {
		if g.Used == Unknown || g.Total == Unknown {
			continue
		}
		if free := max(0, g.Total-g.Used); least == Unknown || free < least {
			least = free
		}
	}
	return least
}
