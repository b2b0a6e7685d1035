package growth

// A LossKind is a kind of data that were not measured. export/words has the sentences.
type LossKind string

// The losses, in the order in which tracer.Session.Counters returns them.
const (
	LossLiveFull        LossKind = "live-full"        // allocations: the live map was full
	LossFaultsFull      LossKind = "faults-full"      // page faults: their map was full
	LossTallyFull       LossKind = "tally-full"       // calls in tallies: their map was full
	LossEvents          LossKind = "events"           // events: the ring buffer was full
	LossThreadState     LossKind = "thread-state"     // calls: no kernel memory for a thread
	LossNoMemory        LossKind = "no-memory"        // calls in tallies: no kernel memory
	LossOutPointer      LossKind = "out-pointer"      // allocations: the result was not readable
	LossMissedReturn    LossKind = "missed-return"    // allocations: their return was not seen
	LossMissedFree      LossKind = "missed-free"      // frees: the address was allocated again
	LossGPUFull         LossKind = "gpu-full"         // GPU allocations: their map was full
	LossMappingStacks   LossKind = "mapping-stacks"   // mapping calls: too many stacks to walk
	LossSiteStacks      LossKind = "site-stacks"      // mapping calls: they took the last stack of their site
	LossTruncatedStacks LossKind = "truncated-stacks" // stacks that are truncated, by cause
	LossPythonFrames    LossKind = "python-frames"    // stacks that lack Python frames, by cause
	LossUnknownStacks   LossKind = "unknown-stacks"   // stacks that were not reported or not kept
	LossForgottenStacks LossKind = "forgotten-stacks" // stacks that held nothing: too many
	LossIdleHoldings    LossKind = "idle-holdings"    // of older snapshots, which held nothing: too many
	LossUnwindTables    LossKind = "unwind-tables"    // files: too many unwind tables
	LossUnwindMappings  LossKind = "unwind-mappings"  // mappings: too many for stack walks
	LossProcesses       LossKind = "processes"        // processes: too many, or not readable
)

// Events are counts since tracing started.
type Events struct {
	// Allocations are calls that ask the allocator for memory, sampled or not, without those that
	// the allocator makes itself to serve them.
	Allocations uint64 `json:"allocations"`
	// Frees are calls of free with a pointer. FreesUntracked are the Frees of objects that were not
	// sampled, or were allocated before tracing started.
	Frees          uint64 `json:"frees"`
	FreesUntracked uint64 `json:"frees_untracked"`
	// Samples are the Allocations that were sampled. Failed would have been, but returned no memory.
	Samples uint64 `json:"samples"`
	Failed  uint64 `json:"failed"`
	// Stacks that were captured. The losses count the truncated ones, by reason.
	Stacks uint64 `json:"stacks"`
	// StacksShortened is the number of stacks without their middle, and FramesLeftOut the number of
	// frames left out there.
	StacksShortened uint64 `json:"stacks_shortened"`
	FramesLeftOut   uint64 `json:"frames_left_out"`
	// MappingCalls are system calls that changed the address space: mmap, munmap, mremap, madvise.
	MappingCalls uint64 `json:"mapping_calls"`
}

// Total returns the number of calls.
func (e Events) Total() uint64 { return e.Allocations + e.Frees + e.MappingCalls }

// A Loss is how often something was missed for one reason.
type Loss struct {
	Kind LossKind `json:"code"`
	// Cause is why stacks lack frames; absent of other losses.
	Cause Truncation `json:"cause,omitempty"`
	Count uint64     `json:"count"`
	// PID of the process that has lost it; absent where any process may have.
	PID int `json:"pid,omitempty"`
	// Bytes that were lost, at least; absent where they are unknown, or there are none.
	Bytes uint64 `json:"bytes,omitempty"`
}

// Losses are all losses that have occurred. A kind may have one for each process.
type Losses []Loss

