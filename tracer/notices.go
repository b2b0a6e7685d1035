package tracer

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer/mapping"
	"github.com/allocscope/allocscope/tracer/process"
)

// noticeReader reads the ring buffer: new stacks are named at once, mapping calls are kept for the next snapshot, and the
// unwinder is told of new code.
type noticeReader struct {
	ring     *ringbuf.Reader
	stacks   *stackTable
	onExec   func()
	unwinder *unwinder
	flushed  chan struct{} // one value for each flush; closed when reading has ended

	mu    sync.Mutex
	calls []bpf.KernelNotice
}

func startNotices(ring *ebpf.Map, stacks *stackTable, unwinder *unwinder, onExec func()) (*noticeReader, error) {
	reader, err := ringbuf.NewReader(ring)
	if err != nil {
		return nil, fmt.Errorf("open ring buffer: %w", err)
	}
	n := &noticeReader{ring: reader, stacks: stacks, unwinder: unwinder, onExec: onExec, flushed: make(chan struct{})}
	go n.read()
	return n, nil
}

func (n *noticeReader) read() {
	defer close(n.flushed)
	var record ringbuf.Record
	for {
		err := n.ring.ReadInto(&record)
		switch {
		case errors.Is(err, ringbuf.ErrFlushed):
			n.flushed <- struct{}{}
		case errors.Is(err, os.ErrClosed):
			return
		case err == nil:
			n.dispatch(record.RawSample)
		}
	}
}

func (n *noticeReader) dispatch(raw []byte) {
	if len(raw) < 4 {
		return // cannot happen, as below
	}
	switch bpf.KernelNoticeKind(binary.NativeEndian.Uint32(raw)) {
	case bpf.KernelNoticeKindNOTICE_STACK:
		if stack, ok := decodeStack(raw); ok {
			n.stacks.announced(stack)
		}
	case bpf.KernelNoticeKindNOTICE_CODE:
		if code, ok := decodeCode(raw); ok {
			n.stacks.told(code)
		}
	default:
		n.dispatchNotice(raw)
	}
}

func (n *noticeReader) dispatchNotice(raw []byte) {
	var notice bpf.KernelNotice
	if binary.Read(bytes.NewReader(raw), binary.NativeEndian, &notice) != nil {
		return // not of the size that the kernel side sends: cannot happen
	}
	switch notice.Kind {
	case bpf.KernelNoticeKindNOTICE_EXEC:
		n.onExec()
	case bpf.KernelNoticeKindNOTICE_UNMAPPED:
		n.unwinder.refresh()
	case bpf.KernelNoticeKindNOTICE_WANTED:
		n.unwinder.tables.Hurry(uint32(notice.Start))
	default:
		n.keep(notice)
	}
}

// keep keeps a mapping call for the next snapshot.
func (n *noticeReader) keep(notice bpf.KernelNotice) {
	n.mu.Lock()
	n.calls = append(n.calls, notice)
	n.mu.Unlock()
	const protExec = 4
	if notice.Kind == bpf.KernelNoticeKindNOTICE_MMAP && notice.Protection&protExec != 0 {
		n.unwinder.refresh()
	}
}

// flush waits until everything now in the ring buffer has been read.
func (n *noticeReader) flush() {
	if n.ring.Flush() == nil {
		<-n.flushed
	}
}

// take reads everything now in the ring buffer, and gives the mapping calls in the order of time.
func (n *noticeReader) take() []bpf.KernelNotice {
	n.flush()
	n.mu.Lock()
	defer n.mu.Unlock()
	calls := n.calls
	n.calls = nil
	slices.SortStableFunc(calls, func(a, b bpf.KernelNotice) int {
		return int(int64(a.Time) - int64(b.Time))
	})
	return calls
}

func (n *noticeReader) close() error { return n.ring.Close() }

// apply records mapping calls in the set. The maps tell where the kernel's return trampoline is.
func (s *Session) apply(calls []bpf.KernelNotice, maps []process.Mapping) {
	heapTraced := s.isAttached("heap")
	for _, c := range calls {
		at, _ := process.Find(maps, c.MallocSlot)
		byAllocator := c.ByAllocator != 0 || at.Path == "[uprobes]"
		call := mapping.Call{Stack: c.Stack, ByAllocator: heapTraced && byAllocator}
		switch c.Kind {
		case bpf.KernelNoticeKindNOTICE_MMAP:
			s.space.Map(call, c.Start, c.Length, c.Flags, c.Descriptor)
		case bpf.KernelNoticeKindNOTICE_MUNMAP:
			s.space.Unmap(call, c.Start, c.Length)
		case bpf.KernelNoticeKindNOTICE_MREMAP:
			s.space.Remap(call, c.OldStart, c.OldLength, c.Start, c.Length, c.Flags)
		case bpf.KernelNoticeKindNOTICE_BRK:
			call.ByAllocator = heapTraced // nothing but the allocator moves the break
			s.space.Break(call, c.Start)
		case bpf.KernelNoticeKindNOTICE_MADVISE:
			s.space.Advise(call, c.Length)
		}
	}
}
