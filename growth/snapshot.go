package growth

import (
	"math"
	"slices"
	"time"
)

// A Holding is the memory of one kind that one stack has allocated and not freed.
//
// Counts of sampled memory are estimates: a sampled object of S bytes represents 1/p objects,
// p = 1 - exp(-S/interval).
type Holding struct {
	Stack *Stack
	Kind  Kind
	// GPU that has the memory: "0", "1", ..., as CUDA counts in the process. Empty for host memory,
	// and where the GPU is unknown.
	GPU string

	// InuseObjects and InuseBytes are alive. The bytes of VMAs are those that have been touched,
	// in RAM or swapped out.
	InuseObjects float64
	InuseBytes   int64
	// AllocObjects and AllocBytes were allocated since tracing started, freed or not. The bytes of
	// VMAs are those requested.
	AllocObjects float64
	AllocBytes   float64
	// Samples is the number of sampled objects behind InuseObjects.
	Samples int64
	// Variance of InuseBytes as an estimate, in bytes²: the sum of w(w - s) over sampled objects of
	// s bytes that represent w bytes. 0: InuseBytes is exact.
	Variance float64

	// ResidentBytes are the part of InuseBytes in RAM, as the kernel counts RSS: a page that
	// several processes share counts for each. Over all holdings of a process they sum to its RSS.
	// SwappedBytes are swapped out.
	ResidentBytes, SwappedBytes int64
	// SharedBytes is the part of ResidentBytes that an earlier process of Snapshot.Residents holds
	// too. ResidentBytes less SharedBytes can be summed over processes.
	SharedBytes int64
	// ResidentVariance of ResidentBytes as an estimate, in bytes². 0: it is exact.
	ResidentVariance float64
	// GPUBytes are the bytes of the holding in the breakdown of GPU memory; 0 for host memory. Over
	// all GPU holdings of a process they sum to its known memory on GPUs.
	GPUBytes int64

	// Births splits sampled memory that is alive by the time of its allocation. Only the newest
	// snapshot of a trace has them; there they sum to the live memory.
	Births []Birth
	// Evidence from bursts; nil where every call of the allocator was probed.
	Evidence *BurstEvidence

	// Trend over the window in which the stack was judged, empty where it was not. Undecided and
	// Longer are from the stack's judgement.
	Trend     Trend
	Undecided UndecidedReason
	Longer    time.Duration
}

// A Birth is the part of a holding that was allocated in one bin of time. InuseBytes and Variance
// are as in a Holding.
type Birth struct {
	// Bin is an index of Snapshot.Bins. A bin begins where the one before ends.
	Bin        int
	InuseBytes float64
	Variance   float64
}

// AddBirth adds to the holding's birth of the same bin.
func (h *Holding) AddBirth(b Birth) {
	for i := range h.Births {
		if h.Births[i].Bin == b.Bin {
			h.Births[i].InuseBytes += b.InuseBytes
			h.Births[i].Variance += b.Variance
			return
		}
	}
	h.Births = append(h.Births, b)
}

// IsResidentOnly is true of memory that the kernel counts and no source saw being allocated.
func (h *Holding) IsResidentOnly() bool { return h.InuseBytes == 0 && h.AllocBytes == 0 }

// Margin is half the width of the 95% confidence interval of InuseBytes, in bytes; 0 where
// InuseBytes is exact.
func (h *Holding) Margin() float64 { return ZScore95 * math.Sqrt(h.Variance) }

// MappingTotals sums the VMAs that were made since tracing started, in bytes.
type MappingTotals struct {
	// Reserved is mapped, touched or not; Touched is in RAM or swapped out.
	Reserved, Touched int64
	// Allocator is the part of Reserved that the heap's allocator mapped to serve malloc. Where the
	// heap is traced, its contents count as heap and not here.
	Allocator int64
	// Unknown is the part of Reserved that appeared in /proc/PID/maps without a traced system call.
	Unknown int64
	// Vanished VMAs were recorded and then missing from /proc/PID/maps: calls that unmapped them
	// were lost. Since tracing started.
	Vanished int64
	// Unmeasured is the part of Reserved that is too large to scan without PAGEMAP_SCAN (Linux
	// 6.7). Its resident pages are in holdings of KindUnexplained alone.
	Unmeasured int64
	// Released was returned since tracing started by madvise (DONTNEED, FREE, REMOVE); Unmapped by
	// munmap and brk.
	Released, Unmapped int64
}

