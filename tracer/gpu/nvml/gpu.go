// Package nvml reads NVML, NVIDIA's management library (https://docs.nvidia.com/deploy/nvml-api):
// the memory of every GPU, and the part of it that each process uses. That includes memory that no
// probe sees: the driver's context and the code of kernels.
package nvml

import (
	"time"

	"github.com/allocscope/allocscope/growth"
)

// Limits on the values accepted from a driver.
const (
	maxGPUs       = 64
	maxMIGDevices = 8 // per GPU: https://docs.nvidia.com/datacenter/tesla/mig-user-guide/
	maxProcesses  = 4096
	maxNameBytes  = 96
	maxGPUBytes   = 1 << 50 // more memory than a GPU has
)

// wholeGPU is the Instance of a GPU that is not in MIG mode.
const wholeGPU = -1

// A Reading is the state of all GPUs at one time. The caller may keep it, and must not change it.
type Reading struct {
	// GPUs by index and instance. A GPU that NVML reported earlier and cannot read now stays in the
	// list, its figures growth.Unknown.
	GPUs []GPU
	// Driver is the version of the NVIDIA driver; empty: nothing has been read yet.
	Driver string
	// Reason why parts of the reading are missing; empty: none is. It stays the same as long as the
	// same parts are missing.
	Reason string
	// Waited is how long NVML has not answered; 0: it has answered.
	Waited time.Duration
}

// A GPU is a whole GPU, or a MIG device of one. A GPU in MIG mode is listed by its MIG devices
// alone.
type GPU struct {
	Index    int // NVML's index
	Instance int // index of the MIG device; -1: the whole GPU
	UUID     string
	Name     string
	// Used and Total are bytes; growth.Unknown: NVML does not report them. Used counts the
	// allocations of all processes; drivers before 510 include memory that they reserve for
	// themselves.
	Used, Total int64
	// Processes by PID; nil: unavailable, for the Reason of the Reading.
	Processes []Process
}

// A Process uses memory on a GPU.
type Process struct {
	// PID in the initial PID namespace, even if the process or allocscope runs in a container.
	PID int
	// Used is bytes of the GPU's memory; growth.Unknown: NVML does not report them (the WDDM driver
	// model of Windows; MIG without permission).
	Used int64
}

// withoutFigures returns the GPU with its figures unknown.
func (g GPU) withoutFigures() GPU {
	g.Used, g.Total, g.Processes = growth.Unknown, growth.Unknown, nil
	return g
}

// withoutFigures returns GPUs with their figures unknown.
func withoutFigures(gpus []GPU) []GPU {
	var bare []GPU
	for _, g := range gpus {
		bare = append(bare, g.withoutFigures())
	}
	return bare
}
