package growth

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

const gpuPID = 21

// blockHolding and segmentHolding are what a stack of a function holds on GPU 0, in bytes.
func blockHolding(function string, bytes int64) Holding {
	return Holding{Stack: ofProcess(gpuPID, function), Kind: KindCudaBlock, GPU: "0", InuseBytes: bytes, InuseObjects: 1}
}

func segmentHolding(function string, bytes int64) Holding {
	h := blockHolding(function, bytes)
	h.Kind = KindCudaSegment
	return h
}

const torchsCache = "c10::cuda::CUDACachingAllocator::raw_alloc"

// device is one of which all is known, with so many bytes.
func device(used, reserved, allocated int64) Device {
	return Device{PID: gpuPID, Used: used, Reserved: reserved, Allocated: allocated, BlocksWatched: true, DriverWatched: true}
}

// rowsOf fills the ledger of one device and gives its rows by name: the root, else the function.
func rowsOf(d Device, holdings ...Holding) map[string]int64 {
	s := &Snapshot{Devices: []Device{d}, DeviceHoldings: holdings}
	FillDevices(s)
	rows := make(map[string]int64)
	for _, h := range s.DeviceHoldings {
		if h.DeviceBytes == 0 {
			continue
		}
		name := h.Stack.Root
		if name == "" {
			name = h.Stack.Frames[0].Function
		}
		if h.GPU != "" && h.Stack.Root != "" {
			name += h.GPU
		}
		rows[name] += h.DeviceBytes
	}
	return rows
}

func mustHaveRows(t *testing.T, got, want map[string]int64) {
	t.Helper()
	for name, bytes := range want {
		if got[name] != bytes {
			t.Errorf("%s: %d, want %d", name, got[name], bytes)
		}
	}
	if len(got) != len(want) {
		t.Errorf("rows are %v, want %v", got, want)
	}
}

// The driver counts 1000: 500 in segments of torch, of which 400 are in blocks, 300 of these from since the attach; 200 for NCCL; and
// 300 that nobody was seen to ask for.
func TestWhatTheDriverCountsIsBlocksCacheOtherAllocationsAndARest(t *testing.T) {
	got := rowsOf(device(1000, 500, 400), blockHolding("step", 300), segmentHolding(torchsCache, 450), segmentHolding("ncclInit", 200))
	mustHaveRows(t, got, map[string]int64{"step": 300, beforeTracingRoot: 100, cachedRoot: 100, "ncclInit": 200, notAttributedRoot: 300})
}

func TestWithoutTheDriversCountTheRowsSumToWhatIsKnown(t *testing.T) {
	got := rowsOf(device(Unknown, 500, 400), blockHolding("step", 300), segmentHolding(torchsCache, 450), segmentHolding("ncclInit", 200))
	mustHaveRows(t, got, map[string]int64{"step": 300, beforeTracingRoot: 100, cachedRoot: 100, "ncclInit": 200})
}

func TestBlocksThatAreEstimatedTooHighAreTakenFromTheRest(t *testing.T) {
	mustHaveRows(t, rowsOf(device(1000, 500, 400), blockHolding("step", 430)), map[string]int64{"step": 430, cachedRoot: 100, notAttributedRoot: 470})
	mustHaveRows(t, rowsOf(device(Unknown, 500, 400), blockHolding("step", 430)), map[string]int64{"step": 430, cachedRoot: 100, notAttributedRoot: -30})
}

func TestWhereBlocksAreNotFollowedAllOfThemAreOneRow(t *testing.T) {
	d := device(1000, 500, 400)
	d.BlocksWatched = false
	got := rowsOf(d, blockHolding("seen for a while", 30), segmentHolding(torchsCache, 450))
	mustHaveRows(t, got, map[string]int64{untracedRoot: 400, cachedRoot: 100, notAttributedRoot: 500})
}

func TestWhereTorchSaysNothingWhatItAskedTheDriverForStandsForItself(t *testing.T) {
	mustHaveRows(t, rowsOf(device(1000, Unknown, Unknown), segmentHolding(torchsCache, 450), segmentHolding("ncclInit", 200)),
		map[string]int64{torchsCache: 450, "ncclInit": 200, notAttributedRoot: 350})
	mustHaveRows(t, rowsOf(device(Unknown, Unknown, Unknown), segmentHolding(torchsCache, 450)), map[string]int64{torchsCache: 450})
	mustHaveRows(t, rowsOf(device(Unknown, Unknown, Unknown)), nil)
}

