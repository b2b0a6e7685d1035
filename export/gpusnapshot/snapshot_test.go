package gpusnapshot

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

const mib = 1 << 20

var started = time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)

// train is a stack of Python and native frames; the last one has no source file.
var train = &growth.Stack{ID: 7, PID: 42, Frames: []growth.Frame{
	{Function: "cuMemAlloc_v2", Address: 1, Module: &growth.Module{Path: "/lib/libcuda.so.1"}},
	{
		Function: "c10::cuda::CUDACachingAllocator::malloc(void**)", Address: 2,
		Module: &growth.Module{Path: "/lib/libc10_cuda.so"},
	},
	{
		Function: "at::empty_cuda", Address: 3, File: "EmptyTensor.cpp", Line: 12,
		Module: &growth.Module{Path: "/lib/libtorch.so"},
	},
	{Function: "Linear.forward", Python: true, File: "/site/linear.py", Line: 125},
	{Function: "<module>", Python: true, File: "/home/me/train.py", Line: 30},
	{Function: "_start_here", Address: 4, Module: &growth.Module{Path: "/bin/python3"}},
}}

// keep shares frames with train.
var keep = &growth.Stack{ID: 8, PID: 42, Truncated: "too deep", Frames: []growth.Frame{
	{Function: "Cache.keep", Python: true, File: "/home/me/cache.py", Line: 9},
	{Function: "<module>", Python: true, File: "/home/me/train.py", Line: 30},
}}

// cache has segments of two GPUs with blocks in all states.
func cache() *growth.GPUCache {
	return &growth.GPUCache{Segments: []growth.GPUSegment{
		{
			GPU: "0", Address: 0x7f0000000000, Size: 20 * mib, Stack: train,
			Blocks: []growth.GPUBlock{
				{
					Address: 0x7f0000000000, Size: 8 * mib, Requested: 8*mib - 100,
					State: growth.GPUBlockAllocated, Stack: keep, Born: 90 * time.Second,
					Tensor: &growth.GPUTensor{DType: "float32", Shape: []int64{1024, 2047}},
				},
				{
					Address: 0x7f0000800000, Size: 4 * mib, Requested: 4 * mib,
					State: growth.GPUBlockAllocated,
				},
				{Address: 0x7f0000c00000, Size: 2 * mib, State: growth.GPUBlockPending},
				{Address: 0x7f0000e00000, Size: 6 * mib},
			},
		},
		{
			GPU: "2", Address: 0x7f1000000000, Size: 2 * mib, Stream: 0x55d0c0de, Small: true,
			Pool: growth.GPUPool{Kind: growth.GPUPoolGraph, ID: [2]uint64{0, 3}}, Expandable: true,
			Blocks: []growth.GPUBlock{
				{
					Address: 0x7f1000000000, Size: mib, Requested: growth.Unknown,
					State: growth.GPUBlockAllocated, Stack: train,
					Born: 30*time.Second + 5*time.Microsecond,
				},
				{
					Address: 0x7f1000100000, Size: mib, Requested: mib,
					State: growth.GPUBlockAllocated, Stack: keep, Born: 20 * time.Second,
				},
			},
		},
	}}
}

func written(t testing.TB, c *growth.GPUCache) []byte {
	t.Helper()
	var out bytes.Buffer
	tracertest.NoError(t, Write(&out, c, started))
	return out.Bytes()
}

// A python reads pickles.
type python struct {
	in  io.WriteCloser
	out *bufio.Reader
}

func startPython(t testing.TB) *python {
	t.Helper()
	if testing.Short() {
		t.Skip("needs Python, and -short leaves it out")
	}

	command := exec.Command("python3", "testdata/unpickle.py")
	var stderr bytes.Buffer
	command.Stderr = &stderr

	in := tracertest.Must(command.StdinPipe())(t)
	out := tracertest.Must(command.StdoutPipe())(t)

	tracertest.NoError(t, command.Start())

	t.Cleanup(func() {
		_ = in.Close()
		if err := command.Wait(); err != nil {
			t.Errorf("python3: %v\n%s", err, stderr.String())
		}
	})
	return &python{in, bufio.NewReader(out)}
}

// read returns the value of a pickle, with numbers as they are written.
func (p *python) read(t testing.TB, pickle []byte) map[string]any {
	t.Helper()
	_, err := p.in.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(pickle))))
	if err == nil {
		_, err = p.in.Write(pickle)
	}
	tracertest.NoError(t, err)

	line, err := p.out.ReadBytes('\n')
	if err != nil {
		t.Fatalf("python cannot read the pickle: %v", err)
	}
	return parsed(t, string(line))
}

