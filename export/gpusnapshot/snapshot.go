// Package gpusnapshot writes the memory of PyTorch's caching allocator in the form of
// torch.cuda.memory._snapshot(), which PyTorch's viewers read. The form is the one of
// https://github.com/pytorch/pytorch/blob/v2.6.0/torch/csrc/cuda/memory_snapshot.cpp, as a pickle.
package gpusnapshot

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/allocscope/allocscope/export/profile"
	"github.com/allocscope/allocscope/growth"
)

const (
	// maxGPUs is C10_COMPILE_TIME_MAX_GPUS of c10/cuda/CUDAMacros.h.
	maxGPUs = 120
	// maxFrames bounds a stack.
	maxFrames = 1024
)

// The frames of memory without a stack.
const (
	NoBlockStack   = "allocated before tracing started or not sampled"
	NoSegmentStack = "allocated before tracing started"
)

var (
	noBlockStack   = growth.NamedStack(0, "", NoBlockStack)
	noSegmentStack = growth.NamedStack(0, "", NoSegmentStack)
)

// Write writes the segments of a cache, whose trace started at a time. device_traces has one event
// for each block that was sampled when it was allocated, and is still allocated.
//
// Addresses and streams are 64 bits with a sign, as in PyTorch. A block whose requested size is
// unknown has its size. Segments of a GPU that is not a number below 120 are left out. The error
// comes from w.
func Write(w io.Writer, cache *growth.GPUCache, started time.Time) error {
	s := writer{
		pickler: newPickler(w), started: started,
		stacks: make(map[uint64]uint32), frames: make(map[frame]uint32),
	}

	devices := 0
	for i := range cache.Segments {
		if on, ok := deviceOf(&cache.Segments[i]); ok {
			s.segments = append(s.segments, segment{&cache.Segments[i], on})
			devices = max(devices, on+1)
		}
	}

	return s.pickle(func() { s.writeSnapshot(devices) })
}

// deviceOf returns the index of a segment's GPU.
func deviceOf(s *growth.GPUSegment) (device int, ok bool) {
	n, err := strconv.ParseUint(s.GPU, 10, 8)
	return int(n), err == nil && n < maxGPUs
}

// A segment is on a device, which is the index of a GPU in the process.
type segment struct {
	*growth.GPUSegment
	device int
}

// A frame has the fields that the viewers show.
type frame struct {
	name, file string
	line       int
}

// A writer writes one snapshot. Stacks by their IDs, and frames, are written once.
type writer struct {
	*pickler
	segments []segment
	started  time.Time
	stacks   map[uint64]uint32
	frames   map[frame]uint32
}

func (w *writer) writeSnapshot(devices int) {
	w.dict(func() {
		w.text("segments")
		listOf(w.pickler, w.segments, w.writeSegment)

		w.text("device_traces")
		events := w.events(devices)
		listOf(w.pickler, events, func(of *[]event) { listOf(w.pickler, *of, w.writeEvent) })

		w.text("allocator_settings")
		w.dict(func() {})
		w.text("external_annotations")
		listOf[int](w.pickler, nil, nil)
	})
}

func (w *writer) writeSegment(s *segment) {
	var allocated, active, requested int64
	for i := range s.Blocks {
		b := &s.Blocks[i]
		if b.State == growth.GPUBlockAllocated {
			allocated += b.Size
		}
		if b.InUse() {
			active += b.Size
			requested += requestedOf(b)
		}
	}

	w.dict(func() {
		w.intAt("device", int64(s.device))
		w.intAt("address", int64(s.Address))
		w.intAt("total_size", s.Size)
		w.intAt("allocated_size", allocated)
		w.intAt("active_size", active)
		w.intAt("requested_size", requested)
		w.intAt("stream", int64(s.Stream))
		w.textAt("segment_type", segmentType(s.GPUSegment))
		w.text("segment_pool_id")
		w.int(int64(s.Pool.ID[0]))
		w.int(int64(s.Pool.ID[1]))
		w.op(opTuple2)
		w.boolAt("is_expandable", s.Expandable)
		w.writeStack(cmp.Or(s.Stack, noSegmentStack))
		w.text("blocks")
		listOf(w.pickler, s.Blocks, w.writeBlock)
	})
}

