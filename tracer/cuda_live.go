package tracer

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/growth"
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
func (s *Session) readDevices(born bins) (*deviceBooks, error) {
	books := newDeviceBooks()
	err := readMap(s.kernel.Maps[bpf.KernelMapDeviceLive], func(key *bpf.KernelDeviceAddress, m *bpf.KernelDeviceMemory) {
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
	start := key.Address &^ (pageSize - 1)
	end := (key.Address + m.Size + pageSize - 1) &^ (pageSize - 1)
	if start < end {
		b.pins[key.Tgid] = append(b.pins[key.Tgid], pin{pages.Span{Start: start, End: end}, m.Stack})
	}
}

// addTo adds them to a snapshot: what is on GPUs to its device holdings, and what the driver has allocated of the host's memory to held. Memory
// that it has merely pinned has been allocated by others; it is in the ledger alone.
func (b *deviceBooks) addTo(s *Session, snapshot *growth.Snapshot, held holdings) {
	devices := make(holdings)
	for from, sum := range b.sums {
		t := s.target(from.tgid)
		if t == nil {
			continue
		}
		stack := t.stacks.get(from.stack)
		switch from.kind {
		case bpf.KernelAllocationKindKIND_BLOCK:
			devices.add(stack, growth.KindCudaBlock, gpuName(from.gpu), sum)
		case bpf.KernelAllocationKindKIND_SEGMENT:
			devices.add(stack, growth.KindCudaSegment, gpuName(from.gpu), sum)
		case bpf.KernelAllocationKindKIND_PINNED:
			held.add(stack, growth.KindPinned, "", sum)
		}
	}
	snapshot.DeviceHoldings = devices.list()
	snapshot.Devices = s.devices()
}

// devices tells what is known of each target that uses a GPU, by PID.
func (s *Session) devices() []growth.Device {
	totals := s.readCUDATotals()
	var devices []growth.Device
	for _, t := range s.list() {
		if t.err() != nil && len(totals[uint32(t.process.PID)]) == 0 || !t.cuda.usesGPU() {
			continue
		}
		d := growth.Device{PID: t.process.PID, Allocated: growth.Unknown, Reserved: growth.Unknown, Totals: totals[uint32(t.process.PID)]}
		d.DriverWatched, d.BlocksWatched = t.cuda.watches()
		d.Allocated, d.Reserved = sumTotals(d.Totals)
		d.Used, d.Reason = s.gpus.used(s.initialPID(t.process.PID))
		devices = append(devices, d)
	}
	slices.SortFunc(devices, func(a, b growth.Device) int { return cmp.Compare(a.PID, b.PID) })
	return devices
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
func (s *Session) readCUDATotals() map[uint32][]growth.GPUTotals {
	type entry struct {
		gpu uint32
		growth.GPUTotals
	}
	byGPU := make(map[uint32][]entry)
	err := readMap(s.kernel.Maps[bpf.KernelMapCudaTotals], func(key *bpf.KernelCudaDevice, t *bpf.KernelCudaTotal) {
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
