package growth

import "time"

// A Role is the function of a process in a training job.
type Role string

// The roles of processes, as files have them.
const (
	RoleTrainer       Role = "trainer"
	RoleRank          Role = "rank" // one trainer of several; its number is Process.Rank
	RoleLauncher      Role = "launcher"
	RoleCompileWorker Role = "compile-worker"
	RoleLoaderWorker  Role = "dataloader-worker"
	RoleWorker        Role = "worker" // a process that another has forked to work for it
	RoleOther         Role = "other"
)

// IsWorker is true of roles whose processes come in numbers and serve another process.
func (r Role) IsWorker() bool {
	return r == RoleCompileWorker || r == RoleLoaderWorker || r == RoleWorker || r == RoleOther
}

// A Process is one process of the traced tree.
type Process struct {
	// PID and Parent as our PID namespace counts.
	PID, Parent int
	// Born is when the process started or executed its program, since the start of the trace. It is
	// negative for a process that was there before.
	Born time.Duration
	// Start is when the process started, since the machine's boot, in ticks of 10 ms: with the PID it
	// distinguishes all processes since then. 0: unknown. execve(2) keeps it.
	Start int64
	// Command is a short name of the program. Executable is its path and Arguments its command
	// line, as the process sees them.
	Command    string
	Executable string
	Arguments  []string
	Role       Role
	// Service is the program that a process works for, as people call it: "gunicorn". A copy of a
	// process is of the service of that one.
	Service string
	// Rank of a RoleRank; Unknown otherwise.
	Rank int
	// Identity has Role and Rank, too.
	Identity Identity
}

// Surroundings are the facts, at the end of a trace, about the machine around the traced tree.
type Surroundings struct {
	// Others are processes outside the tree that have grown, the largest growth first.
	Others []OtherProcess
	// IsIdle: the process that the user named has hardly run since tracing began.
	IsIdle bool
	// RAMFiles are the file systems in RAM that the tree sees and that have grown, the largest growth
	// first.
	RAMFiles []RAMFiles
	// Container of the job, at both ends of the trace.
	Container Containers
}

// RAMFiles are a tmpfs, as the process that the user named sees it, and how it has grown since tracing
// began.
type RAMFiles struct {
	// Path of its mount.
	Path string
	// Growth of the whole in bytes, and Left until its own size limit; Unknown without one.
	Growth, Left int64
	// New counts the files that were written since then by the user of the process, and NewBytes is
	// their size. Largest is the path of one of the largest.
	New      int
	NewBytes int64
	Largest  string
}

// A Relation is how a process outside the traced tree is related to the process that the user
// named.
type Relation string

// The relations, the nearest first.
const (
	RelationStarted Relation = "started" // the named process has started it, or a process that it started
	RelationJob     Relation = "job"     // it is of the same job
	RelationMachine Relation = "machine" // it runs on the same machine
)

// An OtherProcess is a process outside the traced tree that has grown.
type OtherProcess struct {
	PID      int
	Command  string
	Relation Relation
	// Growth of its RSS in bytes: at the end less at Since, in seconds since the trace began, when it
	// was first seen.
	Growth int64
	Since  float64
	// Rate in bytes per second of its memory without files, where that has grown all the time; else 0.
	Rate float64
	// InCgroup: its memory counts against the limit of the cgroup of the named process.
	InCgroup bool
}

// A ProcessSample is the state of one process of the tree.
type ProcessSample struct {
	PID int64
	Sample
}

// A Condition describes a process beside its memory. The zero value runs.
type Condition struct {
	Halt Halt
	// Remaining is the number of threads that live once the main thread has ended; 0: it lives.
	Remaining int64
}

// A Halt is why a process does not run.
type Halt string

// The halts.
const (
	HaltStopped Halt = "stopped" // by a signal (SIGSTOP) or a debugger
	HaltFrozen  Halt = "frozen"  // by its cgroup, as docker pause does
)

// A Member is a process of the tree and whether it is traced.
type Member struct {
	Process
	// Traced: all sources are attached, since From.
	Traced bool
	From   time.Duration
	// Headroom of a traced process: the rest of a limit of its own.
	Headroom Headroom
	// Condition of a traced process.
	Condition Condition
}

// A TreeSample is the state of a process tree and of the memory around it.
type TreeSample struct {
	// Elapsed since the start of the trace.
	Elapsed time.Duration
	// Members are the processes, and Processes their samples, in the same order.
	Members   []Member
	Processes []ProcessSample
	System    SystemMemory
	Overhead  OverheadSample
	// GPUs of the machine in NVML's order; empty without NVML.
	GPUs []GPUSample
}