// A Snapshot is the memory that was alive at one moment.
type Snapshot struct {
	// Elapsed since the start of the trace.
	Elapsed time.Duration
	// Alive are the PIDs of the traced processes that were alive.
	Alive []int
	// Interval is the mean number of bytes between samples; 1: every allocation was sampled.
	Interval uint64
	// Heap is how the allocator of the heap was probed.
	Heap HeapCoverage
	// Losses since tracing started. growth/claim decides what they mean.
	Losses Losses
	// Holdings of the traced processes, one for each stack, kind and GPU, in no order.
	Holdings []Holding
	// Bins are the ends of the bins of Holding.Births, in order, since the start of the trace: the
	// times of the snapshots that were requested.
	Bins []time.Duration
	// Residents are the processes whose pages were scanned, parents before children. Holdings has
	// the memory of the traced ones. Others has the memory of the other members of the tree,
	// without stacks.
	Residents []Resident
	Others    []Holding
	// Touched is heap memory that came into RAM since before a spike, by the stacks that made the
	// heap grow, or touched it first: only of a snapshot within a spike of RSS. It is part of the
	// memory that Holdings has as heap, retained or unclassified, and no part of the sums.
	// ResidentBytes alone are set.
	Touched []Holding
	// LiveObjects is the number of entries of the BPF map of live objects.
	LiveObjects int
	Mappings    MappingTotals
	// GPUMemory has the traced processes that use a GPU, by PID. GPUHoldings, in no order, are on
	// GPUs and no part of Holdings.
	GPUMemory   []ProcessGPUMemory
	GPUHoldings []Holding
	// Took is how long the snapshot took to read.
	Took time.Duration
}

// ResidentHeap returns the resident memory of all heaps in bytes; false: pages were not scanned.
// Memory from before tracing started is part of the heap as far as objects take its place.
func (s *Snapshot) ResidentHeap() (bytes int64, known bool) {
	for i := range s.Holdings {
		switch h := &s.Holdings[i]; h.Kind {
		case KindHeap, KindRetained, KindUnclassified, KindMetadata, KindBeforeTracing:
			bytes += h.ResidentBytes
			known = known || h.ResidentBytes > 0
		}
	}
	return bytes, known
}

// A Resident is a process as the kernel counts it at the time of a snapshot.
type Resident struct {
	PID, Parent int
	Traced      bool
	// HeapTraced: the allocation sites of its heap memory are known.
	HeapTraced bool
	// Forked: it executes the program of its parent, so it began with its parent's memory.
	Forked bool
	Role   Role
	// RSS and Swap in bytes, and Threads, from /proc/PID/status; Unknown where it has none.
	RSS, Swap, Threads int64
	// Peak is the highest RSS of the process so far, as the kernel counts; 0 or Unknown: it is not
	// known.
	Peak int64
	// Arenas of glibc's malloc, the main arena included; 0 where they are unknown.
	Arenas int
	// Walk of malloc's heaps; nil: they were not walked for this snapshot.
	Walk *HeapWalk
	// Blocks that are not in memory as a whole, or were not at an earlier snapshot; the largest
	// ones.
	Blocks []Block
	// CodeFiles are the executable files that were mapped at any time of the trace. 0: not traced.
	CodeFiles int64
	// Scanned is the share of its pages that was scanned, 0 to 1. The rest is extrapolated, or
	// unexplained where none of a VMA was scanned (MappingTotals.Unmeasured).
	Scanned float64
}

// A HeapWalk has the sums over all chunks in the heaps of glibc's malloc, read from outside. Chunks
// with a mapping of their own are not in it.
type HeapWalk struct {
	// At is when, since the start of the trace.
	At time.Duration
	// FreeResident is the memory, in bytes, in chunks that the program does not have: the tops of
	// the arenas, bins, fastbins and the caches of threads. Only pages count that have come into
	// RAM since tracing started.
	FreeResident int64
}

// A Block is private or shared memory of a known size: an object of malloc, or a mapping that no
// allocator made. It can grow until all of it is touched.
type Block struct {
	Start uint64
	// Bytes is its size. Touched is the part that is in RAM, or swapped out.
	Bytes, Touched int64
	// IsObject: malloc has returned it. A mapping may as well be the heap of a runtime.
	IsObject bool
}

// Of returns the snapshot with the holdings and the resident memory of one process alone. A
// snapshot has ended processes too.
func (s *Snapshot) Of(pid int) *Snapshot {
	ofProcess := func(holdings []Holding) (own []Holding) {
		for _, h := range holdings {
			if h.Stack.PID == pid {
				own = append(own, h)
			}
		}
		return own
	}

	own := *s
	own.Holdings, own.GPUHoldings = ofProcess(s.Holdings), ofProcess(s.GPUHoldings)
	own.Others, own.Touched = ofProcess(s.Others), ofProcess(s.Touched)

	own.Residents = nil
	for _, r := range s.Residents {
		if r.PID == pid {
			own.Residents = append(own.Residents, r)
		}
	}

	own.GPUMemory = nil
	for _, d := range s.GPUMemory {
		if d.PID == pid {
			own.GPUMemory = append(own.GPUMemory, d)
		}
	}

	return &own
}