func parsed(t testing.TB, text string) (value map[string]any) {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	return value
}

// The frames of the fixture, as JSON.
const (
	module     = `{"name": "<module>", "filename": "/home/me/train.py", "line": 30}`
	trainStack = `[{"name": "at::empty_cuda", "filename": "EmptyTensor.cpp", "line": 12},
		{"name": "Linear.forward", "filename": "/site/linear.py", "line": 125}, ` + module + `,
		{"name": "_start_here", "filename": "/bin/python3", "line": 0}]`
	keepStack = `[{"name": "Cache.keep", "filename": "/home/me/cache.py", "line": 9},
		` + module + `,
		{"name": "[truncated: too deep]", "filename": "", "line": 0}]`
	noStack = `[{"name": "allocated before tracing started or not sampled", "filename": "",
		"line": 0}]`
)

// Python reads the addresses and sizes of the fixture in decimal.
const want = `{
	"segments": [{
		"device": 0, "address": 139637976727552, "total_size": 20971520,
		"allocated_size": 12582912, "active_size": 14680064, "requested_size": 14679964,
		"stream": 0, "segment_type": "large", "segment_pool_id": {"tuple": [0, 0]},
		"is_expandable": false, "frames": ` + trainStack + `,
		"blocks": [
			{"address": 139637976727552, "size": 8388608, "requested_size": 8388508,
				"state": "active_allocated", "frames": ` + keepStack + `,
				"user_metadata": "tensor float32 [1024, 2047]"},
			{"address": 139637985116160, "size": 4194304, "requested_size": 4194304,
				"state": "active_allocated", "frames": ` + noStack + `},
			{"address": 139637989310464, "size": 2097152, "requested_size": 2097152,
				"state": "active_pending_free", "frames": ` + noStack + `},
			{"address": 139637991407616, "size": 6291456, "requested_size": 0,
				"state": "inactive", "frames": []}
		]
	}, {
		"device": 2, "address": 139706696204288, "total_size": 2097152,
		"allocated_size": 2097152, "active_size": 2097152, "requested_size": 2097152,
		"stream": 1439744222, "segment_type": "small", "segment_pool_id": {"tuple": [0, 3]},
		"is_expandable": true,
		"frames": [{"name": "allocated before tracing started", "filename": "", "line": 0}],
		"blocks": [
			{"address": 139706696204288, "size": 1048576, "requested_size": 1048576,
				"state": "active_allocated", "frames": ` + trainStack + `},
			{"address": 139706697252864, "size": 1048576, "requested_size": 1048576,
				"state": "active_allocated", "frames": ` + keepStack + `}
		]
	}],
	"device_traces": [
		[{"action": "alloc", "addr": 139637976727552, "size": 8388508, "stream": 0,
			"time_us": 1796032890000000, "frames": ` + keepStack + `,
			"user_metadata": "tensor float32 [1024, 2047]"}],
		[],
		[{"action": "alloc", "addr": 139706697252864, "size": 1048576, "stream": 1439744222,
			"time_us": 1796032820000000, "frames": ` + keepStack + `},
		{"action": "alloc", "addr": 139706696204288, "size": 1048576, "stream": 1439744222,
			"time_us": 1796032830000005, "frames": ` + trainStack + `}]
	],
	"allocator_settings": {},
	"external_annotations": []
}`

func TestWrite(t *testing.T) {
	p := startPython(t)
	t.Run("all fields", func(t *testing.T) {
		got := p.read(t, written(t, cache()))
		if !reflect.DeepEqual(got, parsed(t, want)) {
			g, _ := json.MarshalIndent(got, "", " ")
			t.Errorf("Python reads %s", g)
		}
	})

	t.Run("no segments", func(t *testing.T) {
		want := parsed(t, `{"segments": [], "device_traces": [], "allocator_settings": {},
			"external_annotations": []}`)
		if got := p.read(t, written(t, &growth.GPUCache{})); !reflect.DeepEqual(got, want) {
			t.Errorf("Python reads %v", got)
		}
	})

	t.Run("unknown GPUs are left out", func(t *testing.T) {
		c := &growth.GPUCache{}
		for _, gpu := range []string{"", "-1", "120", "4294967296", "x", "119"} {
			c.Segments = append(c.Segments, growth.GPUSegment{GPU: gpu})
		}
		got := p.read(t, written(t, c))

		segments, traces := got["segments"].([]any), got["device_traces"].([]any)
		if len(segments) != 1 || len(traces) != 120 {
			t.Errorf("%d segments, traces of %d devices, want 1 and 120",
				len(segments), len(traces))
		}
	})

	t.Run("error of the writer", func(t *testing.T) {
		pipe, in := io.Pipe()
		_ = pipe.Close()
		if err := Write(in, cache(), started); err == nil {
			t.Error("there is none")
		}
	})
}

