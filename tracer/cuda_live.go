package tracer

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/residency/pages"
)

// gpuName is a GPU as CUDA counts in the process, from the kernel side's number of it.
func gpuName(number uint32) string {
	if number == 0 {
		return ""
	}
	return strconv.FormatUint(uint64(number-1), 10)
}

// deviceOrigin is a stack of a process and what it holds.
type deviceOrigin struct {
	origin
	kind bpf.KernelAllocationKind
	gpu  uint32
}

// A pin is memory of the host that is pinned.
type pin struct {
	pages.Span
	stack uint64
}

// deviceBooks are what is alive on GPUs and pinned for them, at one moment.
type deviceBooks struct {
	sums map[deviceOrigin]*sum
	pins map[uint32][]pin // by process
}

func newDeviceBooks() *deviceBooks {
	return &deviceBooks{sums: make(map[deviceOrigin]*sum), pins: make(map[uint32][]pin)}
}

// tallied is the sum to which a tally belongs: of these books, or of the heap's by stack.
func (b *deviceBooks) tallied(heap map[origin]*sum, key *bpf.KernelTallyKey) *sum {
	from := origin{key.Tgid, key.Stack}
	if key.Kind == bpf.KernelAllocationKindKIND_HEAP || key.Kind == bpf.KernelAllocationKindKIND_TENSOR {
		return sumOf(heap, from)
	}
	return sumOf(b.sums, deviceOrigin{from, key.Kind, uint32(key.Gpu)})
}

// mostBytes bounds what is believed of one allocation or one total: no memory is larger, and so many of them still have a sum.
const mostBytes = 1 << 46

// readDevices sums what is alive on GPUs, or pinned for them, by stack.
func readDevices(k *kernel, born bins) (*deviceBooks, error) {
	books := newDeviceBooks()
	err := readMap(k.Maps[bpf.KernelMapDeviceLive], func(key *bpf.KernelDeviceAddress, m *bpf.KernelDeviceMemory) {
		bin, ok := born.of(m.Born)
		if !ok {
			return
		}
		m.Size = min(m.Size, mostBytes)
		if m.Kind == bpf.KernelAllocationKindKIND_PINNED && key.Space == bpf.KernelDeviceSpaceSPACE_ADDRESS || m.Kind == bpf.KernelAllocationKindKIND_REGISTERED {
			books.addPin(key, m)
		}
		of := deviceOrigin{origin{key.Tgid, m.Stack}, m.Kind, m.Gpu}
		sumOf(books.sums, of).addLive(m.Size, record{weight: growth.Weight(m.Size, uint64(m.Interval)), share: 1, window: -1}, bin)
	})
	if err != nil {
		return nil, fmt.Errorf("read map %s: %w", bpf.KernelMapDeviceLive, err)
	}
	return books, nil
}

// addPin adds the pages of what is pinned.
func (b *deviceBooks) addPin(key *bpf.KernelDeviceAddress, m *bpf.KernelDeviceMemory) {
	start := key.Address &^ (process.PageSize - 1)
	end := (key.Address + m.Size + process.PageSize - 1) &^ (process.PageSize - 1)
	if start < end {
		b.pins[key.Tgid] = append(b.pins[key.Tgid], pin{pages.Span{Start: start, End: end}, m.Stack})
	}
}

// sumTotals adds those of all GPUs; Unknown of none.
func sumTotals(totals []growth.GPUTotals) (allocated, reserved int64) {
	if len(totals) == 0 {
		return growth.Unknown, growth.Unknown
	}
	for _, t := range totals {
		allocated += t.Allocated
		reserved += t.Reserved
	}
	return allocated, reserved
}

// readCUDATotals reads what torch's allocator has told of itself, by PID, in the order of GPUs.
func readCUDATotals(k *kernel) map[uint32][]growth.GPUTotals {
	type entry struct {
		gpu uint32
		growth.GPUTotals
	}
	byGPU := make(map[uint32][]entry)
	err := readMap(k.Maps[bpf.KernelMapCudaTotals], func(key *bpf.KernelCudaDevice, t *bpf.KernelCudaTotal) {
		told := growth.GPUTotals{GPU: gpuName(key.Gpu), Allocated: int64(t.Allocated), Reserved: int64(t.Reserved)}
		if max(t.Allocated, t.Reserved) <= mostBytes {
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
