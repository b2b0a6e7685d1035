// Package census is the domain of the objects of a Python process: their number and bytes by type,
// the storages of its tensors, and how both grow. It does no I/O.
package census

import "time"

// A Result counts the objects of one Python process at one moment.
type Result struct {
	PID int
	// ID differs between all censuses; 0: it is not known. Paired has the types that grew since
	// each earlier census of the program, by its ID, as far as the windows that both have read
	// show. It has no entry where both have read everything, or where the windows of one are not
	// known.
	ID     uint64
	Paired map[uint64][]Difference
	// Elapsed since the start of the trace.
	Elapsed time.Duration
	// Python is the version of the interpreter, such as "3.11".
	Python string

	// Share is the part of the small-object memory that was read; 1: all of it, the counts are
	// exact but for changes meanwhile.
	Share float64
	// Types are the objects by type, the most bytes first.
	Types []TypeCount
	// Blocks is the number of live blocks of pymalloc; Untyped is the part of them without an
	// object: tables of containers and buffers. Bytes of these are UntypedBytes.
	Blocks, Untyped, UntypedBytes float64
	// Inconsistent is the number of pools that changed while they were read, twice, and are left
	// out.
	Inconsistent int
	// Missing is the part of the objects that is not counted; empty: none.
	Missing Missing
	// Cut is set if the time was used up before all was read. The counts are of the part that was
	// read.
	Cut bool

	Tensors Tensors

	// Collections is how often the oldest generation of the garbage collector has run since the
	// interpreter started; -1: not known.
	Collections int

	// Took is the CPU time of reading and counting the objects; ReadBytes is the number of bytes
	// read. Listing the memory and recognising bulk data are in neither.
	Took      time.Duration
	ReadBytes int64
}

// A TypeCount is the objects of one type.
type TypeCount struct {
	// Type is the name of the type with its module: "PIL.Image.Image", "list".
	Type string
	// Count and Bytes of the objects; Bytes are the sizes of their blocks, GC headers included, and
	// of the tables that they own (the items of a list, the table of a dict, the value arrays of an
	// instance).
	Count, Bytes float64
	// Margin is half the width of the 95% confidence interval of Count; 0: exact. It is a guess
	// where Windows is small.
	Margin float64
	// Windows is the number of parts of the memory in which some were counted, of which a census
	// may read a share; 0: they lie elsewhere, and all of them are counted.
	Windows int
}

// A Missing is a part of the objects that is not counted.
type Missing string

// Parts that are not counted.
const (
	MissingForTime Missing = "time"  // objects in memory for which there was no time
	MissingLarge   Missing = "large" // above 512 bytes: malloc is not glibc's, or cannot be read
)

// A TensorsUnknown is why the tensors of a process are not known.
type TensorsUnknown string

// Why tensors are not known.
const (
	NoTorch       TensorsUnknown = "no-torch" // PyTorch is not loaded, as in most processes
	PartRead      TensorsUnknown = "part"     // only a part of the memory of small objects was read
	TooMany       TensorsUnknown = "too-many" // more than TensorLimits.Most
	UnknownLayout TensorsUnknown = "layout"   // no known layout of PyTorch fits them
)

// TensorLimits are the numbers of a TensorsUnknown.
type TensorLimits struct {
	// Most is how many tensors are read at most, with TooMany.
	Most int `json:"tensors_most,omitempty"`
	// Fitting of the Checked tensors fit the likeliest layout, with UnknownLayout.
	Fitting int `json:"tensors_fitting,omitempty"`
	Checked int `json:"tensors_checked,omitempty"`
}

// Tensors are the tensors of PyTorch that Python objects refer to.
type Tensors struct {
	// Unknown is why they are not known, and TensorLimits its numbers; empty: they are known.
	Unknown TensorsUnknown
	TensorLimits
	// Groups are the distinct storages by dtype, shape and device, the most bytes first.
	Groups []TensorGroup
	// InCPPOnly are bytes of CPU storages to which no tensor of Python refers, such as tensors that
	// autograd has saved: an estimate from the sampled allocations since tracing started. -1: not
	// known.
	InCPPOnly int64
}

// A TensorGroup is the storages of the tensors of one dtype, shape and device.
type TensorGroup struct {
	DType  string  // "float32"
	Shape  []int64 // of the largest tensor on each storage
	Device string  // "cpu", "cuda:0"
	// Storages is the number of distinct storages, and Bytes their size. Tensors is the number of
	// Python objects that refer to them: above Storages where some are views.
	Storages, Tensors int
	Bytes             int64
	// WithGradFn is the number of Tensors that keep the autograd graph that computed them.
	WithGradFn int
	// Stack is the stack that allocated most of them, by ID; 0: not known.
	Stack uint64
}
