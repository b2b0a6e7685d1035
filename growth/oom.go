package growth

import "time"

// An OOMKill is the report of the kernel's OOM killer about one process that it has killed.
type OOMKill struct {
	// At is when, by the clock of the kernel's log: since the boot, without suspended time.
	At time.Duration
	// PID in the initial PID namespace. Command is the short name, as the process has chosen it.
	PID     int
	Command string
	// Anonymous, File and Shared memory of the process in RAM, in bytes.
	Anonymous, File, Shared int64
	// OfMachine: the machine was out of memory. Else Cgroup is the path of the cgroup whose limit
	// was met; empty: the report lacks it, because the kernel writes few in a short time.
	OfMachine bool
	Cgroup    string
	// Own is the cgroup of the process.
	Own string
	// Used and Limit of the cgroup in bytes; Unknown where the report lacks them, and for the
	// machine.
	Used, Limit int64
	// Largest are the processes with most RSS that could have been chosen, the largest first, and
	// Count is how many there were; 0: the report lacks them.
	Largest []OOMTask
	Count   int
}

// RSS is the memory of the process in RAM, in bytes.
func (k *OOMKill) RSS() int64 { return k.Anonymous + k.File + k.Shared }

// An OOMTask is a process in the table of the OOM killer.
type OOMTask struct {
	PID     int
	Command string
	RSS     int64 // bytes
}
