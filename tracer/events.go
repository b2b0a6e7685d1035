package tracer

import (
	"encoding/binary"
	"unsafe"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer/addrspace"
	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/overhead"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/source"
	"github.com/allocscope/allocscope/tracer/stack"
	"github.com/allocscope/allocscope/tracer/unwind"
)

// eventReader handles the events of the BPF programs. It names new stacks, keeps mapping calls for
// the next snapshot, and has the unwinder read new code.
type eventReader struct {
	*kernel.EventReader
	kernel   *kernel.Kernel
	tables   *unwind.Tables
	target   func(pid uint32) *target // nil: not a target
	steps    *overhead.StepTimes
	reported stack.Reported
	journal  addrspace.Journal
}

func startEvents(
	k *kernel.Kernel, tables *unwind.Tables, target func(pid uint32) *target,
	steps *overhead.StepTimes,
) (*eventReader, error) {
	r := &eventReader{
		kernel: k, tables: tables, target: target, steps: steps,
		reported: stack.Reported{Kernel: k},
	}
	var err error
	if r.EventReader, err = k.ReadEvents(r.dispatch); err != nil {
		return nil, err
	}
	return r, nil
}

func (r *eventReader) dispatch(raw []byte) {
	if len(raw) < 4 {
		return // the BPF programs send none of them
	}

	switch bpf.EventKind(binary.NativeEndian.Uint32(raw)) {
	case bpf.EventStack:
		if reported, ok := stack.DecodeStack(raw); ok {
			if t := r.target(reported.TGID); t != nil {
				t.stacks.Add(reported)
				r.reported.Forget(reported.TGID, t.stacks.TakeGivenUp())
			}
			r.reported.Add(reported.TGID, reported.ID)
		}
	case bpf.EventCode:
		if code, ok := stack.DecodeCode(raw); ok {
			if t := r.target(code.TGID); t != nil {
				t.stacks.AddCode(code)
			}
		}
	default:
		var event bpf.Event
		if copy(unsafe.Slice((*byte)(unsafe.Pointer(&event)), unsafe.Sizeof(event)), raw) ==
			int(unsafe.Sizeof(event)) {
			r.dispatchEvent(event)
		}
	}
}

func (r *eventReader) dispatchEvent(event bpf.Event) {
	if event.Kind == bpf.EventTableNeeded {
		r.tables.Prioritize(uint32(event.Start))
		return
	}
	t := r.target(event.Tgid)
	if t == nil {
		return
	}
	if event.Kind == bpf.EventOutOfMemory { // its end may be known before
		t.outOfMemory.Store(true)
		return
	}
	if t.err() != nil { // no snapshot would take its calls
		return
	}

	switch event.Kind {
	case bpf.EventExec:
		t.end(process.ErrExecuted)
	case bpf.EventStep:
		r.steps.Add(event.Tgid, event.Time, event.Length)
	case bpf.EventBrk:
		t.breaks.Add(event.Time, event.Start, event.Stack)
	case bpf.EventUnmapped, bpf.EventNewCode:
		t.unwinder.Refresh()
	default:
		r.journal.Add(event)
	}
}

// collect takes recent mappings and releases out of the kernel, and flushes: a mapping that leaves
// the map before is an event, unless it is gone.
func (r *eventReader) collect() {
	source.TakeRecentMappings(r.kernel, r.dispatchEvent)
	source.TakeReleases(r.kernel, r.dispatchEvent)
	r.Flush()
}

// takeCalls collects, and returns the mapping calls of a process since the last time, in order.
func (r *eventReader) takeCalls(pid int) []bpf.Event {
	until := kernel.Monotonic()
	r.collect()
	return r.journal.Take(uint32(pid), until)
}
