// Package gpu reads from the kernel side the memory that traced processes have allocated on GPUs,
// and pinned for them. Monitor reads NVML's report on the GPUs themselves.
package gpu

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/estimate"
	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/stack"
)

// maxBelievedBytes bounds one allocation, and one total that PyTorch reports. No memory is larger,
// and the sum of many of them still fits an int64.
const maxBelievedBytes = 1 << 46

// Name returns the CUDA index of a GPU in the process, from the kernel side's number of it; empty
// for 0, no GPU.
func Name(number uint32) string {
	if number == 0 {
		return ""
	}
	return strconv.FormatUint(uint64(number-1), 10)
}

// Key is a stack of a process, with the kind of memory and the GPU that it holds.
type Key struct {
	stack.Key
	Kind bpf.AllocationKind
	GPU  uint32 // the kernel side's number; see Name
}

// Totals is the memory alive on GPUs and pinned for them, at one moment.
type Totals struct {
	ByStack map[Key]*estimate.StackTotals
	Pins    map[uint32][]estimate.Pin // by PID
	Origins map[uint32]*Origins       // by PID
	refuted []bpf.GpuAddress          // blocks that are no longer in use
}

// Origins are the allocations of one process on GPUs by address: the sampled blocks of PyTorch's
// allocator, memory from the driver, and the handles of memory that is mapped where an expandable
// segment has it.
type Origins struct {
	Blocks, Segments, handles map[uint64]Origin
}

// An Origin is where and when memory was allocated: the ID of a stack, and ns, CLOCK_MONOTONIC.
type Origin struct{ Stack, Born uint64 }

// originsOf returns the origins of a process, which may be added to.
func (t *Totals) originsOf(pid uint32) *Origins {
	o := t.Origins[pid]
	if o == nil {
		o = &Origins{
			Blocks: make(map[uint64]Origin), Segments: make(map[uint64]Origin),
			handles: make(map[uint64]Origin),
		}
		t.Origins[pid] = o
	}
	return o
}

// addOrigin adds memory on a GPU.
func (t *Totals) addOrigin(key *bpf.GpuAddress, m *bpf.GpuMemory) {
	of, origin := t.originsOf(key.Tgid), Origin{Stack: m.Stack, Born: m.Born}
	switch {
	case m.Kind == bpf.KindBlock:
		of.Blocks[key.Address] = origin
	case m.Kind == bpf.KindSegment && key.Space == bpf.SpaceHandle:
		of.handles[key.Address] = origin
	case m.Kind == bpf.KindSegment:
		of.Segments[key.Address] = origin
	}
}

// addMappings adds the addresses to which memory with a handle is mapped.
func (t *Totals) addMappings(k *kernel.Kernel) error {
	err := kernel.ReadMap(k.GpuMappings, func(key *bpf.GpuAddress, m *bpf.GpuMapping) {
		of := t.originsOf(key.Tgid)
		if origin, ok := of.handles[m.Handle]; ok {
			of.Segments[key.Address] = origin
		}
	})
	if err != nil {
		return fmt.Errorf("read map %s: %w", bpf.MapGpuMappings, err)
	}
	return nil
}

// NewTotals returns totals of nothing.
func NewTotals() *Totals {
	return &Totals{
		ByStack: make(map[Key]*estimate.StackTotals),
		Pins:    make(map[uint32][]estimate.Pin),
		Origins: make(map[uint32]*Origins),
	}
}

// ReadLive sums the memory alive on GPUs, or pinned for them, by stack. Memory that counts only
// after the last bin is left out.
func ReadLive(k *kernel.Kernel, bins estimate.BirthBins, evidence Evidence) (*Totals, error) {
	totals := NewTotals()
	err := kernel.ReadMap(k.GpuLive, func(key *bpf.GpuAddress, m *bpf.GpuMemory) {
		m.Size = min(m.Size, maxBelievedBytes)
		from, factor := m.Born, 1.0
		if m.Kind == bpf.KindBlock {
			var isRefuted, isKnown bool
			from, factor, isRefuted, isKnown = evidence.of(key.Tgid, key.Address, m.Size, m.Born)
			if isRefuted {
				totals.refuted = append(totals.refuted, *key)
			}
			if !isKnown {
				return
			}
		}
		bin, ok := bins.Index(from)
		if !ok {
			return
		}

		isHostAddress := m.Kind == bpf.KindPinned && key.Space == bpf.SpaceAddress
		if isHostAddress || m.Kind == bpf.KindRegistered {
			totals.addPin(key, m)
		}
		totals.addOrigin(key, m)
		of := Key{Key: stack.Key{TGID: key.Tgid, ID: m.Stack}, Kind: m.Kind, GPU: m.Gpu}
		weight := factor * growth.Weight(m.Size, uint64(m.Interval))
		if factor != 1 {
			weight = min(weight, maxBelievedBytes/float64(max(m.Size, 1)))
		}
		alive := estimate.Estimate{Weight: weight, Alive: 1, Burst: -1}
		estimate.TotalsOf(totals.ByStack, of).AddLive(m.Size, alive, bin)
	})
	if err != nil {
		return nil, fmt.Errorf("read map %s: %w", bpf.MapGpuLive, err)
	}
	return totals, totals.addMappings(k)
}

