package nvml

import "errors"

// A driver is NVML as a whole. Each call may block.
type driver interface {
	// start loads and initializes NVML. It may be called again after an error or a stop.
	start() error
	stop()
	version() (string, error)
	count() (int, error)
	device(index int) (device, error)
}

// A device is an nvmlDevice_t: a GPU, or a MIG device of one.
type device interface {
	uuid() (string, error)
	name() (string, error)
	memory() (used, total uint64, err error) // bytes
	inMIGMode() (bool, error)
	// maxMIGDevices returns how many MIG devices the GPU may have. migDevice fails with errNotFound
	// for an index without one.
	maxMIGDevices() (int, error)
	migDevice(index int) (device, error)
	processes(processList) ([]processEntry, error)
}

// A processList names one of NVML's lists of processes. A process may be in several of them, with
// the same memory in each.
type processList int

const (
	computeList processList = iota
	graphicsList
	mpsList // clients of the Multi-Process Service
)

func (l processList) String() string {
	return [...]string{
		"compute processes", "graphics processes", "processes of the Multi-Process Service",
	}[l]
}

// A processEntry is an nvmlProcessInfo_t. A process has one for each MIG instance that it uses.
type processEntry struct {
	pid                              uint32
	gpuInstanceID, computeInstanceID uint32 // all bits set: none
	bytes                            uint64 // or notAvailable
}

// notAvailable is NVML_VALUE_NOT_AVAILABLE, for memory that NVML does not report.
const notAvailable = ^uint64(0)

// Errors of NVML's calls.
var (
	errNoFunction   = errors.New("this driver has no such call (install a newer one)")
	errNotSupported = errors.New("not supported here")
	errNotFound     = errors.New("not found")
	errLost         = errors.New("the GPU has fallen off the bus (see dmesg for Xid)")
	errReset        = errors.New("the GPU needs a reset (nvidia-smi --gpu-reset)")
	errDriverGone   = errors.New("the NVIDIA driver is gone")
)

// needsRestart reports whether NVML answers no call after this error until it is started again.
func needsRestart(err error) bool {
	return errors.Is(err, errDriverGone) || errors.Is(err, ErrMismatch)
}