// Of returns a process's possible losses. PID 0 is the process tree, which has had all.
func (l Losses) Of(pid int) (own Losses) {
	for _, loss := range l {
		if pid == 0 || loss.PID == 0 || loss.PID == pid {
			own = append(own, loss)
		}
	}
	return own
}

// Add adds a loss with its cause, which may be empty. It ignores a count of 0.
func (l *Losses) Add(kind LossKind, cause Truncation, count uint64) {
	if count > 0 {
		*l = append(*l, Loss{Kind: kind, Cause: cause, Count: count})
	}
}

// A SourceReason is why a source is not attached, or not to all its functions.
type SourceReason string

// The reasons.
const (
	SourceNotMapped   SourceReason = "not-mapped"   // library File is not mapped
	SourceNoAllocator SourceReason = "no-allocator" // no file of the process has a malloc
	SourceGo          SourceReason = "go"           // a Go program without a malloc
	Source32Bit       SourceReason = "32-bit"       // File is a 32-bit program
	SourceNoShim      SourceReason = "no-shim"      // the preloaded library samples nothing
	SourceProducer    SourceReason = "producer"     // for Detail, malloc is probed instead of it
	SourceOther       SourceReason = "other"        // Detail
)

// A SourceFailure is why a source is not attached, or not to all its functions, with the values that
// its reason has. The zero value: there is nothing to report.
type SourceFailure struct {
	Reason SourceReason `json:"reason,omitempty"`
	// File is the library, or the program, that the reason or the gap is about.
	File string `json:"file,omitempty"`
	// Detail is the error, in up to 200 bytes, or the name of an allocator.
	Detail string `json:"detail,omitempty"`
}

// A SourceGap is a gap in the data of an attached source.
type SourceGap string

// AllocatorGo is the name of Go's allocator.
const AllocatorGo = "Go"

// The gaps.
const (
	Gap32BitCalls SourceGap = "32-bit-calls" // source mapping: system calls of a 32-bit program
	GapBlocks     SourceGap = "blocks"       // source cuda: blocks that take too much, but for totals
	// GapBlockBursts: source cuda traces blocks in bursts.
	GapBlockBursts SourceGap = "block-bursts"
	GapAllocator   SourceGap = "allocator" // source heap: allocator Detail, which is in File, too
)

// An OverheadReason is why the overhead controller opened or closed probes, or changed an interval.
type OverheadReason string

// The reasons. Coarser and finer are of the sampling interval, which is then Interval.
const (
	OverheadStarted     OverheadReason = "started"      // Steps are timed: the probes open
	OverheadCalm        OverheadReason = "calm"         // probes would take little: they open
	OverheadExpensive   OverheadReason = "expensive"    // they would take much: bursts begin
	OverheadNoBurst     OverheadReason = "no-burst"     // even bursts would: the probes close
	OverheadWalks       OverheadReason = "walks"        // stack walks take Share: coarser
	OverheadNewStacks   OverheadReason = "new-stacks"   // naming them takes too much: coarser
	OverheadFewWalks    OverheadReason = "few-walks"    // stack walks take little: finer
	OverheadFewTensors  OverheadReason = "few-tensors"  // tensor probes take little: they stay open
	OverheadManyTensors OverheadReason = "many-tensors" // they take Share: in bursts alone
	OverheadBlockWalks  OverheadReason = "block-walks"  // GPU blocks take Share: coarser
	OverheadManyBlocks  OverheadReason = "many-blocks"  // they take Share: closed for good
	// OverheadBlockBursts: GPU blocks take Share: from now on traced for Length each Spacing.
	OverheadBlockBursts OverheadReason = "block-bursts"
	OverheadFewBlocks   OverheadReason = "few-blocks" // they take little: all are traced again
	OverheadSlowSteps   OverheadReason = "slow-steps" // slower by Slowdown: half the budget
	OverheadFastSteps   OverheadReason = "fast-steps" // no longer so: twice the budget
	OverheadFailed      OverheadReason = "failed"     // Error of a probe: all close for good
)