func TestMemoryThatIsSharedMakesTheRestNegative(t *testing.T) {
	mustHaveRows(t, rowsOf(device(100, Unknown, Unknown), segmentHolding("managed", 300)), map[string]int64{"managed": 300, notAttributedRoot: -200})
}

func TestRowsAreByGPUWhereTorchTellsItsTotalsByGPU(t *testing.T) {
	d := device(1000, 500, 400)
	d.Totals = []GPUTotals{{GPU: "0", Allocated: 300, Reserved: 300}, {GPU: "1", Allocated: 100, Reserved: 200}}
	second := blockHolding("other", 40)
	second.GPU = "1"
	mustHaveRows(t, rowsOf(d, blockHolding("step", 250), second), map[string]int64{
		"step": 250, "other": 40, beforeTracingRoot + "0": 50, beforeTracingRoot + "1": 60, cachedRoot + "1": 100, notAttributedRoot: 500,
	})
	d.Totals[0].Allocated = 299 // not those of the process: read while an event came
	mustHaveRows(t, rowsOf(d, blockHolding("step", 250), second), map[string]int64{
		"step": 250, "other": 40, beforeTracingRoot: 110, cachedRoot: 100, notAttributedRoot: 500,
	})
}

func TestTorchsOwnSegmentsAreToldByLibraryAndByFunction(t *testing.T) {
	in := func(library, function string, python bool) *Stack {
		return &Stack{Frames: []Frame{{Function: "cudaMalloc"}, {Function: function, Python: python, Module: &Module{Path: library}}}}
	}
	for name, c := range map[string]struct {
		*Stack
		want bool
	}{
		"its library":             {in("/venv/torch/lib/libc10_cuda.so", "libc10_cuda.so+0x12", false), true},
		"that of a wheel":         {in("/torch.libs/libc10_cuda-1f2e3d.so", "?", false), true},
		"a stack that was cut":    {&Stack{Frames: []Frame{{Function: "cudaMalloc"}}, Truncated: "unwind tables not made yet"}, true},
		"one that was not kept":   {&Stack{}, true},
		"linked into the program": {in("/bin/trainer", "c10::cuda::CUDACachingAllocator::Native::DeviceCachingAllocator::malloc(unsigned long)", false), true},
		"another library":         {in("/usr/lib/libnccl.so.2", "ncclMemAlloc", false), false},
		"a folder of that name":   {in("/libc10_cuda/libx.so", "x", false), false},
		"a function of Python":    {in("/x", "CUDACachingAllocator", true), false},
	} {
		if got := isOfTorch(c.Stack); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// randomDevices is a snapshot of three processes with whatever may be known of each.
func randomDevices(random *rand.Rand) *Snapshot {
	s := &Snapshot{}
	maybe := func(most int64) int64 {
		if random.IntN(4) == 0 {
			return Unknown
		}
		return random.Int64N(most)
	}
	for pid := range 3 {
		d := Device{PID: pid, Used: maybe(1 << 36), Reserved: maybe(1 << 35), Allocated: maybe(1 << 35), BlocksWatched: random.IntN(3) > 0}
		for gpu := range random.IntN(3) {
			d.Totals = append(d.Totals, GPUTotals{GPU: string(rune('0' + gpu)), Allocated: random.Int64N(1 << 30), Reserved: random.Int64N(1 << 30)})
		}
		if random.IntN(2) == 0 && len(d.Totals) > 0 {
			d.Allocated, d.Reserved = 0, 0
			for _, t := range d.Totals {
				d.Allocated += t.Allocated
				d.Reserved += t.Reserved
			}
		}
		s.Devices = append(s.Devices, d)
		for range random.IntN(12) {
			h := blockHolding([]string{"a", "b", torchsCache}[random.IntN(3)], random.Int64N(1<<33)-1<<30)
			h.Stack, h.Kind, h.GPU = ofProcess(pid, h.Stack.Frames[0].Function), []Kind{KindCudaBlock, KindCudaSegment}[random.IntN(2)], []string{"", "0", "7"}[random.IntN(3)]
			s.DeviceHoldings = append(s.DeviceHoldings, h)
		}
	}
	return s
}

func deviceSum(holdings []Holding, pid int, kinds ...Kind) (sum int64) {
	for _, h := range holdings {
		if h.Stack.PID == pid && (len(kinds) == 0 || slices.Contains(kinds, h.Kind)) {
			sum += h.DeviceBytes
		}
	}
	return sum
}

func TestTheRowsOfADeviceAlwaysSumToWhatIsKnownOfIt(t *testing.T) {
	for seed := range uint64(3000) {
		s := randomDevices(rand.New(rand.NewPCG(seed, 1)))
		held := len(s.DeviceHoldings)
		FillDevices(s)
		once := slices.Clone(s.DeviceHoldings)
		FillDevices(s)
		if !slices.EqualFunc(once, s.DeviceHoldings, func(a, b Holding) bool { return a.DeviceBytes == b.DeviceBytes && a.Stack.ID == b.Stack.ID }) {
			t.Fatalf("seed %d: filled twice it is %v, not %v", seed, s.DeviceHoldings, once)
		}
		for _, d := range s.Devices {
			others := int64(0)
			for _, h := range s.DeviceHoldings {
				if h.Stack.PID == d.PID && h.Kind == KindCudaSegment && (d.Reserved == Unknown || h.Stack.Frames[0].Function != torchsCache) {
					others += h.InuseBytes
				}
			}
			want := deviceSum(s.DeviceHoldings, d.PID)
			switch {
			case d.Used != Unknown:
				want = d.Used
			case d.Reserved != Unknown:
				want = d.Reserved + others
			case d.Allocated != Unknown:
				want = d.Allocated + others
			}
			if got := deviceSum(s.DeviceHoldings, d.PID); got != want {
				t.Fatalf("seed %d, PID %d: rows sum to %d, not %d", seed, d.PID, got, want)
			}
		}
		for _, h := range s.DeviceHoldings[held:] {
			remainder := h.Kind == KindNotAttributed
			if !strings.HasPrefix(h.Stack.Root, "[") || h.InuseBytes != 0 || h.DeviceBytes == 0 || h.DeviceBytes < 0 && !remainder {
				t.Fatalf("seed %d: added %+v", seed, h)
			}
		}
	}
}

func TestALedgerOfDeviceMemorySumsToWhatIsKnownAtEitherMoment(t *testing.T) {
	for seed := range uint64(500) {
		start, end := randomDevices(rand.New(rand.NewPCG(seed, 2))), randomDevices(rand.New(rand.NewPCG(seed, 3)))
		FillDevices(start)
		FillDevices(end)
		rows := DeviceLedger(start, end)
		for pid := range 3 {
			var first, last int64
			for _, r := range rows {
				if r.PID == pid {
					first, last = first+r.Start, last+r.End
				}
				if r.Start == 0 && r.End == 0 {
					t.Fatalf("seed %d: a row of nothing: %+v", seed, r)
				}
			}
			if first != deviceSum(start.DeviceHoldings, pid) || last != deviceSum(end.DeviceHoldings, pid) {
				t.Fatalf("seed %d, PID %d: rows sum to %d and %d", seed, pid, first, last)
			}
		}
	}
}

func TestWhatAccumulatedOnAGPUIsToldLikeThatOfTheHost(t *testing.T) {
	start := &Snapshot{DeviceHoldings: []Holding{blockHolding("step", 100), segmentHolding("ncclInit", 50)}, Devices: []Device{device(1000, 500, 400)}}
	end := &Snapshot{DeviceHoldings: []Holding{blockHolding("step", 170), segmentHolding("ncclInit", 50)}, Devices: []Device{device(1100, 570, 470)}, Holdings: []Holding{
		resident(ofProcess(gpuPID, "host"), KindHeap, 1, 0),
	}}
	FillDevices(start)
	FillDevices(end)
	grown := Between(start.OnDevices(), end.OnDevices())
	if len(grown) != 2 || grown[0].InuseBytes != 70 || grown[0].DeviceBytes != 70 || grown[1].Kind != KindNotAttributed || grown[1].DeviceBytes != 30 {
		t.Fatalf("%+v", grown)
	}
	if only := end.OnDevices(KindCudaSegment).Holdings; len(only) != 1 || only[0].Kind != KindCudaSegment || len(end.DeviceHoldings) < 4 {
		t.Fatalf("%+v", only)
	}
}
