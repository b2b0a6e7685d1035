package kernel

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/bpf"
)

// maxBatchBytes is how many bytes of events a batch has at most, and maxBatches bounds the batches
// that wait to be handled: 64 MiB.
const maxBatchBytes, maxBatches = 256 << 10, 256

// readPause is the pause after a wakeup. Events wake allocscope twenty times a second at most, and
// the BPF programs rely on it: they do not wake the reader twice within this time, so that it looks
// again after it. Meanwhile the ring has room for 1,500 of the longest stacks, which take longer to
// walk.
const readPause = bpf.WakeupPeriodMs * time.Millisecond

// An EventReader reads the ring buffer of the BPF programs: when an urgent event has woken it, and
// in Flush. One goroutine reads and another one handles: to handle an event may take long, and a
// process that has just started would fill the ring buffer meanwhile.
//
// ringbuf would wait for a wakeup in a system call, and Go's runtime looks after a thread in a
// system call some hundred times. The runtime's own poller waits for all in one place.
type EventReader struct {
	kernel *Kernel
	woken  *os.File      // the ring buffer's map: readable when an event has woken its reader
	closed chan struct{} // ends a pause

	reading sync.Mutex // of the fields below
	ring    *ringbuf.Reader
	turn    uint64
	isOver  bool       // queue is closed
	queue   chan batch // events in their order

	handled chan struct{} // closed when all events have been handled
}

// A batch is raw events one after the other, and where each of them ends. A flush ends with a batch
// without events, whose channel is closed when it is reached.
type batch struct {
	raw   []byte
	ends  []int
	flush chan<- struct{}
}

// ReadEvents starts to read the ring buffer, and calls handle for each event, one after the other.
// The event is valid until handle returns.
func (k *Kernel) ReadEvents(handle func(raw []byte)) (*EventReader, error) {
	ring, err := ringbuf.NewReader(k.Events)
	if err != nil {
		return nil, fmt.Errorf("open ring buffer: %w", err)
	}
	ring.SetDeadline(time.Unix(1, 0)) // has passed: it does not wait

	woken, err := pollable(k.Events.FD())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open ring buffer: %w", err), ring.Close())
	}
	r := &EventReader{
		kernel: k, woken: woken, closed: make(chan struct{}), ring: ring,
		queue: make(chan batch, maxBatches), handled: make(chan struct{}),
	}
	go r.read()
	go r.handleAll(handle)
	return r, nil
}

// pollable returns a copy of a file descriptor that Go's poller waits for.
func pollable(fd int) (*os.File, error) {
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(own, true); err != nil {
		return nil, errors.Join(err, unix.Close(own))
	}
	return os.NewFile(uintptr(own), "events"), nil
}

// read reads events each time that one has woken it, until Close.
func (r *EventReader) read() {
	conn, err := r.woken.SyscallConn()
	if err == nil {
		_ = conn.Read(func(uintptr) bool {
			r.drain()
			r.pause()
			r.drain()
			return false
		})
	}

	r.reading.Lock()
	defer r.reading.Unlock()
	r.isOver = true
	close(r.queue)
}

// pause waits for more events, or for Close.
func (r *EventReader) pause() {
	wait := time.NewTimer(readPause)
	defer wait.Stop()
	select {
	case <-r.closed:
	case <-wait.C:
	}
}

// drain queues events until the ring buffer is empty or, in a storm that never leaves it empty,
// until it has read as much as the ring buffer can hold.
func (r *EventReader) drain() {
	r.reading.Lock()
	defer r.reading.Unlock()
	if r.isOver || r.ring.AvailableBytes() == 0 {
		return
	}
	for left := r.ring.BufferSize(); left > 0; {
		b := r.readBatch(min(left, maxBatchBytes))
		if len(b.ends) == 0 {
			break
		}
		left -= len(b.raw)
		r.queue <- b
	}
	r.turn++
	_ = r.kernel.ReaderTurn.Set(r.turn) // else no process has more than one share
}

// readBatch reads events of so many bytes, and of one event more.
func (r *EventReader) readBatch(limit int) (b batch) {
	b.raw = make([]byte, 0, min(r.ring.AvailableBytes(), maxBatchBytes))
	var record ringbuf.Record
	for len(b.raw) < limit && r.ring.ReadInto(&record) == nil {
		b.raw = append(b.raw, record.RawSample...)
		b.ends = append(b.ends, len(b.raw))
	}
	return b
}

func (r *EventReader) handleAll(handle func(raw []byte)) {
	defer close(r.handled)
	for b := range r.queue {
		begin := 0
		for _, end := range b.ends {
			handle(b.raw[begin:end])
			begin = end
		}
		if b.flush != nil {
			close(b.flush)
		}
	}
}

// Flush waits until all events that are in the ring buffer now have been handled.
func (r *EventReader) Flush() {
	r.drain()
	if flushed := r.queueFlush(); flushed != nil {
		<-flushed
	}
}

// queueFlush queues the end of a flush; nil: the reader has ended.
func (r *EventReader) queueFlush() <-chan struct{} {
	r.reading.Lock()
	defer r.reading.Unlock()
	if r.isOver {
		return nil
	}
	flushed := make(chan struct{})
	r.queue <- batch{flush: flushed}
	return flushed
}

// Close stops both goroutines. Afterwards nothing is handled.
func (r *EventReader) Close() error {
	if err := r.woken.Close(); err != nil {
		return err
	}
	close(r.closed)
	<-r.handled
	return r.ring.Close()
}
