package nvml

import "errors"

// A driver is what a reading asks of NVML as a whole. Any call may block.
type driver interface {
	// start loads and initializes NVML; it may be called again after an error or a stop.
	start() error
	stop()
	version() (string, error)
	count() (int, error)
	device(index int) (device, error)
}

// A device is a GPU or an instance of one.
type device interface {
	uuid() (string, error)
	name() (string, error)
	memory() (used, total uint64, err error)
	// divided: the GPU is in MIG mode.
	divided() (bool, error)
	// slots for instances; instance fails with errNotFound for those that are empty.
	slots() (int, error)
	instance(slot int) (device, error)
	processes(list) ([]use, error)
}

// A list of processes that NVML keeps for a device. One process may be in several, with the same memory in each.
type list int

const (
	compute list = iota
	graphics
	shared // clients of the Multi-Process Service
)

func (l list) String() string {
	return [...]string{"compute processes", "graphics processes", "processes of the Multi-Process Service"}[l]
}

// A use is an entry of a list. A process has several where it uses several instances of a GPU.
type use struct {
	pid               uint32
	instance, compute uint32 // IDs; all bits set: none
	bytes             uint64
}

// notAvailable stands for memory that NVML cannot tell: NVML_VALUE_NOT_AVAILABLE.
const notAvailable = ^uint64(0)

// What NVML and its library answer instead of a result.
var (
	errNoCall       = errors.New("this driver has no such call (install a newer one)")
	errNotSupported = errors.New("not supported here")
	errNotFound     = errors.New("not found")
	errLost         = errors.New("the GPU has fallen off the bus (see dmesg for Xid)")
	errReset        = errors.New("the GPU needs a reset (nvidia-smi --gpu-reset)")
	errGone         = errors.New("the NVIDIA driver is gone")
)
