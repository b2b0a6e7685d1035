// Package gpu reads NVML, NVIDIA's management library: the memory of every GPU, and what each process has of it. That is all
// of a process's device memory, the driver's context and the code of its kernels included, which no probe sees.
package nvml

import "github.com/allocscope/allocscope/growth"

// Bounds on what is taken from a driver.
const (
	maxGPUs      = 64
	maxInstances = 8 // of a GPU in MIG mode: https://docs.nvidia.com/datacenter/tesla/mig-user-guide/
	maxProcesses = 4096
	maxText      = 96 // bytes of a name
)

// whole is the instance of a GPU that is not divided.
const whole = -1

// A Reading is what NVML tells at one time. It may be kept; what it holds must not be changed.
type Reading struct {
	// GPUs by index and instance. One that NVML has told of before and cannot read now stays, its figures growth.Unknown.
	GPUs []GPU
	// Driver is the version of the NVIDIA driver; empty: nothing was read yet.
	Driver string
	// Reason why something is missing of it; empty: nothing is. It is the same as long as the same is missing.
	Reason string
}

// A GPU is a whole one, or an instance of one in MIG mode, of which only the instances are told.
type GPU struct {
	Index    int // as NVML counts
	Instance int // index of the MIG device; -1: the whole GPU
	UUID     string
	Name     string
	// Used and Total are bytes; growth.Unknown: not told. Used is what is allocated on it, by whomever; drivers before 510 count
	// what they reserve for themselves in it.
	Used, Total int64
	// Processes by PID; nil where they cannot be had, for which the reading has a reason.
	Processes []Process
}

// A Process has memory on a GPU.
type Process struct {
	// PID in the initial namespace, as the driver knows it, also where the process or the reader is in a container.
	PID int
	// Used is bytes of the GPU's memory; growth.Unknown: NVML does not tell (Windows' driver model; MIG without permission).
	Used int64
}

// unread is a GPU without its figures.
func (g GPU) unread() GPU {
	g.Used, g.Total, g.Processes = growth.Unknown, growth.Unknown, nil
	return g
}

// unread gives GPUs without their figures.
func unread(gpus []GPU) []GPU {
	var bare []GPU
	for _, g := range gpus {
		bare = append(bare, g.unread())
	}
	return bare
}