// A job has many blocks and few stacks.
func TestSize(t *testing.T) {
	const blocks, stacks = 5_000, 50
	c := &growth.GPUCache{Segments: []growth.GPUSegment{{GPU: "0", Size: blocks * 512}}}
	for i := range blocks {
		c.Segments[0].Blocks = append(c.Segments[0].Blocks, growth.GPUBlock{
			Address: uint64(i * 512), Size: 512, State: growth.GPUBlockAllocated,
			Stack: deepStack(i % stacks),
		})
	}

	pickle := written(t, c)
	if each := len(pickle) / blocks; each > 100 {
		t.Errorf("%d bytes a block, want 100 at most", each)
	}

	got := startPython(t).read(t, pickle)
	read := got["segments"].([]any)[0].(map[string]any)["blocks"].([]any)
	if len(read) != blocks {
		t.Fatalf("%d blocks, want %d", len(read), blocks)
	}

	for i, b := range read {
		frames := b.(map[string]any)["frames"].([]any)
		name := frames[0].(map[string]any)["name"]
		if want := fmt.Sprintf("leaf %d", i%stacks); len(frames) != depth || name != want {
			t.Fatalf("block %d has %d frames from %v on, want %d from %s on",
				i, len(frames), name, depth, want)
		}
	}
}

const depth = 6

// deepStack has a leaf of its own, and the other frames of all such stacks.
func deepStack(n int) *growth.Stack {
	s := &growth.Stack{ID: uint64(n + 1)}
	s.Frames = append(s.Frames, growth.Frame{Function: fmt.Sprintf("leaf %d", n), Python: true})
	for i := range depth - 1 {
		s.Frames = append(s.Frames, growth.Frame{
			Function: fmt.Sprintf("forward %d", i), File: "/site/model.py", Line: i, Python: true,
		})
	}
	return s
}

// FuzzWrite compares the values of a forged cache with what Python reads.
func FuzzWrite(f *testing.F) {
	f.Add("f", "f.py", 1, uint64(1<<40), int64(512), int64(500), uint64(0), uint8(2))
	f.Add("\xff\xfe\n\x00", strings.Repeat("\U0001f40d", mib/4), -1, uint64(1<<63+5), int64(-1),
		int64(-1<<63), uint64(1<<64-1), uint8(1))
	f.Add("", "\u202e", 1<<40, uint64(0), int64(1<<63-1), int64(1<<62), uint64(1<<31), uint8(255))
	p := startPython(f)
	f.Fuzz(func(t *testing.T, name, file string, line int, address uint64, size, requested int64,
		stream uint64, state uint8,
	) {
		stack := &growth.Stack{ID: 1, Frames: []growth.Frame{{
			Function: name, File: file, Line: line, Python: true,
		}}}
		c := &growth.GPUCache{Segments: []growth.GPUSegment{{
			GPU: "0", Address: address, Size: size, Stream: stream, Stack: stack,
			Pool: growth.GPUPool{ID: [2]uint64{stream, address}},
			Blocks: []growth.GPUBlock{{
				Address: address, Size: size, Requested: requested,
				State: growth.GPUBlockState(state), Stack: stack, Born: time.Duration(size),
			}},
		}}}

		s := p.read(t, written(t, c))["segments"].([]any)[0].(map[string]any)
		for key, want := range map[string]int64{
			"address": int64(address), "total_size": size, "stream": int64(stream),
		} {
			if got := s[key].(json.Number).String(); got != fmt.Sprint(want) {
				t.Errorf("%s is %s, want %d", key, got, want)
			}
		}

		frame := s["frames"].([]any)[0].(map[string]any)
		if frame["name"] != shown(name) || frame["filename"] != shown(file) ||
			frame["line"].(json.Number).String() != fmt.Sprint(line) {
			t.Errorf("frame %v, want %q %q %d", frame, shown(name), shown(file), line)
		}
	})
}

// shown is a hostile text as Python reads it.
func shown(text string) string { return growth.Printable(growth.Truncate(text, 4096)) }
