package growth

import "time"

// A Role is what a process does in a training job.
type Role string

// The roles of processes.
const (
	RoleTrainer       Role = "trainer"
	RoleRank          Role = "rank" // one trainer of several; its number is Process.Rank
	RoleLauncher      Role = "launcher"
	RoleCompileWorker Role = "compile worker"
	RoleLoaderWorker  Role = "DataLoader worker"
	RoleOther         Role = "other"
)

// A Process is one process of the traced tree.
type Process struct {
	// PID and Parent as our PID namespace counts.
	PID, Parent int
	// Born is when it began (or executed its program), since the start of the trace; negative: before it.
	Born time.Duration
	// Command is a short name of what runs; Executable is the path of the program and Arguments the command line, as the
	// process sees them.
	Command    string
	Executable string
	Arguments  []string
	Role       Role
	// Rank of a RoleRank; Unknown otherwise.
	Rank int
}

// A ProcessSample is the state of one process of the tree.
type ProcessSample struct {
	PID int64
	Sample
}

// A Member is a process of the tree and what the trace does with it.
type Member struct {
	Process
	// Traced: all sources are attached, since From.
	Traced bool
	From   time.Duration
}

// A Moment is the state of a process tree and of what is around it.
type Moment struct {
	// Elapsed since the start of the trace.
	Elapsed time.Duration
	// Members are the processes, and Processes their samples, in the same order.
	Members   []Member
	Processes []ProcessSample
	Around    Around
	Price     Price
	// GPUs of the machine that NVML tells of, in its order; empty where it tells nothing.
	GPUs []GPUSample
}

// Around is the memory around a process tree, in bytes; Unknown where it cannot be read.
type Around struct {
	// Available is the machine's MemAvailable; SwapFree its free swap.
	Available, SwapFree int64
	// CgroupUsed is what the cgroup that limits first has charged, without page cache that could be dropped; CgroupLimit is
	// its limit. Unknown where none limits.
	CgroupUsed, CgroupLimit int64
	// CgroupCache is the page cache of files that the same cgroup is charged for, without shared memory.
	CgroupCache int64
}

// Room is what can still be taken until the first limit, the cgroup's or the machine's; Unknown where neither is known.
func (a Around) Room() (bytes int64, limit string) {
	room, by := int64(Unknown), ""
	if a.Available != Unknown {
		room, by = a.Available, "machine"
	}
	if a.CgroupLimit != Unknown && a.CgroupUsed != Unknown && (room == Unknown || a.CgroupLimit-a.CgroupUsed < room) {
		room, by = max(0, a.CgroupLimit-a.CgroupUsed), "cgroup"
	}
	return room, by
}
