package unwind

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"github.com/cilium/ebpf"
)

// mostBytes bounds the kernel memory of all tables; those of a torch process take 21 MiB.
const mostBytes = 256 << 20

// ErrFull means that there is no room for another table.
var ErrFull = errors.New("too many unwind tables")

// Tables makes unwind tables and keeps them in the kernel, one for each file, however many processes map it. Files wait in
// a queue, the urgent ones first and of the others the small ones. Until its turn has come, stacks end in a file.
type Tables struct {
	outer *ebpf.Map // index -> table
	inner *ebpf.MapSpec

	mu      sync.Mutex
	changed *sync.Cond // the queue, or the number of those at work
	known   map[Identity]uint32
	queue   []job
	working int
	bytes   int
	closed  bool

	generations uint64
	stats       Stats
	workers     sync.WaitGroup
}

// Stats says what the tables hold.
type Stats struct {
	Files  int // with a table
	Bare   int // without unwind information, or unreadable
	Full   int // files that there was no room for
	Rows   int
	Bytes  int // of kernel memory
	Queued int // files whose turn has not come
}

// An Identity tells files apart. Two files with one build ID and size are the same to us: what a file claims harms no
// more than the stacks through it.
type Identity struct {
	BuildID       string // or empty,
	Device, Inode uint64 // and then these
	Size          int64
}

// A Source is the contents of a file; closed once it has been read.
type Source interface {
	io.ReaderAt
	io.Closer
}

type job struct {
	index  uint32
	source Source
	size   int64
	path   string
	urgent bool
}

// Hurry puts a file that stacks already lead through before the others.
func (t *Tables) Hurry(index uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range t.queue {
		if t.queue[i].index == index {
			t.queue[i].urgent = true
		}
	}
}

// before is the order of the queue.
func (j job) before(other job) bool {
	if j.urgent != other.urgent {
		return j.urgent
	}
	return j.size < other.size
}

// NewTables starts the workers. outer is the kernel's map of tables, inner what its tables are made like.
func NewTables(outer *ebpf.Map, inner *ebpf.MapSpec) *Tables {
	t := &Tables{outer: outer, inner: inner, known: make(map[Identity]uint32)}
	t.changed = sync.NewCond(&t.mu)
	for range min(4, runtime.GOMAXPROCS(0)) {
		t.workers.Go(t.work)
	}
	return t
}

// Add gives the index of the table of a file, which the kernel side finds there as soon as it is made. A file that is new is
// opened by the function given. The error is ErrFull or that of the function.
func (t *Tables) Add(id Identity, path string, urgent bool, open func() (Source, error)) (uint32, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if index, ok := t.known[id]; ok {
		return index, nil
	}
	index := uint32(len(t.known) + 1) // 0 is no table
	if index >= t.outer.MaxEntries() || t.bytes >= mostBytes {
		t.stats.Full++
		return 0, ErrFull
	}
	source, err := open()
	if err != nil {
		return 0, err
	}
	t.known[id] = index
	t.queue = append(t.queue, job{index, source, id.Size, path, urgent})
	t.changed.Broadcast()
	return index, nil
}

// generation gives a number that was not given before, for a state of some process's mappings.
func (t *Tables) generation() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.generations++
	return t.generations
}

// work makes tables until Close.
func (t *Tables) work() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for {
		for len(t.queue) == 0 && !t.closed {
			t.changed.Wait()
		}
		if t.closed {
			return
		}
		next := t.takeNext()
		t.working++
		t.mu.Unlock()
		table, err := next.build()
		if err == nil {
			err = t.put(next.index, table)
		}
		t.mu.Lock()
		t.working--
		t.account(table, err)
		t.changed.Broadcast()
		if len(t.queue) == 0 && t.working == 0 {
			debug.FreeOSMemory() // the largest files take some 100 MB to read
		}
	}
}

func (t *Tables) takeNext() job {
	first := 0
	for i, j := range t.queue {
		if j.before(t.queue[first]) {
			first = i
		}
	}
	next := t.queue[first]
	t.queue = append(t.queue[:first], t.queue[first+1:]...)
	return next
}

// build reads the file. One without unwind information, or none that can be read, gets a table without pages, which sends
// the kernel side to the frame pointers.
func (j job) build() (*Table, error) {
	defer j.source.Close()
	table, err := Build(j.source, j.size, j.path)
	if err != nil {
		return &Table{Words: make([]uint64, headerWords/2)}, nil //nolint:nilerr // there is a way without
	}
	return table, nil
}

func (t *Tables) account(table *Table, err error) {
	switch {
	case err != nil:
		t.stats.Full++
	case table.Rows == 0:
		t.stats.Bare++
	default:
		t.stats.Files++
		t.stats.Rows += table.Rows
	}
	if err == nil {
		t.bytes += roundToPage(8 * len(table.Words))
	}
}

func roundToPage(bytes int) int {
	page := os.Getpagesize()
	return (bytes + page - 1) / page * page
}

// put hands a table to the kernel.
func (t *Tables) put(index uint32, table *Table) error {
	spec := t.inner.Copy()
	spec.MaxEntries = uint32(len(table.Words))
	m, err := ebpf.NewMap(spec)
	if err != nil {
		return fmt.Errorf("create unwind table of %d words: %w", len(table.Words), err)
	}
	defer m.Close() // the outer map holds it
	memory, err := m.Memory()
	if err != nil {
		return fmt.Errorf("map unwind table: %w", err)
	}
	if _, err := memory.WriteAt(wordBytes(table.Words), 0); err != nil {
		return fmt.Errorf("write unwind table: %w", err)
	}
	if err := t.outer.Put(index, m); err != nil {
		return fmt.Errorf("publish unwind table: %w", err)
	}
	return nil
}

// Wait returns when every file added before has its table, after so long, or at Close.
func (t *Tables) Wait(atMost time.Duration) {
	deadline := time.Now().Add(atMost)
	timer := time.AfterFunc(atMost, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.changed.Broadcast()
	})
	defer timer.Stop()
	t.mu.Lock()
	defer t.mu.Unlock()
	for !t.closed && (len(t.queue) > 0 || t.working > 0) && time.Now().Before(deadline) {
		t.changed.Wait()
	}
}

// Stats says what there is now.
func (t *Tables) Stats() Stats {
	t.mu.Lock()
	defer t.mu.Unlock()
	stats := t.stats
	stats.Bytes, stats.Queued = t.bytes, len(t.queue)+t.working
	return stats
}

// Busy tells whether tables are being made, or wait for it.
func (t *Tables) Busy() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.queue) > 0 || t.working > 0
}

// Close stops the workers; a table that is being made is still finished.
func (t *Tables) Close() error {
	t.mu.Lock()
	t.closed = true
	t.changed.Broadcast()
	queue := t.queue
	t.queue = nil
	t.mu.Unlock()
	t.workers.Wait()
	var errs []error
	for _, j := range queue {
		errs = append(errs, j.source.Close())
	}
	return errors.Join(errs...)
}
