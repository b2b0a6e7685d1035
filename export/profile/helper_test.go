package profile

import (
	"time"

	"github.com/allocscope/allocscope/growth"
)

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
		}, mainFn)
	cut := stack(6, mallocF, frame("deep", 50, 0x401450))
	cut.Truncated = "more than 127 frames"
	lost := &growth.Stack{Truncated: "stack map full"}

	alive := func(
		s *growth.Stack, kind growth.Kind, objects float64, bytes, resident int64,
	) growth.Holding {
		return growth.Holding{
			Stack: s, Kind: kind, InuseObjects: objects, InuseBytes: bytes, ResidentBytes: resident,
		}
	}
	allocated := func(objects, bytes float64, h growth.Holding) growth.Holding {
		h.AllocObjects, h.AllocBytes = objects, bytes
		return h
	}
	retained := growth.NamedStack(4242, "[heap: free but resident]", "main heap")
	data := growth.NamedStack(4242, "[file: /data/train.bin]")
	return []growth.Holding{
		allocated(1, 512, alive(stack(7, mallocF), growth.KindHeap, 1, 512, 4096)),
		allocated(1000.4, 1573493.6, alive(leak, growth.KindHeap, 1000, 1572864, 1576960)),
		allocated(8, 275000, alive(python, growth.KindHeap, 7.6, 262144, 200704)),
		allocated(2, 1048576, alive(mapped, growth.KindMmap, 2, 524288, 520192)),
		alive(shrunk, growth.KindHeap, -10, -40960, -45056),
		allocated(4, 400, alive(created, growth.KindHeap, 4, 400, 0)),
		allocated(1, 4096, alive(cut, growth.KindHeap, 1, 4096, 8192)),
		allocated(1, 2048, alive(lost, growth.KindHeap, 1, 2048, 0)),
		allocated(2, 300, alive(leak, growth.KindMmap, 0, 0, 0)),
		alive(retained, growth.KindRetained, 0, 0, 319488),
		alive(data, growth.KindFile, 0, 0, 987136),
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
