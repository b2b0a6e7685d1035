package summary

import (
	"testing"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/growthtest"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

var (
	trainer = &growth.Module{Path: "/opt/job/trainer"}
	mallocF = growthtest.NativeFrame("malloc", "/usr/lib/x86_64-linux-gnu/libc.so.6")
	mainFn  = frame("main", 40)
)

func frame(function string, line int) growth.Frame {
	return growth.Frame{Function: function, File: "/src/trainer.c", Line: line, Module: trainer}
}

// holdings is one holding of each sort that a summary must show.
func holdings() []growth.Holding {
	alive := func(
		kind growth.Kind, objects float64, bytes, resident int64, frames ...growth.Frame,
	) growth.Holding {
		return growth.Holding{
			Stack: &growth.Stack{PID: 4242, Frames: append([]growth.Frame{mallocF}, frames...)},
			Kind:  kind, InuseObjects: objects, InuseBytes: bytes, ResidentBytes: resident,
		}
	}
	return []growth.Holding{
		alive(growth.KindHeap, 1000, 1572864, 1576960, frame("leak_block", 12), mainFn),
		alive(growth.KindHeap, 7.6, 262144, 200704,
			growthtest.PythonFrame("<module>", "/src/train.py", 7), mainFn),
		alive(growth.KindMmap, 2, 524288, 520192, frame("map_arena", 21), mainFn),
		alive(growth.KindHeap, -10, -40960, -45056, frame("cache_trim", 33), mainFn),
		{
			Stack: &growth.Stack{Truncated: "stack map full"}, Kind: growth.KindHeap,
			InuseObjects: 1, InuseBytes: 2048,
		},
		{
			Stack: growth.NamedStack(4242, "[heap: free but resident]", "main heap"),
			Kind:  growth.KindRetained, ResidentBytes: 319488,
		},
		{
			Stack: growth.NamedStack(4242, "[file: /data/train.bin]"), Kind: growth.KindFile,
			ResidentBytes: 987136,
		},
	}
}

func do(t *testing.T, err error) {
	t.Helper()
	tracertest.NoError(t, err)
}
