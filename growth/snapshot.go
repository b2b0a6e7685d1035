package growth

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// A Holding is what one stack has allocated and still holds, in one kind of memory.
//
// Counts of sampled memory are estimates: each sampled object of S bytes stands for 1/p objects, p = 1 - exp(-S/interval).
type Holding struct {
	Stack *Stack
	Kind  Kind
	// GPU on which the memory is: "0", "1", ..., as CUDA counts in the process. Empty: it is host memory, or not known on which.
	GPU string
	// InuseObjects and InuseBytes are alive. For mappings, bytes are those that have been touched (in memory or swapped out).
	InuseObjects float64
	InuseBytes   int64
	// AllocObjects and AllocBytes were allocated since the attach, freed or not. For mappings, bytes are those asked for.
	AllocObjects float64
	AllocBytes   float64
	// Samples is the number of objects behind InuseObjects.
	Samples int64
	// Variance of InuseBytes as an estimate from samples, in bytes²: the sum of w(w - s) over sampled objects of s bytes that
	// stand for w bytes. 0: it is exact.
	Variance float64
	// ResidentBytes are those of InuseBytes that are in memory, as the kernel counts RSS: what a process shares with another
	// counts for each. Over all holdings of a process they sum to its RSS. SwappedBytes are swapped out.
	ResidentBytes, SwappedBytes int64
	// SharedBytes is the part of ResidentBytes that an earlier process of the tree (see Snapshot.Residents) holds too, so
	// that ResidentBytes less SharedBytes can be summed over processes.
	SharedBytes int64
	// DeviceBytes are those on a GPU that the holding stands for in the ledger of device memory. Over all device holdings of a process
	// they sum to what is known of its memory there. 0 for host memory.
	DeviceBytes int64
	// ResidentVariance of ResidentBytes as an estimate, in bytes². 0: it is exact.
	ResidentVariance float64
	// Births splits what is alive by the time at which it was allocated. Only the newest snapshot of a trace has them, of
	// what is sampled; there, their sum is what is alive.
	Births []Birth
	// Sighting is the evidence for it; nil: every call was watched.
	Sighting *Sighting
	// Trend over the window in which it was judged, empty: it was not; Doubt and Longer are those of a StackTrend.
	Trend  Trend
	Doubt  Doubt
	Longer time.Duration
}

// A Birth is the part of a holding that was allocated in one bin of time. InuseBytes and Variance are as those of a Holding.
type Birth struct {
	// Bin is an index of Snapshot.Bins: after the moment before, up to this one.
	Bin        int
	InuseBytes float64
	Variance   float64
}

// AddBirth adds to the bin of a birth.
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

// MappingTotals sums the mappings that were made since the attach, in bytes.
type MappingTotals struct {
	// Reserved is mapped, touched or not; Touched is in memory or swapped out.
	Reserved, Touched int64
	// Allocator is the part of Reserved that the heap's allocator mapped to serve malloc; where the heap is traced, its
	// contents are counted there and not here.
	Allocator int64
	// Unknown is the part of Reserved that appeared in /proc/PID/maps without a system call having been seen.
	Unknown int64
	// Vanished was believed to be mapped and was found not to be: calls that gave it back went unseen. Since the attach.
	Vanished int64
	// Unmeasured is the part of Reserved whose pages were not looked at, because the kernel has no PAGEMAP_SCAN (Linux 6.7
	// has) and there is too much of it. What it holds in memory is in Holdings of KindUnexplained alone.
	Unmeasured int64
	// Released was given back since the attach by madvise (DONTNEED, FREE, REMOVE); Unmapped by munmap.
	Released, Unmapped int64
}

// A Release is memory that one stack gave back to the kernel since the attach.
type Release struct {
	Stack *Stack
	// Call by which it was given back: "munmap", "brk" or "madvise".
	Call string
	// Calls made and Bytes given back.
	Calls, Bytes int64
}

// A Snapshot is what was alive at one moment.
type Snapshot struct {
	// Elapsed since the start of the trace.
	Elapsed time.Duration
	// Alive are the PIDs of the traced processes that were alive.
	Alive []int
	// Interval is the mean number of bytes between samples; 1: every allocation was taken.
	Interval uint64
	// Watch is how heap memory was watched.
	Watch Watch
	// Holdings, one for each stack and kind, in no particular order.
	Holdings []Holding
	// Bins are the ends of the bins of Holding.Births, in order, since the start of the trace: the moments of the snapshots
	// that were asked for.
	Bins []time.Duration
	// Residents are the processes whose pages were looked at, parents before children: the traced ones, whose holdings are
	// in Holdings, and the other members of the tree, whose holdings are in Others. These name no stacks.
	Residents []Resident
	Others    []Holding
	// LiveObjects is the number of entries of the live map.
	LiveObjects int
	Mappings    MappingTotals
	// Devices are the traced processes that use a GPU, by PID, and what is known of their memory there; DeviceHoldings, in no
	// particular order, are of the kinds that are on GPUs, and no part of Holdings.
	Devices        []Device
	DeviceHoldings []Holding
	// Releases, in no particular order.
	Releases []Release
	// Took is how long it took to read.
	Took time.Duration
}

