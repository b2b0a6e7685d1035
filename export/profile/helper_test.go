package profile

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/gpu"
)

var update = flag.Bool("update", false, "write the golden files")

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("differs from %s (write it with -update):\ngot:\n%s\nwant:\n%s", path, got,
			want)
	}
}

var (
	trainer = &growth.Module{
		Path: "/opt/job/trainer", BuildID: "c0ffee", Start: 0x400000, Limit: 0x500000,
	}
	libc = &growth.Module{
		Path: "/usr/lib/x86_64-linux-gnu/libc.so.6", BuildID: "beef", Start: 0x7f0000000000,
		Limit: 0x7f0000200000, Offset: 0x28000,
	}
	mainFn = growth.Frame{
		Function: "main", File: "/src/trainer.c", Line: 40, Module: trainer, Address: 0x401500,
	}
	mallocF = growth.Frame{Function: "malloc", Module: libc, Address: 0x7f0000090000}
)

func frame(function string, line int, address uint64) growth.Frame {
	return growth.Frame{
		Function: function, File: "/src/trainer.c", Line: line, Module: trainer, Address: address,
	}
}

// holdings is one holding of each sort that a profile must show.
func holdings() []growth.Holding {
	stack := func(id uint64, frames ...growth.Frame) *growth.Stack {
		return &growth.Stack{ID: id, PID: 4242, Frames: frames}
	}
	leak := stack(1, mallocF, frame("leak_block", 12, 0x401100), mainFn)
	python := stack(2,
		growth.Frame{Function: "__libc_calloc", Module: libc, Address: 0x7f0000091000},
		growth.Frame{Function: "<module>", File: "/src/train.py", Line: 7}, mainFn)
	mapped := stack(3,
		growth.Frame{Function: "__GI___mmap64", Module: libc, Address: 0x7f0000092000},
		frame("map_arena", 21, 0x401200), mainFn)
	shrunk := stack(4, mallocF, frame("cache_trim", 33, 0x401300), mainFn)
	created := stack(5, mallocF,
		growth.Frame{Function: "operator new(unsigned long)", Address: 0x7f1100000000},
		growth.Frame{
			Function: "std::vector<int>::reserve(unsigned long)", Module: trainer,
			Address: 0x401400,
		},
		mainFn)
	cut := stack(6, mallocF, frame("deep", 50, 0x401450))
	cut.Truncated = "more than 127 frames"
	lost := &growth.Stack{Truncated: "stack map full"}
	bare := stack(7, mallocF)
	retained := growth.NamedStack(4242, "[heap: free but resident]", "main heap")
	data := growth.NamedStack(4242, "[file: /data/train.bin]")
	return []growth.Holding{
		{
			Stack: bare, Kind: growth.KindHeap, InuseObjects: 1, InuseBytes: 512,
			ResidentBytes: 4096, AllocObjects: 1, AllocBytes: 512, Samples: 1,
		},
		{
			Stack: leak, Kind: growth.KindHeap, InuseObjects: 1000, InuseBytes: 1572864,
			ResidentBytes: 1576960, AllocObjects: 1000.4, AllocBytes: 1573493.6, Samples: 3,
		},
		{
			Stack: python, Kind: growth.KindHeap, InuseObjects: 7.6, InuseBytes: 262144,
			ResidentBytes: 200704, AllocObjects: 8, AllocBytes: 275000, Samples: 2,
		},
		{
			Stack: mapped, Kind: growth.KindMmap, InuseObjects: 2, InuseBytes: 524288,
			ResidentBytes: 520192, AllocObjects: 2, AllocBytes: 1048576, Samples: 2,
		},
		{
			Stack: shrunk, Kind: growth.KindHeap, InuseObjects: -10, InuseBytes: -40960,
			ResidentBytes: -45056, Samples: -1,
		},
		{
			Stack: created, Kind: growth.KindHeap, AllocObjects: 4, AllocBytes: 400,
			InuseObjects: 4, InuseBytes: 400, Samples: 4,
		},
		{
			Stack: cut, Kind: growth.KindHeap, InuseObjects: 1, InuseBytes: 4096,
			ResidentBytes: 8192, AllocObjects: 1, AllocBytes: 4096, Samples: 1,
		},
		{
			Stack: lost, Kind: growth.KindHeap, InuseObjects: 1, InuseBytes: 2048, AllocObjects: 1,
			AllocBytes: 2048, Samples: 1,
		},
		{Stack: leak, Kind: growth.KindMmap, AllocObjects: 2, AllocBytes: 300},
		{Stack: retained, Kind: growth.KindRetained, ResidentBytes: 319488},
		{
			Stack: data, Kind: growth.KindFile, ResidentBytes: 987136, SharedBytes: 4096,
			SwappedBytes: 4096,
		},
	}
}

func info() Info {
	return Info{
		Time:       time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC),
		Duration:   5 * time.Minute,
		Interval:   512 << 10,
		Executable: trainer.Path,
		Processes:  map[int]string{4242: "trainer"},
		Comments:   []string{"lost: 3 stacks (stack map full)", "kernel: 6.8.0"},
	}
}

// onGPU is what a function of train.py holds on a GPU, in bytes.
func onGPU(function string, kind growth.Kind, gpu string, bytes int64) growth.Holding {
	stack := growth.NamedStack(4242, "", "cuMemAlloc_v2", function, "main")
	return growth.Holding{
		Stack: stack, Kind: kind, GPU: gpu, InuseBytes: bytes, InuseObjects: float64(bytes / 100),
		AllocObjects: 9, AllocBytes: 9000,
	}
}

// gpuSnapshot is a snapshot in which the driver counts 10,000 bytes: a leak in blocks, a cache, NCCL, and a rest.
func gpuSnapshot(at time.Duration, leak int64) *growth.Snapshot {
	s := &growth.Snapshot{
		Elapsed: at, Alive: []int{4242},
		GPUMemory: []growth.ProcessGPUMemory{
			{PID: 4242, Used: 10_000, Reserved: 6000, Allocated: 5000, BlocksProbed: true},
		},
		GPUHoldings: []growth.Holding{
			onGPU("keep", growth.KindCudaBlock, "0", leak),
			onGPU("batch", growth.KindCudaBlock, "1", 700),
			onGPU("c10::cuda::CUDACachingAllocator::raw_alloc", growth.KindCudaSegment, "0", 6000),
			onGPU("ncclInit", growth.KindCudaSegment, "0", 1200),
		},
	}
	gpu.Attribute(s)
	return s
}
