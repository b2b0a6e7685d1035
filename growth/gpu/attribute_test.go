package gpu

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/growth"
)

const gpuPID = 21

// block and segment are the memory of a function's stack on GPU 0, in bytes.
func block(function string, bytes int64) growth.Holding {
	return growth.Holding{
		Stack: growth.NamedStack(gpuPID, "", function), Kind: growth.KindCudaBlock, GPU: "0",
		InuseBytes: bytes, InuseObjects: 1,
	}
}

func segment(function string, bytes int64) growth.Holding {
	h := block(function, bytes)
	h.Kind = growth.KindCudaSegment
	return h
}

const torchsCache = "c10::cuda::CUDACachingAllocator::raw_alloc"

// device is one of which all is known, with so many bytes.
func device(used, reserved, allocated int64) growth.ProcessGPUMemory {
	return growth.ProcessGPUMemory{
		PID: gpuPID, Used: used, Reserved: reserved, Allocated: allocated, BlocksProbed: true,
		DriverProbed: true,
	}
}

// rowsOf attributes the memory of one process and gives its rows by name: the root, else the
// function.
func rowsOf(d growth.ProcessGPUMemory, holdings ...growth.Holding) map[string]int64 {
	s := &growth.Snapshot{GPUMemory: []growth.ProcessGPUMemory{d}, GPUHoldings: holdings}
	Attribute(s)
	rows := make(map[string]int64)
	for _, h := range s.GPUHoldings {
		if h.GPUBytes == 0 {
			continue
		}
		name := h.Stack.Root
		if name == "" {
			name = h.Stack.Frames[0].Function
		}
		if h.GPU != "" && h.Stack.Root != "" {
			name += h.GPU
		}
		rows[name] += h.GPUBytes
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

func TestAttribute(t *testing.T) {
	// The driver counts 1000: 500 in segments of torch, of which 400 are in blocks, 300 of these
	// from since tracing started; 200 for NCCL; and 300 that were not traced.
	t.Run("NVML's count is blocks, cache, others and a rest", func(t *testing.T) {
		got := rowsOf(device(1000, 500, 400), block("step", 300), segment(torchsCache, 450),
			segment("ncclInit", 200))
		mustHaveRows(t, got, map[string]int64{
			"step": 300, growth.RootCudaBeforeTracing: 100, growth.RootCudaCached: 100, "ncclInit": 200,
			growth.RootNotAttributed: 300,
		})
	})

	t.Run("overestimated blocks", func(t *testing.T) {
		mustHaveRows(t, rowsOf(device(1000, 500, 400), block("step", 430)),
			map[string]int64{"step": 430, growth.RootCudaCached: 100, growth.RootNotAttributed: 470})
		mustHaveRows(t, rowsOf(device(growth.Unknown, 500, 400), block("step", 430)),
			map[string]int64{"step": 430, growth.RootCudaCached: 100, growth.RootNotAttributed: -30})
	})

	t.Run("untraced blocks", func(t *testing.T) {
		d := device(1000, 500, 400)
		d.BlocksProbed = false
		got := rowsOf(d, block("traced for a while", 30), segment(torchsCache, 450))
		mustHaveRows(t, got,
			map[string]int64{growth.RootCudaUntraced: 400, growth.RootCudaCached: 100, growth.RootNotAttributed: 500})
	})

	t.Run("blocks in bursts", func(t *testing.T) {
		d := device(1000, 500, 400)
		d.BlockBursts = true
		mustHaveRows(t, rowsOf(d, block("step", 30)), map[string]int64{
			"step": 30, growth.RootCudaUntraced: 370, growth.RootCudaCached: 100, growth.RootNotAttributed: 500,
		})
	})

	t.Run("segments without PyTorch's totals", func(t *testing.T) {
		got := rowsOf(device(1000, growth.Unknown, growth.Unknown), segment(torchsCache, 450),
			segment("ncclInit", 200))
		mustHaveRows(t, got,
			map[string]int64{torchsCache: 450, "ncclInit": 200, growth.RootNotAttributed: 350})
		mustHaveRows(t, rowsOf(device(growth.Unknown, growth.Unknown, growth.Unknown)), nil)
	})

	t.Run("by GPU", func(t *testing.T) {
		d := device(1000, 500, 400)
		d.Totals = []growth.GPUTotals{
			{GPU: "0", Allocated: 300, Reserved: 300}, {GPU: "1", Allocated: 100, Reserved: 200},
		}
		second := block("other", 40)
		second.GPU = "1"
		mustHaveRows(t, rowsOf(d, block("step", 250), second), map[string]int64{
			"step": 250, "other": 40, growth.RootCudaBeforeTracing + "0": 50, growth.RootCudaBeforeTracing + "1": 60,
			growth.RootCudaCached + "1": 100, growth.RootNotAttributed: 500,
		})
		d.Totals[0].Allocated = 299 // not the sum of the process: read while an event came
		mustHaveRows(t, rowsOf(d, block("step", 250), second), map[string]int64{
			"step": 250, "other": 40, growth.RootCudaBeforeTracing: 110, growth.RootCudaCached: 100, growth.RootNotAttributed: 500,
		})
	})
}

func TestIsOfTorch(t *testing.T) {
	in := func(library, function string, python bool) *growth.Stack {
		caller := growth.Frame{
			Function: function, Python: python, Module: &growth.Module{Path: library},
		}
		return &growth.Stack{Frames: []growth.Frame{{Function: "cudaMalloc"}, caller}}
	}

	for name, c := range map[string]struct {
		*growth.Stack
		want bool
	}{
		"its library":             {in("/venv/torch/lib/libc10_cuda.so", "libc10_cuda.so+0x12", false), true},
		"that of a wheel":         {in("/torch.libs/libc10_cuda-1f2e3d.so", "?", false), true},
		"a stack that was cut":    {&growth.Stack{Frames: []growth.Frame{{Function: "cudaMalloc"}}, Truncated: "unwind tables not made yet"}, true},
		"one that was not kept":   {&growth.Stack{}, true},
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

// randomDevices is a snapshot of three processes with random parts of each known.
func randomDevices(random *rand.Rand) *growth.Snapshot {
	s := &growth.Snapshot{}
	maybe := func(most int64) int64 {
		if random.IntN(4) == 0 {
			return growth.Unknown
		}
		return random.Int64N(most)
	}
	for pid := range 3 {
		d := growth.ProcessGPUMemory{
			PID: pid, Used: maybe(1 << 36), Reserved: maybe(1 << 35), Allocated: maybe(1 << 35),
			BlocksProbed: random.IntN(3) > 0, BlockBursts: random.IntN(3) == 0,
		}
		for gpu := range random.IntN(3) {
			d.Totals = append(d.Totals, growth.GPUTotals{
				GPU: string(rune('0' + gpu)), Allocated: random.Int64N(1 << 30),
				Reserved: random.Int64N(1 << 30),
			})
		}
		if random.IntN(2) == 0 && len(d.Totals) > 0 {
			d.Allocated, d.Reserved = 0, 0
			for _, t := range d.Totals {
				d.Allocated += t.Allocated
				d.Reserved += t.Reserved
			}
		}
		s.GPUMemory = append(s.GPUMemory, d)
		for range random.IntN(12) {
			h := growth.Holding{
				Stack: growth.NamedStack(pid, "", []string{"a", "b", torchsCache}[random.IntN(3)]),
				Kind:  []growth.Kind{growth.KindCudaBlock, growth.KindCudaSegment}[random.IntN(2)],
				GPU:   []string{"", "0", "7"}[random.IntN(3)],
			}
			h.InuseBytes = random.Int64N(1<<33) - 1<<30
			s.GPUHoldings = append(s.GPUHoldings, h)
		}
	}

	return s
}

func TestAttributeRandom(t *testing.T) {
	for seed := range uint64(3000) {
		s := randomDevices(rand.New(rand.NewPCG(seed, 1)))
		held := len(s.GPUHoldings)
		Attribute(s)
		once := slices.Clone(s.GPUHoldings)
		Attribute(s)
		isEqual := func(a, b growth.Holding) bool {
			return a.GPUBytes == b.GPUBytes && a.Stack.ID == b.Stack.ID
		}
		if !slices.EqualFunc(once, s.GPUHoldings, isEqual) {
			t.Fatalf("seed %d: filled twice it is %v, not %v", seed, s.GPUHoldings, once)
		}
		for _, d := range s.GPUMemory {
			var others, sum int64
			for _, h := range s.GPUHoldings {
				if h.Stack.PID != d.PID {
					continue
				}
				sum += h.GPUBytes
				isTorchs := h.Stack.Root == "" && h.Stack.Frames[0].Function == torchsCache
				if h.Kind == growth.KindCudaSegment && (d.Reserved == growth.Unknown || !isTorchs) {
					others += h.InuseBytes
				}
			}
			want := sum
			switch {
			case d.Used != growth.Unknown:
				want = d.Used
			case d.Reserved != growth.Unknown:
				want = d.Reserved + others
			case d.Allocated != growth.Unknown:
				want = d.Allocated + others
			}
			if sum != want {
				t.Fatalf("seed %d, PID %d: rows sum to %d, not %d", seed, d.PID, sum, want)
			}
		}
		for _, h := range s.GPUHoldings[held:] {
			remainder := h.Kind == growth.KindNotAttributed
			if !strings.HasPrefix(h.Stack.Root, "[") || h.InuseBytes != 0 || h.GPUBytes == 0 ||
				h.GPUBytes < 0 && !remainder {
				t.Fatalf("seed %d: added %+v", seed, h)
			}
		}
	}
}
