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
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/residency/pages"
	"github.com/allocscope/allocscope/tracer/stack"
)

// driverTotal is what is alive of what CUDA's driver has allocated for a process, in bytes.
type driverTotal struct{ device, pinned int64 }

// Sample are the sums of one moment, by process.
type Sample struct {
	GPUs   []growth.ProcessGPUMemory
	Driver map[uint32]driverTotal
}

// set writes what is known of a process's memory on GPUs into its sample.
func (d Sample) Set(sample *growth.Sample, pid int) {
	for _, device := range d.GPUs {
		if device.PID != pid {
			continue
		}
		sample.GPUUsed, sample.CudaAllocated, sample.CudaReserved = device.Used, device.Allocated, device.Reserved
		if device.DriverProbed && d.Driver != nil {
			total := d.Driver[uint32(pid)]
			sample.CudaDriver, sample.Pinned = total.device, total.pinned
		}
	}
}

// ReadDriverTotals sums what is alive of what the driver has allocated, by process; nil: it could not be read.
func ReadDriverTotals(k *kernel.Kernel) map[uint32]driverTotal {
	totals := make(map[uint32]driverTotal)
	err := kernel.ReadMap(k.GpuLive, func(key *bpf.GpuAddress, m *bpf.GpuMemory) {
		total, size := totals[key.Tgid], int64(min(m.Size, maxBelievedBytes))
		switch m.Kind {
		case bpf.KindSegment:
			total.device += size
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

// Name is a GPU as CUDA counts in the process, from the kernel side's number of it.
func Name(number uint32) string {
	if number == 0 {
		return ""
	}
	return strconv.FormatUint(uint64(number-1), 10)
}

// Key is a stack of a process and what it holds.
type Key struct {
	stack.Key
	Kind bpf.AllocationKind
	GPU  uint32
}

// Totals are what is alive on GPUs and pinned for them, at one moment.
type Totals struct {
	ByStack map[Key]*estimate.StackTotals
	Pins    map[uint32][]estimate.Pin // by process
}

func NewTotals() *Totals {
	return &Totals{ByStack: make(map[Key]*estimate.StackTotals), Pins: make(map[uint32][]estimate.Pin)}
}

// tallied is the sum to which a tally belongs: of these books, or of the heap's by stack.
func (b *Totals) ForTally(heap map[stack.Key]*estimate.StackTotals, key *bpf.TallyKey) *estimate.StackTotals {
	from := stack.Key{key.Tgid, key.Stack}
	if key.Kind == bpf.KindHeap || key.Kind == bpf.KindTensor {
		return estimate.TotalsOf(heap, from)
	}
	return estimate.TotalsOf(b.ByStack, Key{from, key.Kind, uint32(key.Gpu)})
}

// maxBelievedBytes bounds what is believed of one allocation or one total: no memory is larger, and so many of them still have a sum.
const maxBelievedBytes = 1 << 46

// ReadLive sums what is alive on GPUs, or pinned for them, by stack.
func ReadLive(k *kernel.Kernel, born estimate.BirthBins) (*Totals, error) {
	books := NewTotals()
	err := kernel.ReadMap(k.GpuLive, func(key *bpf.GpuAddress, m *bpf.GpuMemory) {
		bin, ok := born.Index(m.Born)
		if !ok {
			return
		}
		m.Size = min(m.Size, maxBelievedBytes)
		if m.Kind == bpf.KindPinned && key.Space == bpf.SpaceAddress || m.Kind == bpf.KindRegistered {
			books.addPin(key, m)
		}
		of := Key{stack.Key{key.Tgid, m.Stack}, m.Kind, m.Gpu}
		estimate.TotalsOf(books.ByStack, of).AddLive(m.Size, estimate.Estimate{Weight: growth.Weight(m.Size, uint64(m.Interval)), Alive: 1, Burst: -1}, bin)
	})
	if err != nil {
		return nil, fmt.Errorf("read map %s: %w", bpf.MapGpuLive, err)
	}
	return books, nil
}

// addPin adds the pages of what is pinned.
func (b *Totals) addPin(key *bpf.GpuAddress, m *bpf.GpuMemory) {
	start := key.Address &^ (process.PageSize - 1)
	end := (key.Address + m.Size + process.PageSize - 1) &^ (process.PageSize - 1)
	if start < end {
		b.Pins[key.Tgid] = append(b.Pins[key.Tgid], estimate.Pin{pages.Span{Start: start, End: end}, m.Stack})
	}
}

// SumTotals adds those of all GPUs; Unknown of none.
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

// ReadTorchTotals reads what torch's allocator has told of itself, by PID, in the order of GPUs.
func ReadTorchTotals(k *kernel.Kernel) map[uint32][]growth.GPUTotals {
	type entry struct {
		gpu uint32
		growth.GPUTotals
	}
	byGPU := make(map[uint32][]entry)
	err := kernel.ReadMap(k.GpuTotals, func(key *bpf.GpuId, t *bpf.GpuTotal) {
		told := growth.GPUTotals{GPU: Name(key.Gpu), Allocated: int64(t.Allocated), Reserved: int64(t.Reserved)}
		if max(t.Allocated, t.Reserved) <= maxBelievedBytes {
			byGPU[key.Tgid] = append(byGPU[key.Tgid], entry{key.Gpu, told})
		}
	})
	if err != nil {
		return nil
	}
	totals := make(map[uint32][]growth.GPUTotals)
	for pid, entries := range byGPU {
		slices.SortFunc(entries, func(a, b entry) int { return cmp.Compare(a.gpu, b.gpu) })
		for _, e := range entries {
			totals[pid] = append(totals[pid], e.GPUTotals)
		}
	}
	return totals
}
