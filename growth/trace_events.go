package growth

// A LossKind is what was not measured. export/words has the sentences.
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
	LossTruncatedStacks LossKind = "truncated-stacks" // stacks that are truncated, by cause
	LossPythonFrames    LossKind = "python-frames"    // stacks that lack Python frames, by cause
	LossUnknownStacks   LossKind = "unknown-stacks"   // stacks that were not reported or not kept
	LossUnwindTables    LossKind = "unwind-tables"    // files: too many unwind tables
	LossUnwindMappings  LossKind = "unwind-mappings"  // mappings: too many for stack walks
	LossProcesses       LossKind = "processes"        // processes: too many, or not readable
)

// A Loss is something that was not measured.
type Loss struct {
	Kind LossKind
	// Cause of LossTruncatedStacks and LossPythonFrames, as Stack.Truncated names it; else empty.
	Cause string
	Count uint64
}