// DeleteRefuted removes the blocks that are no longer in use from the kernel's map. No blocks are
// sampled meanwhile.
func (t *Totals) DeleteRefuted(k *kernel.Kernel) { kernel.DeleteKeys(k.GpuLive, t.refuted) }

// addPin adds the pages of pinned memory.
func (t *Totals) addPin(key *bpf.GpuAddress, m *bpf.GpuMemory) {
	start := key.Address &^ (process.PageSize - 1)
	end := (key.Address + m.Size + process.PageSize - 1) &^ (process.PageSize - 1)
	if start < end {
		pin := estimate.Pin{Span: mem.Span{Start: start, End: end}, Stack: m.Stack}
		t.Pins[key.Tgid] = append(t.Pins[key.Tgid], pin)
	}
}

// ForTally returns the totals to which a tally belongs: the totals of its key in t, or of its
// stack in heap for the kinds of the host's heap.
func (t *Totals) ForTally(
	heap map[stack.Key]*estimate.StackTotals, key *bpf.TallyKey,
) *estimate.StackTotals {
	of := stack.Key{TGID: key.Tgid, ID: key.Stack}
	if key.Kind == bpf.KindHeap || key.Kind == bpf.KindTensor {
		return estimate.TotalsOf(heap, of)
	}
	return estimate.TotalsOf(t.ByStack, Key{Key: of, Kind: key.Kind, GPU: uint32(key.Gpu)})
}

// driverTotal is a process's live memory of the CUDA driver API, in bytes: on GPUs, and pinned
// memory of the host.
type driverTotal struct{ gpu, pinned int64 }

// ReadDriverTotals sums the live memory of the CUDA driver API by process. It returns nil if the
// kernel's map cannot be read.
func ReadDriverTotals(k *kernel.Kernel) map[uint32]driverTotal {
	totals := make(map[uint32]driverTotal)
	err := kernel.ReadMap(k.GpuLive, func(key *bpf.GpuAddress, m *bpf.GpuMemory) {
		total, size := totals[key.Tgid], int64(min(m.Size, maxBelievedBytes))
		switch m.Kind {
		case bpf.KindSegment:
			total.gpu += size
		case bpf.KindPinned, bpf.KindRegistered:
			total.pinned += size
		}
		totals[key.Tgid] = total
	})
	if err != nil {
		return nil
	}
	return totals
}

// ReadTorchTotals returns the totals that PyTorch's caching allocator reported of itself, by PID
// and in the order of GPUs. It returns nil if the kernel's map cannot be read.
func ReadTorchTotals(k *kernel.Kernel) map[uint32][]growth.GPUTotals {
	type entry struct {
		gpu    uint32
		totals growth.GPUTotals
	}
	entries := make(map[uint32][]entry)
	err := kernel.ReadMap(k.GpuTotals, func(key *bpf.GpuId, t *bpf.GpuTotal) {
		if max(t.Allocated, t.Reserved) > maxBelievedBytes {
			return
		}
		entries[key.Tgid] = append(entries[key.Tgid], entry{gpu: key.Gpu, totals: growth.GPUTotals{
			GPU: Name(key.Gpu), Allocated: int64(t.Allocated), Reserved: int64(t.Reserved),
		}})
	})
	if err != nil {
		return nil
	}

	byPID := make(map[uint32][]growth.GPUTotals)
	for pid, list := range entries {
		slices.SortFunc(list, func(a, b entry) int { return cmp.Compare(a.gpu, b.gpu) })
		for _, e := range list {
			byPID[pid] = append(byPID[pid], e.totals)
		}
	}

	return byPID
}

// SumTotals adds up the totals of all GPUs, in bytes; growth.Unknown without any.
func SumTotals(totals []growth.GPUTotals) (allocated, reserved int64) {
	if len(totals) == 0 {
		return growth.Unknown, growth.Unknown
	}
	for _, t := range totals {
		allocated += t.Allocated
		reserved += t.Reserved
	}
	return allocated, reserved
}

// Sample is the memory of processes on GPUs at one moment.
type Sample struct {
	Processes []growth.ProcessGPUMemory
	Driver    map[uint32]driverTotal // by PID; nil: unknown
}

// Set sets the GPU fields of a process's sample. It leaves them as they are for a process that
// uses no GPU.
func (s Sample) Set(sample *growth.Sample, pid int) {
	for _, memory := range s.Processes {
		if memory.PID != pid {
			continue
		}
		sample.GPUUsed = memory.Used
		sample.CudaAllocated, sample.CudaReserved = memory.Allocated, memory.Reserved

		if memory.DriverProbed && s.Driver != nil {
			total := s.Driver[uint32(pid)]
			sample.CudaDriver, sample.Pinned = total.gpu, total.pinned
		}
	}
}