// A Resident is what the kernel counts of a process at the moment of a snapshot.
type Resident struct {
	PID, Parent int
	Traced      bool
	// HeapTraced: the holders of its heap memory are known.
	HeapTraced bool
	// Forked: it executes what its parent executed, so that it began with its parent's memory.
	Forked bool
	Role   Role
	// RSS and Swap in bytes, and Threads, as /proc/PID/status tells; Unknown where it does not.
	RSS, Swap, Threads int64
	// Arenas of malloc, the main heap included; 0 where they are not known.
	Arenas int
	// Looked is the share of its pages that was looked at, up to 1; the rest is extrapolated, or unexplained where all of a
	// mapping was left out (MappingTotals.Unmeasured).
	Looked float64
}

// Of is the snapshot without the holdings of other processes, which it has also of those that have ended.
func (s *Snapshot) Of(pid int) *Snapshot {
	own := *s
	own.Holdings, own.DeviceHoldings, own.Devices = nil, nil, nil
	for _, h := range s.Holdings {
		if h.Stack.PID == pid {
			own.Holdings = append(own.Holdings, h)
		}
	}
	for _, h := range s.DeviceHoldings {
		if h.Stack.PID == pid {
			own.DeviceHoldings = append(own.DeviceHoldings, h)
		}
	}
	for _, d := range s.Devices {
		if d.PID == pid {
			own.Devices = append(own.Devices, d)
		}
	}
	return &own
}

// DropBirths makes a snapshot forget the births of processes that a later one knows better.
func (s *Snapshot) DropBirths(pids []int) {
	for _, holdings := range [][]Holding{s.Holdings, s.DeviceHoldings} {
		for i := range holdings {
			if slices.Contains(pids, holdings[i].Stack.PID) {
				holdings[i].Births = nil
			}
		}
	}
}

// Total is the sum of InuseBytes over the holdings of a kind; of all kinds if none is given.
func (s *Snapshot) Total(kinds ...Kind) int64 {
	var sum int64
	for _, h := range s.Holdings {
		if len(kinds) == 0 || slices.Contains(kinds, h.Kind) {
			sum += h.InuseBytes
		}
	}
	return sum
}

// A holder is one stack and kind. The stacks that could not be kept are one for each process.
type holder struct {
	stack uint64
	pid   int
	kind  Kind
	gpu   string
}

func holderOf(stack *Stack, kind Kind, gpu string) holder {
	return holder{stack.ID, stack.PID, kind, gpu}
}

// Between is what accumulated between two snapshots of one trace: for each stack and kind what is alive at the end minus
// what was alive at the start. Objects alive at both cancel exactly, so that only turnover carries sampling error. Stacks
// that hold less than before are negative; stacks without any difference are left out. Variance is that of the difference;
// ResidentVariance is left out. The result is sorted by InuseBytes, largest first. What accumulated on GPUs is that between their
// OnDevices.
func Between(start, end *Snapshot) []Holding {
	startBin := lastBin(end.Bins, start.Elapsed)
	sums := make(map[holder]Holding, len(end.Holdings))
	for _, h := range end.Holdings {
		sums[holderOf(h.Stack, h.Kind, h.GPU)] = h
	}
	for _, h := range start.Holdings {
		key := holderOf(h.Stack, h.Kind, h.GPU)
		sum, ok := sums[key]
		if !ok {
			sum = Holding{Stack: h.Stack, Kind: h.Kind, GPU: h.GPU}
		}
		t := turnoverOf(&h, &sum, startBin)
		sum.Variance = t.freed*h.Variance + t.born*sum.Variance
		sum.InuseObjects -= h.InuseObjects
		sum.InuseBytes -= h.InuseBytes
		sum.ResidentBytes -= h.ResidentBytes
		sum.SwappedBytes -= h.SwappedBytes
		sum.SharedBytes -= h.SharedBytes
		sum.DeviceBytes -= h.DeviceBytes
		sum.AllocObjects -= h.AllocObjects
		sum.AllocBytes -= h.AllocBytes
		sum.Samples -= h.Samples
		sums[key] = sum
	}
	grown := make([]Holding, 0, len(sums))
	for _, h := range sums {
		h.Births, h.ResidentVariance = nil, 0
		if !h.isZero() {
			grown = append(grown, h)
		}
	}
	SortByInuse(grown)
	return grown
}

// isMerelyResident is true of memory that the kernel counts and no source has seen allocated.
func (h *Holding) isMerelyResident() bool { return h.InuseBytes == 0 && h.AllocBytes == 0 }

func (h Holding) isZero() bool {
	return h.InuseBytes == 0 && h.ResidentBytes == 0 && h.SwappedBytes == 0 && h.DeviceBytes == 0 && math.Round(h.InuseObjects) == 0 && math.Round(h.AllocObjects) == 0 && math.Round(h.AllocBytes) == 0
}

// Margin is half the width of the 95 % interval of InuseBytes, in bytes; 0 where that is not sampled.
func (h *Holding) Margin() float64 { return normal95 * math.Sqrt(h.Variance) }

// SortByInuse sorts by InuseBytes, largest first, and by stack ID among equals.
func SortByInuse(holdings []Holding) {
	slices.SortFunc(holdings, func(a, b Holding) int {
		return cmp.Or(cmp.Compare(b.InuseBytes, a.InuseBytes), cmp.Compare(a.Stack.ID, b.Stack.ID), cmp.Compare(a.Kind, b.Kind))
	})
}
