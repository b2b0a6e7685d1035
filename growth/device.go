package growth

import "slices"

// A Device is what is known of the memory that one process has on its GPUs together, at one moment. Sizes are in bytes.
type Device struct {
	PID int
	// Used is what the driver counts for the process (NVML); Unknown, and Reason says why, where it does not tell.
	Used   int64
	Reason string
	// Allocated and Reserved are the totals of torch's caching allocator, in blocks handed out and in segments; Unknown before its
	// first event since the attach, which is where a process does not use it, too.
	Allocated, Reserved int64
	// Totals are the same by GPU, in order.
	Totals []GPUTotals
	// DriverWatched: calls of the driver's API are followed, so that what it has handed out since the attach is in the snapshot's holdings
	// of KindCudaSegment. BlocksWatched: so are torch's blocks, all the time since the attach, in those of KindCudaBlock.
	DriverWatched, BlocksWatched bool
}

// GPUTotals are the totals of torch's caching allocator on one GPU, in bytes.
type GPUTotals struct {
	GPU                 string // as Holding.GPU
	Allocated, Reserved int64
}

// A GPUSample is the state of one GPU of the machine, or of one instance of a GPU that is partitioned (MIG), at one moment.
type GPUSample struct {
	// Index of the GPU as NVML counts, and of the Instance on it; -1: it is the whole GPU.
	Index, Instance int
	UUID, Name      string
	// Used by all processes, and Total, in bytes; Unknown where NVML does not tell.
	Used, Total int64
	// Users are the PIDs of the traced processes that NVML lists on it.
	Users []int
}

// OfGPUs are those that a process uses. Where NVML lists it on none, that is the only one there is; of several it is not known: none.
func OfGPUs(gpus []GPUSample, pid int) []GPUSample {
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

// RoomOnGPUs is what the GPU that has least has left, of those that a process uses, in bytes; Unknown where nothing is known of any.
func RoomOnGPUs(gpus []GPUSample, pid int) int64 {
	room := int64(Unknown)
	for _, g := range OfGPUs(gpus, pid) {
		if g.Used == Unknown || g.Total == Unknown {
			continue
		}
		if left := max(0, g.Total-g.Used); room == Unknown || left < room {
			room = left
		}
	}
	return room
}
