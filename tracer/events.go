package tracer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf/ringbuf"
	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer/addrspace"
	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/overhead"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/source"
	"github.com/allocscope/allocscope/tracer/stack"
	"github.com/allocscope/allocscope/tracer/unwind"
)

// maxQueuedEvents bounds the events that wait for the naming of stacks: 64 MiB if all of them were
// code objects.
const maxQueuedEvents = 1 << 14

// eventReader reads the ring buffer of the BPF programs. It names new stacks, keeps mapping calls
// for the next snapshot, and has the unwinder read new code. One goroutine reads and another one
// dispatches: to read the symbols of a large library takes long, and a process that has just
// started would fill the ring buffer meanwhile.
type eventReader struct {
	kernel   *kernel.Kernel
	ring     *ringbuf.Reader
	tables   *unwind.Tables
	target   func(pid uint32) *target // nil: not a target
	steps    *overhead.StepTimes
	reported stack.Reported
	queue    chan []byte   // raw events in their order; nil: a flush
	flushed  chan struct{} // one value for each flush; closed when all events have been dispatched

	flushing sync.Mutex    // ringbuf reports two concurrent flushes once
	asked    atomic.Bool   // a flush waits
	wake     chan struct{} // ends a pause of read
	journal  addrspace.Journal
}

func startEvents(
	k *kernel.Kernel, tables *unwind.Tables, target func(pid uint32) *target,
	steps *overhead.StepTimes,
) (*eventReader, error) {
	ring, err := ringbuf.NewReader(k.Events)
	if err != nil {
		return nil, fmt.Errorf("open ring buffer: %w", err)
	}
	r := &eventReader{
		kernel: k, ring: ring, tables: tables, target: target, steps: steps,
		reported: stack.Reported{Seen: k.ReportedStacks},
		queue:    make(chan []byte, maxQueuedEvents), flushed: make(chan struct{}),
		wake: make(chan struct{}, 1),
	}
	go r.read()
	go r.dispatchAll()
	return r, nil
}

// readPause is the pause of read at an empty ring buffer. Events wake allocscope twenty times a
// second at most, and the BPF programs rely on it: they do not wake the reader twice within this
// time. Meanwhile the ring has room for 1,500 of the longest stacks, which take longer to walk.
const readPause = bpf.WakeupPeriodMs * time.Millisecond

// read reads events until close. A flush ends when the ring buffer is empty or, in a storm that never
// leaves it empty, when as much has been read as it can hold.
func (r *eventReader) read() {
	defer close(r.queue)
	sinceFlush := 0 // bytes
	for {
		record, err := r.ring.Read()
		switch {
		case errors.Is(err, ringbuf.ErrFlushed):
			r.endFlush()
		case errors.Is(err, os.ErrClosed):
			return
		case err == nil:
			r.queue <- record.RawSample
			if record.Remaining == 0 {
				r.pause()
			}

			sinceFlush += len(record.RawSample)
			if !r.asked.Load() {
				sinceFlush = 0
			} else if sinceFlush >= r.ring.BufferSize() {
				r.endFlush()
			}
		}
	}
}

// endFlush queues the end of the flush that waits, if there is one.
func (r *eventReader) endFlush() {
	if r.asked.Swap(false) {
		r.queue <- nil
	}
}

// pause waits for more events, or for a flush or close.
func (r *eventReader) pause() {
	select {
	case <-r.wake:
	case <-time.After(readPause):
	}
}

// endPause ends a pause of read, or the next one.
func (r *eventReader) endPause() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

func (r *eventReader) dispatchAll() {
	defer close(r.flushed)
	for raw := range r.queue {
		if raw == nil {
			r.flushed <- struct{}{}
			continue
		}
		r.dispatch(raw)
	}
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
				for _, id := range t.stacks.TakeGivenUp() {
					r.reported.Forget(id)
				}
			}
			r.reported.Add(reported.ID)
		}
	case bpf.EventCode:
		if code, ok := stack.DecodeCode(raw); ok {
			if t := r.target(code.TGID); t != nil {
				t.stacks.AddCode(code)
			}
		}
	default:
		var event bpf.Event
		if _, err := binary.Decode(raw, binary.NativeEndian, &event); err == nil {
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
	if t == nil || t.err() != nil { // no snapshot would take its calls
		return
	}

	switch event.Kind {
	case bpf.EventExec:
		t.end(process.ErrExecuted)
	case bpf.EventStep:
		r.steps.Add(event.Tgid, event.Time, event.Length)
	case bpf.EventUnmapped, bpf.EventNewCode:
		t.unwinder.Refresh()
	default:
		r.journal.Add(event)
	}
}

// flush waits until all events that are in the ring buffer now have been dispatched.
func (r *eventReader) flush() {
	r.flushing.Lock()
	defer r.flushing.Unlock()

	r.asked.Store(true)
	if r.ring.Flush() == nil {
		r.endPause()
		<-r.flushed
	}
}

// collect takes recent mappings and releases out of the kernel, and flushes: what leaves the map of
// mappings before is an event, unless it is gone.
func (r *eventReader) collect() {
	source.TakeRecentMappings(r.kernel, r.dispatchEvent)
	source.TakeReleases(r.kernel, r.dispatchEvent)
	r.flush()
}

// takeCalls collects, and returns the mapping calls of a process since the last time, in order.
func (r *eventReader) takeCalls(pid int) []bpf.Event {
	until := kernel.Monotonic()
	r.collect()
	return r.journal.Take(uint32(pid), until)
}

// close stops both goroutines. Afterwards nothing is dispatched.
func (r *eventReader) close() error {
	if err := r.ring.Close(); err != nil {
		return err
	}
	r.endPause()
	for range r.flushed { // until it is closed
	}
	return nil
}