// SystemMemory is the memory of the machine and the cgroup of a process tree, in bytes; Unknown
// where it cannot be read.
type SystemMemory struct {
	// Available is MemAvailable of /proc/meminfo; SwapFree the machine's free swap.
	Available, SwapFree int64
	// CgroupUsed is charged to the cgroup whose limit is nearest, without page cache that can be
	// dropped. CgroupLimit is its limit. Unknown where no cgroup has a limit.
	CgroupUsed, CgroupLimit int64
	// CgroupSwapFree is the free swap that this cgroup may still fill: the kernel ends no process
	// before.
	CgroupSwapFree int64
	// CgroupThrottles is set if the limit is memory.high: there the kernel slows processes down, and
	// ends none.
	CgroupThrottles bool
	// CgroupHidden is set if neither we nor the process can see its cgroup: a limit of it is
	// unknown.
	CgroupHidden bool
	// CgroupCache is the page cache of files charged to that cgroup, without shared memory.
	// CgroupActive is the part of it that was used lately, which CgroupUsed has, too; 0: unknown.
	CgroupCache, CgroupActive int64
	// Shared is shared memory and files in RAM, and Kernel the memory that the kernel cannot drop: of
	// that cgroup, or of the machine where no cgroup has a limit.
	Shared, Kernel int64
}

// HasCgroupLimit reports whether a cgroup of the process has a limit that is known.
func (m SystemMemory) HasCgroupLimit() bool {
	return m.CgroupLimit != Unknown && m.CgroupUsed != Unknown
}

// Names of the limits of Headroom: the size at which the kernel throttles the cgroup, or ends a process
// of it, or of the machine, or refuses a process more memory (setrlimit(2)); or a limit that the user
// has given, because allocscope cannot see it.
const (
	LimitHigh         = "cgroup-high"
	LimitCgroup       = "cgroup"
	LimitMachine      = "machine"
	LimitAddressSpace = "rlimit-as"
	LimitData         = "rlimit-data"
	LimitGiven        = "given"
)

// A Headroom is the memory left until the first limit, and that limit: Bytes is 0 for the machine's. The
// zero value is of no limit.
type Headroom struct {
	Left, Bytes int64
	Of          string
}

// Headroom is the memory left until the first limit that is known.
func (m SystemMemory) Headroom() (first Headroom) {
	for _, h := range m.Headrooms() {
		first = first.Nearest(h)
	}
	return first
}

// Headrooms are the memory left in the machine and in the cgroup, as far as they are known. Free swap
// counts, as the verdict counts swapped memory.
func (m SystemMemory) Headrooms() (all []Headroom) {
	if m.Available != Unknown {
		left := m.Available + max(0, m.SwapFree)
		all = append(all, Headroom{Left: left, Of: LimitMachine})
	}
	if m.HasCgroupLimit() {
		of, left := LimitCgroup, max(0, m.CgroupLimit-m.CgroupUsed)
		if m.CgroupThrottles {
			of = LimitHigh
		} else {
			left += max(0, m.CgroupSwapFree)
		}
		all = append(all, Headroom{left, m.CgroupLimit, of})
	}
	return all
}

// GivenHeadroom is the memory until a limit that the user has given, for a process tree. Several
// processes use their PSS where it is known, since shared pages are charged once. A limit of 0 is
// none.
func GivenHeadroom(limit int64, tree Tree) Headroom {
	used := tree.RSS
	if tree.Processes > 1 && tree.PSS != Unknown {
		used = tree.PSS
	}
	if limit <= 0 || used == Unknown {
		return Headroom{}
	}
	return Headroom{Left: max(0, limit-used), Bytes: limit, Of: LimitGiven}
}

// Nearest returns the one with less left. The zero value has no limit.
func (h Headroom) Nearest(other Headroom) Headroom {
	if h.Of == "" || other.Of != "" && other.Left < h.Left {
		return other
	}
	return h
}

// An OverheadSample is the cost of tracing since the sample before; Unknown where it is not
// measured.
type OverheadSample struct {
	// Slowdown is the time that the probes took from the thread that they slow down most, in
	// millionths of the elapsed time.
	Slowdown int64
	// Own is the CPU time of allocscope, in millionths of one core.
	Own int64
	// Probed is the share of the time in which the allocator was probed, in thousandths.
	ProbedShare int64
}