// An OverheadChange is why the probes were changed, with the numbers that its reason has. All
// others are 0.
type OverheadChange struct {
	Reason OverheadReason `json:"reason"`
	// Source whose probes open or close: "heap" or "tensor".
	Source string `json:"source,omitempty"`
	// Share of the time of the busiest thread. Slowdown and Limit are shares of the time of a step.
	Share    float64 `json:"thread_share,omitempty"`
	Slowdown float64 `json:"slowdown_share,omitempty"`
	Limit    float64 `json:"limit_share,omitempty"`
	// Calls that are probed, each second.
	Calls float64 `json:"calls_per_s,omitempty"`
	// Interval is the mean number of bytes between samples from now on.
	Interval uint64 `json:"interval_bytes,omitempty"`
	// Length of a burst in seconds, and Spacing, the mean time from one to the next.
	Length  float64 `json:"burst_s,omitempty"`
	Spacing float64 `json:"burst_every_s,omitempty"`
	// Steps of training.
	Steps int `json:"steps,omitempty"`
	// Error of a probe.
	Error string `json:"error,omitempty"`
}

// A SelectionReason is why processes of a tree are traced, or are not yet.
type SelectionReason string

// The reasons.
const (
	SelectionAsked    SelectionReason = "asked"    // the process that the user has named is traced
	SelectionTraced   SelectionReason = "traced"   // the first Processes are traced
	SelectionAdded    SelectionReason = "added"    // more Processes are traced
	SelectionTrainers SelectionReason = "trainers" // several could be the trainer: which one grows?
	SelectionLarger   SelectionReason = "larger"   // a larger process may matter: which one grows?
	SelectionWaiting  SelectionReason = "waiting"  // a launcher has not started its program yet
	SelectionNone     SelectionReason = "none"     // the root has exited, and left nothing to trace
)

// A Selection is why processes of a tree are traced, or are not yet. The zero value needs no
// explanation: the process that the user has named is traced, or nothing has changed.
type Selection struct {
	Reason SelectionReason `json:"reason"`
	// Root is the PID of the process that the user has named, and Command its command line. 0: it
	// has exited. RootRole is its role.
	Root     int    `json:"root_pid,omitempty"`
	Command  string `json:"root_command,omitempty"`
	RootRole Role   `json:"root_role,omitempty"`
	// Processes are traced from now on. LeftOut is the number of others, which are too many.
	Processes int `json:"processes,omitempty"`
	LeftOut   int `json:"left_out,omitempty"`
	// PID, Parent, Role and Rank are of the first process, as in Process, and Traced is its command
	// line. Private is the private memory of all, in bytes.
	PID     int    `json:"pid,omitempty"`
	Parent  int    `json:"parent_pid,omitempty"`
	Traced  string `json:"command,omitempty"`
	Role    Role   `json:"role,omitempty"`
	Rank    int    `json:"rank,omitempty"`
	Private int64  `json:"private_bytes,omitempty"`
}

// A TreeEvent is an event of the process tree, or of one process of it.
type TreeEvent string

// The events.
const (
	TreeSelected    TreeEvent = "selected"     // processes are traced or not, as Selection explains
	TreeTraced      TreeEvent = "traced"       // the process is traced from now on
	TreeNotTraced   TreeEvent = "not-traced"   // the process cannot be traced
	TreeNotFollowed TreeEvent = "not-followed" // the tree cannot be read
	TreeExecuted    TreeEvent = "executed"     // the traced process has executed Command
	TreeExited      TreeEvent = "exited"       // the traced process has exited
)

// A TreeChange is an event in the process tree.
type TreeChange struct {
	Event     TreeEvent
	PID       int    // 0 for events of the tree
	Command   string // short name of the program; empty for events of the tree
	Selection Selection
}
