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
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/residency"
	"github.com/allocscope/allocscope/tracer/unwind"
)

// mostQueued bounds what waits for the naming of stacks: 64 MiB, if all of it were code objects.
const mostQueued = 1 << 14

// noticeReader reads the ring buffer: new stacks are named at once, mapping calls are kept for the next snapshot, and the
// unwinder is told of new code. Reading does not wait for naming: while the symbols of a large library are read, a process that has
// just started fills the ring buffer.
type noticeReader struct {
	ring    *ringbuf.Reader
	tables  *unwind.Tables
	target  func(pid uint32) *target // nil: it is none
	told    toldStacks
	queue   chan []byte   // notices as they come; nil: flushed up to here
	flushed chan struct{} // one value for each flush; closed when all has been dispatched

	flushing sync.Mutex // two flushes at a time would be told once

	mu    sync.Mutex
	calls map[uint32][]bpf.KernelNotice // by PID
}

func startNotices(k *kernel, tables *unwind.Tables, target func(pid uint32) *target) (*noticeReader, error) {
	reader, err := ringbuf.NewReader(k.Maps[bpf.KernelMapNotices])
	if err != nil {
		return nil, fmt.Errorf("open ring buffer: %w", err)
	}
	n := &noticeReader{
		ring: reader, tables: tables, target: target, told: toldStacks{seen: k.Maps[bpf.KernelMapSeen]},
		queue: make(chan []byte, mostQueued), flushed: make(chan struct{}), calls: make(map[uint32][]bpf.KernelNotice),
	}
	go n.read()
	go n.dispatchAll()
	return n, nil
}

func (n *noticeReader) read() {
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

func (n *noticeReader) dispatchAll() {
	defer close(n.flushed)
	for raw := range n.queue {
		if raw == nil {
			n.flushed <- struct{}{}
			continue
		}
		n.dispatch(raw)
	}
}

func (n *noticeReader) dispatch(raw []byte) {
	if len(raw) < 4 {
		return // cannot happen, as below
	}
	switch bpf.KernelNoticeKind(binary.NativeEndian.Uint32(raw)) {
	case bpf.KernelNoticeKindNOTICE_STACK:
		if stack, ok := decodeStack(raw); ok {
			if t := n.target(stack.tgid); t != nil {
				t.stacks.announced(stack)
			}
			n.told.add(stack.id)
		}
	case bpf.KernelNoticeKindNOTICE_CODE:
		if code, ok := decodeCode(raw); ok {
			if t := n.target(code.tgid); t != nil {
				t.stacks.told(code)
			}
		}
	default:
		n.dispatchNotice(raw)
	}
}

func (n *noticeReader) dispatchNotice(raw []byte) {
	var notice bpf.KernelNotice
	if _, err := binary.Decode(raw, binary.NativeEndian, &notice); err != nil {
		return // not of the size that the kernel side sends: cannot happen
	}
	if notice.Kind == bpf.KernelNoticeKindNOTICE_WANTED {
		n.tables.Hurry(uint32(notice.Start))
		return
	}
	t := n.target(notice.Tgid)
	if t == nil || t.err() != nil { // or nobody would take the calls
		return
	}
	switch notice.Kind {
	case bpf.KernelNoticeKindNOTICE_EXEC:
		t.end(errExecuted)
	case bpf.KernelNoticeKindNOTICE_STEP:
		t.session.stepTimes.told(notice)
	case bpf.KernelNoticeKindNOTICE_UNMAPPED:
		t.unwinder.refresh()
	default:
		n.keep(t, notice)
	}
}

// keep keeps a mapping call for the next snapshot.
func (n *noticeReader) keep(t *target, notice bpf.KernelNotice) {
	n.mu.Lock()
	n.calls[notice.Tgid] = append(n.calls[notice.Tgid], notice)
	n.mu.Unlock()
	const protExec = 4
	if notice.Kind == bpf.KernelNoticeKindNOTICE_MMAP && notice.Protection&protExec != 0 {
		t.unwinder.refresh()
	}
}

// flush waits until everything now in the ring buffer has been dispatched.
func (n *noticeReader) flush() {
	n.flushing.Lock()
	defer n.flushing.Unlock()
	if n.ring.Flush() == nil {
		<-n.flushed
	}
}

// take dispatches everything now in the ring buffer, and gives the mapping calls of a process in the order of time.
func (n *noticeReader) take(pid int) []bpf.KernelNotice {
	n.flush()
	n.mu.Lock()
	defer n.mu.Unlock()
	calls := n.calls[uint32(pid)]
	delete(n.calls, uint32(pid))
	slices.SortStableFunc(calls, func(a, b bpf.KernelNotice) int {
		return int(int64(a.Time) - int64(b.Time))
	})
	return calls
}

// forget drops the calls of a process that is traced no more.
func (n *noticeReader) forget(pid uint32) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.calls, pid)
}

// close stops reading. No target is told anything afterwards.
func (n *noticeReader) close() error {
	if err := n.ring.Close(); err != nil {
		return err
	}
	for range n.flushed { // until it is closed
	}
	return nil
}

// apply records mapping calls in the set. The maps tell where the kernel's return trampoline is.
func (t *target) apply(calls []bpf.KernelNotice, maps []process.Mapping) {
	heapTraced := t.heap.source().Attached || t.tensors.watches()
	for _, c := range calls {
		at, _ := process.Find(maps, c.MallocSlot)
		byAllocator := c.ByAllocator != 0 || at.Path == "[uprobes]"
		call := addrspace.Call{Stack: c.Stack, ByAllocator: heapTraced && byAllocator}
		switch c.Kind {
		case bpf.KernelNoticeKindNOTICE_MMAP:
			t.space.Map(call, c.Start, c.Length, c.Flags, c.Descriptor)
		case bpf.KernelNoticeKindNOTICE_MUNMAP:
			t.space.Unmap(call, c.Start, c.Length)
		case bpf.KernelNoticeKindNOTICE_MREMAP:
			t.space.Remap(call, c.OldStart, c.OldLength, c.Start, c.Length, c.Flags)
		case bpf.KernelNoticeKindNOTICE_BRK:
			call.ByAllocator = true // nothing but the allocator moves the break
			t.space.Break(call, c.Start)
		case bpf.KernelNoticeKindNOTICE_MADVISE:
			t.space.Advise(call, c.Length)
			t.released = append(t.released, residency.Span{Start: c.Start, End: c.Start + c.Length})
		}
	}
}
