package tracer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"github.com/cilium/ebpf/ringbuf"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer/addrspace"
	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/residency/pages"
	"github.com/allocscope/allocscope/tracer/stack"
	"github.com/allocscope/allocscope/tracer/unwind"
)

// maxQueuedEvents bounds what waits for the naming of stacks: 64 MiB, if all of it were code objects.
const maxQueuedEvents = 1 << 14

// eventReader reads the ring buffer: new stacks are named at once, mapping calls are kept for the next snapshot, and the
// unwinder is told of new code. Reading does not wait for naming: while the symbols of a large library are read, a process that has
// just started fills the ring buffer.
type eventReader struct {
	ring     *ringbuf.Reader
	tables   *unwind.Tables
	target   func(pid uint32) *target // nil: it is none
	reported stack.Reported
	queue    chan []byte   // notices as they come; nil: flushed up to here
	flushed  chan struct{} // one value for each flush; closed when all has been dispatched

	flushing sync.Mutex // two flushes at a time would be told once

	mu    sync.Mutex
	calls map[uint32][]bpf.Event // by PID
}

func startEvents(k *kernel.Kernel, tables *unwind.Tables, target func(pid uint32) *target) (*eventReader, error) {
	reader, err := ringbuf.NewReader(k.Events)
	if err != nil {
		return nil, fmt.Errorf("open ring buffer: %w", err)
	}
	n := &eventReader{
		ring: reader, tables: tables, target: target, reported: stack.Reported{Seen: k.ReportedStacks},
		queue: make(chan []byte, maxQueuedEvents), flushed: make(chan struct{}), calls: make(map[uint32][]bpf.Event),
	}
	go n.read()
	go n.dispatchAll()
	return n, nil
}

func (n *eventReader) read() {
	defer close(n.queue)
	for {
		record, err := n.ring.Read()
		switch {
		case errors.Is(err, ringbuf.ErrFlushed):
			n.queue <- nil
		case errors.Is(err, os.ErrClosed):
			return
		case err == nil:
			n.queue <- record.RawSample
		}
	}
}

func (n *eventReader) dispatchAll() {
	defer close(n.flushed)
	for raw := range n.queue {
		if raw == nil {
			n.flushed <- struct{}{}
			continue
		}
		n.dispatch(raw)
	}
}

func (n *eventReader) dispatch(raw []byte) {
	if len(raw) < 4 {
		return // cannot happen, as below
	}
	switch bpf.EventKind(binary.NativeEndian.Uint32(raw)) {
	case bpf.EventStack:
		if stack, ok := stack.DecodeStack(raw); ok {
			if t := n.target(stack.TGID); t != nil {
				t.stacks.Add(stack)
			}
			n.reported.Add(stack.ID)
		}
	case bpf.EventCode:
		if code, ok := stack.DecodeCode(raw); ok {
			if t := n.target(code.TGID); t != nil {
				t.stacks.AddCode(code)
			}
		}
	default:
		n.dispatchNotice(raw)
	}
}

func (n *eventReader) dispatchNotice(raw []byte) {
	var notice bpf.Event
	if _, err := binary.Decode(raw, binary.NativeEndian, &notice); err != nil {
		return // not of the size that the kernel side sends: cannot happen
	}
	if notice.Kind == bpf.EventTableNeeded {
		n.tables.Prioritize(uint32(notice.Start))
		return
	}
	t := n.target(notice.Tgid)
	if t == nil || t.err() != nil { // or nobody would take the calls
		return
	}
	switch notice.Kind {
	case bpf.EventExec:
		t.end(process.ErrExecuted)
	case bpf.EventStep:
		t.session.stepTimes.add(notice)
	case bpf.EventUnmapped:
		t.unwinder.Refresh()
	default:
		n.keep(t, notice)
	}
}

// keep keeps a mapping call for the next snapshot.
func (n *eventReader) keep(t *target, notice bpf.Event) {
	n.mu.Lock()
	n.calls[notice.Tgid] = append(n.calls[notice.Tgid], notice)
	n.mu.Unlock()
	const protExec = 4
	if notice.Kind == bpf.EventMmap && notice.Protection&protExec != 0 {
		t.unwinder.Refresh()
	}
}

// flush waits until everything now in the ring buffer has been dispatched.
func (n *eventReader) flush() {
	n.flushing.Lock()
	defer n.flushing.Unlock()
	if n.ring.Flush() == nil {
		<-n.flushed
	}
}

// take dispatches everything now in the ring buffer, and gives the mapping calls of a process in the order of time.
func (n *eventReader) takeCalls(pid int) []bpf.Event {
	n.flush()
	n.mu.Lock()
	defer n.mu.Unlock()
	calls := n.calls[uint32(pid)]
	delete(n.calls, uint32(pid))
	slices.SortStableFunc(calls, func(a, b bpf.Event) int {
		return int(int64(a.Time) - int64(b.Time))
	})
	return calls
}

// forget drops the calls of a process that is traced no more.
func (n *eventReader) forget(pid uint32) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.calls, pid)
}

// close stops reading. No target is told anything afterwards.
func (n *eventReader) close() error {
	if err := n.ring.Close(); err != nil {
		return err
	}
	for range n.flushed { // until it is closed
	}
	return nil
}

// apply records mapping calls in the set. The maps tell where the kernel's return trampoline is.
func (t *target) apply(calls []bpf.Event, maps []process.Mapping) {
	heapTraced := t.heap.Status().Attached || t.tensors.Active()
	for _, c := range calls {
		at, _ := process.FindMapping(maps, c.MallocSlot)
		byAllocator := c.ByAllocator != 0 || at.Path == "[uprobes]"
		call := addrspace.Call{Stack: c.Stack, ByAllocator: heapTraced && byAllocator}
		switch c.Kind {
		case bpf.EventMmap:
			t.space.Mmap(call, c.Start, c.Length, c.Flags, c.Descriptor)
		case bpf.EventMunmap:
			t.space.Munmap(call, c.Start, c.Length)
		case bpf.EventMremap:
			t.space.Mremap(call, c.OldStart, c.OldLength, c.Start, c.Length, c.Flags)
		case bpf.EventBrk:
			call.ByAllocator = true // nothing but the allocator moves the break
			t.space.Brk(call, c.Start)
		case bpf.EventMadvise:
			t.space.Madvise(call, c.Length)
			t.released = append(t.released, pages.Span{Start: c.Start, End: c.Start + c.Length})
		}
	}
}
