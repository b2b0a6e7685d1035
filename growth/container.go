package growth

import "time"

// A Container is the memory that a cgroup is charged with at one moment, in bytes.
type Container struct {
	// Elapsed since the start of the trace.
	Elapsed time.Duration
	// Cgroup is its path, as /proc/PID/cgroup has it.
	Cgroup string
	// Charged is memory.current, or memory.usage_in_bytes of version 1. The rows sum to it.
	Charged int64
	// Limit at which the kernel throttles or ends processes; Unknown: there is none.
	Limit int64
	Rows  []ContainerRow
}

// Containers are the memory of one cgroup: the container of a job when tracing began, and at the last
// moment at which it could be read; nil: the job is in none. Where another limit becomes the nearest
// one meanwhile, the container is that cgroup, and First is of that moment.
type Containers struct{ First, Last *Container }

// Add adds a later moment; nil: the container could not be read.
func (c *Containers) Add(now *Container) {
	if now == nil {
		return
	}
	if c.First == nil || c.First.Cgroup != now.Cgroup {
		c.First = now
	}
	c.Last = now
}

// A ContainerRow is a part of the memory of a container.
type ContainerRow struct {
	Kind ContainerKind
	// Key distinguishes the rows of a kind: the same process or the same file has the same one at
	// another moment. Empty: the rest of the kind.
	Key string
	// PID and Name of a process: of ContainerAnonymous, and the one that holds a file.
	PID  int
	Name string
	// File is the path as the process has it. Empty: it is no file, or several.
	File string
	// Count of the small files of a process that the row sums; 0: it sums none.
	Count int
	// Bytes are negative where several rows have the same memory: see ContainerForked.
	Bytes int64
}

// A ContainerKind is a kind of memory that a cgroup is charged with.
type ContainerKind string

// The kinds. Names in parentheses are of memory.stat
// (https://docs.kernel.org/admin-guide/cgroup-v2.html#memory-interface-files).
const (
	// Anonymous memory (anon), by process. Forked is counted for several of them, as a negative
	// number.
	ContainerAnonymous ContainerKind = "anonymous"
	ContainerForked    ContainerKind = "anonymous-shared"
	// ContainerShared is shared memory and files in RAM (shmem), by file.
	ContainerShared ContainerKind = "shared"
	// ContainerCache is page cache (file less shmem), by file. The kernel takes it back when it
	// needs memory.
	ContainerCache ContainerKind = "page-cache"
	// Memory of the kernel. ContainerKernel is the rest of it, and of version 1 all but page tables
	// and kernel stacks.
	ContainerReclaimable ContainerKind = "slab-reclaimable" // of file names and inodes, above all
	ContainerSlab        ContainerKind = "slab"
	ContainerPageTables  ContainerKind = "page-tables"
	ContainerStacks      ContainerKind = "kernel-stacks"
	ContainerSockets     ContainerKind = "sockets"
	ContainerKernel      ContainerKind = "kernel"
	// ContainerRest is charged and in none of these.
	ContainerRest ContainerKind = "rest"
)

// IsKernel reports whether the memory is the kernel's own.
func (k ContainerKind) IsKernel() bool {
	switch k {
	case ContainerReclaimable, ContainerSlab, ContainerPageTables, ContainerStacks, ContainerSockets,
		ContainerKernel:
		return true
	}
	return false
}

// IsReclaimable reports whether the kernel takes the memory back before it ends a process.
func (k ContainerKind) IsReclaimable() bool {
	return k == ContainerCache || k == ContainerReclaimable
}
