package growth

import (
	"testing"
	"time"
)

func TestTheCallerOfTorchsAllocatorAndOfTheDriverIsTheLeaf(t *testing.T) {
	for name, functions := range map[string][]string{
		"a block":             {"c10::reportMemoryUsageToProfiler(void*, long, unsigned long, unsigned long, c10::Device)", "libc10_cuda.so+0x2a3f0", "empty_cuda"},
		"a wheel's block":     {"c10::reportMemoryUsageToProfiler", "libc10_cuda-9f3e1a.so+0x2a3f0", "empty_cuda"},
		"a block with names":  {"c10::cuda::CUDACachingAllocator::Native::DeviceCachingAllocator::malloc(c10::DeviceIndex, unsigned long, CUstream_st*)", "c10::cuda::CUDACachingAllocator::raw_alloc(unsigned long)", "empty_cuda"},
		"of no one's name":    {"c10::cuda::CUDACachingAllocator::(anonymous namespace)::allocate(unsigned long)", "empty_cuda"},
		"a segment":           {"cuMemAlloc_v2", "libcudart.so.12+0x1b3a0", "cudaMalloc", "libc10_cuda.so+0x2a3f0", "empty_cuda"},
		"an expandable one":   {"cuMemCreate", "c10::cuda::CUDACachingAllocator::Native::ExpandableSegment::map(SegmentRange)", "empty_cuda"},
		"an extension":        {"cuMemAllocAsync_ptsz", "cudaMallocAsync", "empty_cuda"},
		"a pinned block":      {"cuMemHostAlloc", "cudaHostAlloc", "empty_cuda"},
		"the driver alone":    {"cuMemAllocManaged", "empty_cuda"},
		"malloc below torch":  {"malloc", "libc10_cuda.so+0x1234", "empty_cuda"},
		"an allocator's name": {"empty_cuda", "my::CUDACachingAllocator::use"},
		"no allocator at all": {"empty_cuda", "cuMemcpyDtoH_v2"},
	} {
		frames := WithoutAllocator(NamedStack(1, "", append(functions, "main")...).Frames)
		if frames[0].Function != "empty_cuda" {
			t.Errorf("%s: %s", name, frames[0].Function)
		}
	}
	python := []Frame{{Function: "cudaMalloc", Python: true}, {Function: "main"}}
	if got := WithoutAllocator(python); len(got) != 2 {
		t.Errorf("a function of Python is an allocator: %v", got)
	}
}

func TestMemoryOnGPUsWithoutAHolderHasOwners(t *testing.T) {
	for root, want := range map[string]string{
		beforeTracingRoot: "before-tracing", untracedRoot: "torch", cachedRoot: "torch", notAttributedRoot: "cuda", "[before tracing]": "before-tracing",
	} {
		if got := DefaultOwners().Of(NamedStack(1, root)); got != want {
			t.Errorf("%s: %s, want %s", root, got, want)
		}
	}
}

func TestPinnedMemoryIsAdvisedOnWhoeverHasPinnedIt(t *testing.T) {
	row := func(pid int, kind Kind, end int64) LedgerRow {
		return LedgerRow{PID: pid, Kind: kind, Stack: NamedStack(7, "", "train"), End: end}
	}
	e := Evidence{
		Ledger: []LedgerRow{row(7, KindPinned, 200<<20), row(0, KindPinned, 200<<20)}, Start: []Resident{{PID: 7, RSS: 1 << 30}}, End: []Resident{{PID: 7, RSS: 3 << 29}},
		CacheStart: Unknown, CacheEnd: Unknown,
	}
	if advice := Advise(e); len(advice) != 1 || advice[0].About != AboutPinned || advice[0].PID != 7 {
		t.Errorf("%+v", advice)
	}
	e.Ledger[0].Kind = KindMmap
	if advice := Advise(e); len(advice) != 0 {
		t.Errorf("mapped memory is pinned: %+v", advice)
	}
}

// Of 100 sampled blocks of 1 MiB those of the first half stay, and 100 are born in the second.
func TestSampledBlocksAreJudgedByTheirBirths(t *testing.T) {
	const each = 100 * mib
	s := NamedStack(7, "", "keep")
	bins := []time.Duration{0, time.Minute, 2 * time.Minute}
	at := func(i int, births ...Birth) *Snapshot {
		h := Holding{Stack: s, Kind: KindCudaBlock, GPU: "0", InuseBytes: each * int64(i), InuseObjects: float64(100 * i), Samples: int64(100 * i), Births: births}
		return &Snapshot{Elapsed: bins[i], Alive: []int{7}, Interval: 1 << 20, Bins: bins, DeviceHoldings: []Holding{h}}
	}
	snapshots := []*Snapshot{at(0), at(1), at(2, Birth{Bin: 1, InuseBytes: each, Variance: 1}, Birth{Bin: 2, InuseBytes: each, Variance: 1})}
	for i, one := range snapshots {
		snapshots[i] = one.OnDevices(KindCudaBlock)
	}
	trends := JudgeStacks(snapshots, Window{To: 2 * time.Minute}, 2*each/120)
	if len(trends) != 1 || trends[0].Trend != TrendAccumulating || trends[0].Growth != 2*each || trends[0].GPU != "0" {
		t.Errorf("%+v", trends)
	}
	snapshots[2] = at(2, Birth{Bin: 2, InuseBytes: 2 * each, Variance: 1}).OnDevices(KindCudaBlock)
	if trends = JudgeStacks(snapshots, Window{To: 2 * time.Minute}, 0); trends[0].Trend != TrendChurn {
		t.Errorf("all that is alive is young: %s", trends[0].Trend)
	}
	last := at(2, Birth{Bin: 2, InuseBytes: each})
	if last.DropBirths([]int{7}); len(last.DeviceHoldings[0].Births) != 0 {
		t.Error("births are kept of what a later snapshot knows better")
	}
}

func TestTheRoomIsThatOfTheGPUWithLeast(t *testing.T) {
	if room := RoomOnGPUs(nil, 7); room != Unknown {
		t.Errorf("without GPUs %d", room)
	}
	own := []int{3, 7}
	gpus := []GPUSample{
		{Used: Unknown, Total: 5, Users: own},
		{Used: 60, Total: 80, Users: own},
		{Used: 70, Total: 80, Users: own},
		{Used: 3, Total: Unknown, Users: own},
		{Used: 79, Total: 80, Users: []int{9}},
	}
	if room := RoomOnGPUs(gpus, 7); room != 10 {
		t.Errorf("%d", room)
	}
	if room := RoomOnGPUs(gpus, 8); room != Unknown {
		t.Errorf("of a process that is listed on none of several %d", room)
	}
	if room := RoomOnGPUs([]GPUSample{{Used: 9, Total: 8}}, 7); room != 0 {
		t.Errorf("used more than there is: %d", room)
	}
}
