package kernel

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf/ringbuf"

	"github.com/allocscope/allocscope/bpf"
)

// maxQueuedEvents bounds the events that wait to be handled: 64 MiB if all of them were code
// objects.
const maxQueuedEvents = 1 << 14

// readPause is the pause of read at an empty ring buffer. Events wake allocscope twenty times a
// second at most, and the BPF programs rely on it: they do not wake the reader twice within this
// time. Meanwhile the ring has room for 1,500 of the longest stacks, which take longer to walk.
const readPause = bpf.WakeupPeriodMs * time.Millisecond

// maxWait is how long read waits to be woken. After a flush it waits without reading the ring
// buffer first, which may have events by then that woke nobody.
const maxWait = 4 * readPause

// An EventReader reads the ring buffer of the BPF programs. One goroutine reads and another one
// handles: to handle an event may take long, and a process that has just started would fill the
// ring buffer meanwhile.
type EventReader struct {
	kernel  *Kernel
	ring    *ringbuf.Reader
	queue   chan []byte   // raw events in their order; nil: a flush
	flushed chan struct{} // one value for each flush; closed when all events have been handled

	flushing sync.Mutex    // ringbuf reports two concurrent flushes once
	asked    atomic.Bool   // a flush waits
	wake     chan struct{} // ends a pause of read
}

// ReadEvents starts to read the ring buffer, and calls handle for each event, one after the other.
func (k *Kernel) ReadEvents(handle func(raw []byte)) (*EventReader, error) {
	ring, err := ringbuf.NewReader(k.Events)
	if err != nil {
		return nil, fmt.Errorf("open ring buffer: %w", err)
	}
	r := &EventReader{
		kernel: k, ring: ring,
		queue: make(chan []byte, maxQueuedEvents), flushed: make(chan struct{}),
		wake: make(chan struct{}, 1),
	}
	go r.read()
	go r.handleAll(handle)
	return r, nil
}

// read reads events until Close. A flush ends when the ring buffer is empty or, in a storm that never
// leaves it empty, when as much has been read as it can hold.
func (r *EventReader) read() {
	defer close(r.queue)
	sinceFlush, sinceTurn := 0, 0 // bytes
	for turn := uint64(1); ; {
		r.ring.SetDeadline(time.Now().Add(maxWait))
		record, err := r.ring.Read()
		switch {
		case errors.Is(err, ringbuf.ErrFlushed):
			r.endFlush()
			r.pause() // the flush may have cut one short, on which the BPF programs rely
		case errors.Is(err, os.ErrClosed):
			return
		case err == nil:
			r.queue <- record.RawSample
			sinceTurn += len(record.RawSample)
			if record.Remaining == 0 || sinceTurn >= r.ring.BufferSize() {
				_ = r.kernel.ReaderTurn.Set(turn) // else no process has more than one share
				turn, sinceTurn = turn+1, 0
			}
			if record.Remaining == 0 && !r.asked.Load() { // else it might never find the ring empty
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
func (r *EventReader) endFlush() {
	if r.asked.Swap(false) {
		r.queue <- nil
	}
}

// pause waits for more events, or for a flush or Close.
func (r *EventReader) pause() {
	select {
	case <-r.wake:
	case <-time.After(readPause):
	}
}

// endPause ends a pause of read, or the next one.
func (r *EventReader) endPause() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

func (r *EventReader) handleAll(handle func(raw []byte)) {
	defer close(r.flushed)
	for raw := range r.queue {
		if raw == nil {
			r.flushed <- struct{}{}
			continue
		}
		handle(raw)
	}
}

// Flush waits until all events that are in the ring buffer now have been handled.
func (r *EventReader) Flush() {
	r.flushing.Lock()
	defer r.flushing.Unlock()

	r.asked.Store(true)
	if r.ring.Flush() == nil {
		r.endPause()
		<-r.flushed
	}
}

// Close stops both goroutines. Afterwards nothing is handled.
func (r *EventReader) Close() error {
	if err := r.ring.Close(); err != nil {
		return err
	}
	r.endPause()
	for range r.flushed { // until it is closed
	}
	return nil
}