func segmentType(s *growth.GPUSegment) string {
	if s.Small {
		return "small"
	}
	return "large"
}

func (w *writer) writeBlock(b *growth.GPUBlock) {
	w.dict(func() {
		w.intAt("address", int64(b.Address))
		w.intAt("size", b.Size)
		w.intAt("requested_size", requestedOf(b))
		w.textAt("state", stateOf(b))
		if !b.InUse() { // the viewers show no stack of it
			w.text("frames")
			listOf[int](w.pickler, nil, nil)
			return
		}
		w.writeStack(cmp.Or(b.Stack, noBlockStack))
		w.writeTensor(b.Tensor)
	})
}

// requestedOf is the requested size of a block, in bytes: 0 of a free block.
func requestedOf(b *growth.GPUBlock) int64 {
	switch {
	case !b.InUse():
		return 0
	case b.State == growth.GPUBlockAllocated && b.Requested >= 0 && b.Requested <= b.Size:
		return b.Requested
	}
	return b.Size
}

func stateOf(b *growth.GPUBlock) string {
	switch b.State {
	case growth.GPUBlockAllocated:
		return "active_allocated"
	case growth.GPUBlockPending:
		return "active_pending_free"
	}
	return "inactive"
}

// writeTensor writes the tensor of a block at the key at which newer viewers find a text that the
// program has given to its allocations: format_user_metadata in
// https://github.com/pytorch/pytorch/blob/main/torch/utils/viz/process_alloc_data.js.
func (w *writer) writeTensor(t *growth.GPUTensor) {
	if t != nil {
		shape := strings.ReplaceAll(fmt.Sprint(t.Shape), " ", ", ")
		w.textAt("user_metadata", "tensor "+t.DType+" "+shape)
	}
}

// writeStack writes a stack as PyTorch does: the leaf first.
func (w *writer) writeStack(s *growth.Stack) {
	w.text("frames")
	once(w.pickler, w.stacks, s.ID, func() {
		frames := growth.WithoutAllocator(profile.Frames(s))
		listOf(w.pickler, frames[:min(maxFrames, len(frames))], w.writeFrame)
	})
}

// writeFrame writes a frame. A function without a source file has its library.
func (w *writer) writeFrame(f *growth.Frame) {
	shown := frame{f.Function, f.File, f.Line}
	if f.File == "" && f.Module != nil {
		shown.file = f.Module.Path
	}
	once(w.pickler, w.frames, shown, func() {
		w.dict(func() {
			w.textAt("name", shown.name)
			w.textAt("filename", shown.file)
			w.intAt("line", int64(shown.line))
		})
	})
}

// An event is the allocation of a block.
type event struct {
	*growth.GPUBlock
	stream uint64
}

// events are the known allocations by device, in order.
func (w *writer) events(devices int) [][]event {
	all := make([][]event, devices)
	for _, s := range w.segments {
		for i := range s.Blocks {
			if b := &s.Blocks[i]; b.State == growth.GPUBlockAllocated && b.Stack != nil {
				all[s.device] = append(all[s.device], event{b, s.Stream})
			}
		}
	}

	for _, of := range all {
		slices.SortStableFunc(of, func(a, b event) int { return cmp.Compare(a.Born, b.Born) })
	}
	return all
}

func (w *writer) writeEvent(e *event) {
	w.dict(func() {
		w.textAt("action", "alloc")
		w.intAt("addr", int64(e.Address))
		w.intAt("size", requestedOf(e.GPUBlock))
		w.intAt("stream", int64(e.stream))
		w.intAt("time_us", w.started.Add(e.Born).UnixMicro())
		w.writeStack(e.Stack)
		w.writeTensor(e.Tensor)
	})
}