// UnclassifyFree makes a process's memory of KindRetained KindUnclassified: it is not known to be
// free any more.
func (s *Snapshot) UnclassifyFree(pid int) {
	for i := range s.Holdings {
		h := &s.Holdings[i]
		if h.Kind != KindRetained || h.Stack.PID != pid {
			continue
		}

		var frames []string
		for _, f := range h.Stack.Frames {
			frames = append(frames, f.Function)
		}
		h.Kind, h.Stack = KindUnclassified, NamedStack(pid, RootUnclassified, frames...)
	}
}

// OnGPUs returns the snapshot with GPUHoldings in place of Holdings, so that functions on holdings
// apply to GPU memory. It keeps the named kinds, or all if none is named.
//
// HeapCoverage is left out: calls of the driver are always probed. So are blocks of PyTorch's caching
// allocator, or their holdings are estimates by themselves (ProcessGPUMemory.BlockBursts).
func (s *Snapshot) OnGPUs(kinds ...Kind) *Snapshot {
	own := *s
	own.Heap, own.Residents, own.Others = HeapCoverage{}, nil, nil
	own.Holdings, own.GPUHoldings = s.GPUHoldings, nil

	if len(kinds) > 0 {
		isOther := func(h Holding) bool { return !slices.Contains(kinds, h.Kind) }
		own.Holdings = slices.DeleteFunc(slices.Clone(s.GPUHoldings), isOther)
	}

	return &own
}

// AllHoldings returns the holdings in host memory and on GPUs.
func (s *Snapshot) AllHoldings() []Holding { return slices.Concat(s.Holdings, s.GPUHoldings) }

// DropBirths removes the parts that a later snapshot has: births of its processes, without blocks on GPUs where
// it does not trace these any more, and segments of PyTorch's cache.
func (s *Snapshot) DropBirths(later *Snapshot) {
	for _, holdings := range [][]Holding{s.Holdings, s.GPUHoldings} {
		for i := range holdings {
			h := &holdings[i]
			isLost := h.Kind == KindCudaBlock && !later.TracesBlocks(h.Stack.PID)
			if slices.Contains(later.Alive, h.Stack.PID) && !isLost {
				h.Births = nil
			}
		}
	}
	for i := range s.GPUMemory {
		m := &s.GPUMemory[i]
		isLater := func(l ProcessGPUMemory) bool { return l.PID == m.PID && l.Cache != nil }
		if m.Cache != nil && slices.ContainsFunc(later.GPUMemory, isLater) {
			m.Cache.Segments = nil
		}
	}
}

// TracesBlocks reports whether all blocks of a process on GPUs were traced until the snapshot.
func (s *Snapshot) TracesBlocks(pid int) bool {
	return !slices.ContainsFunc(s.GPUMemory,
		func(m ProcessGPUMemory) bool { return m.PID == pid && !m.BlocksProbed })
}

// DropIdle removes the holdings that hold nothing: memory that was allocated and freed. It returns
// how many it has removed.
func (s *Snapshot) DropIdle() (dropped int) {
	for _, holdings := range []*[]Holding{&s.Holdings, &s.GPUHoldings} {
		idle := 0
		for i := range *holdings {
			if (*holdings)[i].isIdle() {
				idle++
			}
		}
		if idle == 0 { // as in most snapshots that were asked before
			continue
		}

		held := make([]Holding, 0, len(*holdings)-idle)
		for _, h := range *holdings {
			if !h.isIdle() {
				held = append(held, h)
			}
		}
		dropped += idle
		*holdings = held
	}
	return dropped
}

// isIdle is true of a holding that holds nothing.
func (h *Holding) isIdle() bool {
	return h.InuseBytes == 0 && h.InuseObjects == 0 && h.ResidentBytes == 0 &&
		h.SwappedBytes == 0 && h.GPUBytes == 0
}

// Total sums InuseBytes over the holdings of the named kinds, or of all kinds if none is named.
func (s *Snapshot) Total(kinds ...Kind) int64 {
	var sum int64
	for _, h := range s.Holdings {
		if len(kinds) == 0 || slices.Contains(kinds, h.Kind) {
			sum += h.InuseBytes
		}
	}
	return sum
}
