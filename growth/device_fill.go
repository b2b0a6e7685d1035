package growth

import (
	"path"
	"slices"
	"strings"
)

// Roots of what a ledger of device memory has besides stacks.
const (
	cudaBeforeRoot    = "[cuda: before attach]"
	cudaUntoldRoot    = "[cuda: blocks not followed]"
	cudaCachedRoot    = "[cuda: cached by torch]"
	notAttributedRoot = "[device: not attributed]"
)

// FillDevices gives the device holdings of a snapshot their DeviceBytes, and adds what no stack holds: over all device holdings of
// a process in Devices they sum to what the driver counts for it. Where that is not known, they sum to what is: torch's segments and
// whatever else the driver was seen to hand out. It may be called again.
//
// Blocks stand for themselves. What torch's caching allocator has from the driver shows as blocks and as its cache, and stands for
// itself only where the allocator has not told how much that is. What is added has DeviceBytes alone. The sum is exact in any case:
// what sampled blocks are too many, and memory that several processes share, makes "[device: not attributed]" negative.
func FillDevices(s *Snapshot) {
	s.DeviceHoldings = slices.DeleteFunc(s.DeviceHoldings, func(h Holding) bool { return isOfDeviceLedgerAlone(&h) })
	for i := range s.DeviceHoldings {
		s.DeviceHoldings[i].DeviceBytes = 0
	}
	for i := range s.Devices {
		f := deviceFill{snapshot: s, device: &s.Devices[i], blocks: make(map[string]int64)}
		f.stand()
		f.addBlocks()
		f.addCached()
		f.add(KindNotAttributed, notAttributedRoot, "", f.total()-f.sum)
	}
}

// isOfDeviceLedgerAlone is true of what FillDevices adds.
func isOfDeviceLedgerAlone(h *Holding) bool {
	switch h.Kind {
	case KindCudaBefore, KindCudaCached, KindNotAttributed:
		return true
	}
	return h.Kind == KindCudaBlock && h.Stack.Root == cudaUntoldRoot
}

// A deviceFill is the ledger of one process in the making, in bytes.
type deviceFill struct {
	snapshot *Snapshot
	device   *Device
	// blocks that stand for themselves, by GPU, and others that the driver handed out; sum is of all DeviceBytes so far.
	blocks      map[string]int64
	others, sum int64
}

// stand lets stacks stand for what they hold.
func (f *deviceFill) stand() {
	d := f.device
	for i := range f.snapshot.DeviceHoldings {
		h := &f.snapshot.DeviceHoldings[i]
		switch {
		case h.Stack.PID != d.PID:
			continue
		case h.Kind == KindCudaBlock && (d.BlocksWatched || d.Allocated == Unknown):
			f.blocks[h.GPU] += h.InuseBytes
		case h.Kind == KindCudaSegment && (d.Reserved == Unknown || !h.Stack.isOfTorchsCache()):
			f.others += h.InuseBytes
		default:
			continue
		}
		h.DeviceBytes = h.InuseBytes
		f.sum += h.InuseBytes
	}
}

// addBlocks adds the blocks that no stack holds.
func (f *deviceFill) addBlocks() {
	d := f.device
	switch {
	case d.Allocated == Unknown:
	case !d.BlocksWatched:
		f.addByGPU(KindCudaBlock, cudaUntoldRoot, d.Allocated, func(t GPUTotals) int64 { return t.Allocated })
	case f.blocksAreOf(d.Totals):
		f.addByGPU(KindCudaBefore, cudaBeforeRoot, d.Allocated-f.allBlocks(), func(t GPUTotals) int64 { return t.Allocated - f.blocks[t.GPU] })
	default:
		f.add(KindCudaBefore, cudaBeforeRoot, "", max(0, d.Allocated-f.allBlocks()))
	}
}

// addCached adds what torch's allocator has from the driver and in no block.
func (f *deviceFill) addCached() {
	if d := f.device; d.Reserved != Unknown && d.Allocated != Unknown {
		f.addByGPU(KindCudaCached, cudaCachedRoot, d.Reserved-d.Allocated, func(t GPUTotals) int64 { return t.Reserved - t.Allocated })
	}
}

// addByGPU adds a holding for each GPU of which there are totals, as far as it is more than none; one for all where there are no
// totals, or these are not those of the process.
func (f *deviceFill) addByGPU(kind Kind, root string, all int64, of func(GPUTotals) int64) {
	var allocated, reserved int64
	for _, t := range f.device.Totals {
		allocated += t.Allocated
		reserved += t.Reserved
	}
	if len(f.device.Totals) == 0 || allocated != f.device.Allocated || reserved != f.device.Reserved {
		f.add(kind, root, "", max(0, all))
		return
	}
	for _, t := range f.device.Totals {
		f.add(kind, root, t.GPU, max(0, of(t)))
	}
}

func (f *deviceFill) add(kind Kind, root, gpu string, bytes int64) {
	if bytes == 0 {
		return
	}
	f.sum += bytes
	f.snapshot.DeviceHoldings = append(f.snapshot.DeviceHoldings, Holding{
		Stack: NamedStack(f.device.PID, root), Kind: kind, GPU: gpu, DeviceBytes: bytes,
	})
}

func (f *deviceFill) allBlocks() (bytes int64) {
	for _, b := range f.blocks {
		bytes += b
	}
	return bytes
}

// blocksAreOf tells that each block is on one of the GPUs of which there are totals.
func (f *deviceFill) blocksAreOf(totals []GPUTotals) bool {
	for gpu := range f.blocks {
		if !slices.ContainsFunc(totals, func(t GPUTotals) bool { return t.GPU == gpu }) {
			return false
		}
	}
	return true
}

// total is what all DeviceBytes of the process sum to.
func (f *deviceFill) total() int64 {
	switch d := f.device; {
	case d.Used != Unknown:
		return d.Used
	case d.Reserved != Unknown:
		return d.Reserved + f.others
	case d.Allocated != Unknown:
		return d.Allocated + f.others
	}
	return f.sum
}

// isOfTorchsCache tells that torch's caching allocator asked for what the stack holds: in a library of its own, or linked into the
// program. Of a stack that was cut that is not known; it is nearly always so where there is such an allocator.
func (s *Stack) isOfTorchsCache() bool {
	return s.Truncated != "" || len(s.Frames) == 0 || slices.ContainsFunc(s.Frames, func(f Frame) bool {
		if f.Python {
			return false
		}
		inside := f.Module != nil && strings.HasPrefix(path.Base(f.Module.Path), "libc10_cuda")
		return inside || strings.Contains(f.Function, "CUDACachingAllocator")
	})
}
