package unwind

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/symbol"
)

// maxTableBytes bounds the kernel memory of all tables. The tables of a PyTorch process take 21
// MiB.
const maxTableBytes = 256 << 20

// returnedFileBytes is the size of files after whose tables memory is returned to the system. That
// is a garbage collection: a program that loads a small library each second does not pay it each time.
const returnedFileBytes = 32 << 20

// BuildOnce keeps the tables of files of at least 1 MiB for later sessions of the program. Tests set
// it: they trace PyTorch, whose tables take a second of CPU, in a hundred sessions.
var BuildOnce bool

const minKeptFileBytes = 1 << 20

// kept has these tables, by Identity.
var kept sync.Map

// ErrFull means that there is no room for another table.
var ErrFull = errors.New("too many unwind tables")

// Tables builds unwind tables and keeps them in the kernel, one for each file, however many
// processes map it. Files wait in a queue: urgent ones first, then small ones before large ones.
// Until a file has its table, stacks end in it.
type Tables struct {
	outer *ebpf.Map // index -> table
	inner *ebpf.MapSpec
	cache *Cache

	mu      sync.Mutex
	changed *sync.Cond // the queue, working or closed
	known   map[Identity]uint32
	queue   []job
	working int   // workers that build a table
	bytes   int   // of kernel memory
	parsed  int64 // bytes of the files that were parsed since memory was returned
	closed  bool

	// generations begins at random: a process that knew the numbers could choose addresses whose
	// keys in the caches belong to another one.
	generations uint64
	stats       Stats
	workers     sync.WaitGroup
}

// Stats counts the entries of the tables.
type Stats struct {
	Files       int // with a table
	WithoutInfo int // without unwind information, or unreadable
	Dropped     int // without a table, because there was no room for one
	Rows        int
	Bytes       int // of kernel memory
	Queued      int // whose table is still to be built
}

// An Identity tells files apart. The build ID alone would not do: a process could have the stacks of
// others go by the table of a file of its own, which says that it is their library.
type Identity struct {
	BuildID       string // may be empty
	Device, Inode uint64 // 0: the kernel's own code
	Size          int64  // bytes
}

// A Source reads the contents of a file. It is closed once they have been read.
type Source interface {
	io.ReaderAt
	io.Closer
}

// A job is a file whose table is to be built.
type job struct {
	index  uint32
	id     Identity
	source Source
	path   string
	urgent bool
}

// precedes orders the queue.
func (j job) precedes(other job) bool {
	if j.urgent != other.urgent {
		return j.urgent
	}
	return j.id.Size < other.id.Size
}

// NewTables starts the workers. outer is the kernel's map of tables, inner the specification of a
// table in it. cache has tables of earlier traces; nil: none. Close closes it.
func NewTables(outer *ebpf.Map, inner *ebpf.MapSpec, cache *Cache) *Tables {
	t := &Tables{
		outer: outer, inner: inner, cache: cache,
		known: make(map[Identity]uint32), generations: rand.Uint64(),
	}
	t.changed = sync.NewCond(&t.mu)
	for range min(4, runtime.GOMAXPROCS(0)) {
		t.workers.Go(t.work)
	}

	return t
}

// Add returns the index of the table of a file. The kernel has the table as soon as it is built.
// open is called only for a file that is not known yet. The error is ErrFull or comes from open.
func (t *Tables) Add(
	id Identity,
	path string,
	urgent bool,
	open func() (Source, error),
) (uint32, error) {
	t.mu.Lock()
	defer t.mu.Unlock()

	if index, ok := t.known[id]; ok {
		return index, nil
	}

	index := uint32(len(t.known) + 1) // 0 is no table
	if index >= t.outer.MaxEntries() || t.bytes >= maxTableBytes {
		t.stats.Dropped++
		return 0, ErrFull
	}

	source, err := open()
	if err != nil {
		return 0, err
	}

	t.known[id] = index
	t.queue = append(t.queue, job{index, id, source, path, urgent})
	t.changed.Broadcast()
	return index, nil
}

// Prioritize makes a file urgent, because stacks lead through it already.
func (t *Tables) Prioritize(index uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()

	for i := range t.queue {
		if t.queue[i].index == index {
			t.queue[i].urgent = true
		}
	}
}

// nextGeneration returns a number that was not returned before, for a state of some process's
// mappings.
func (t *Tables) nextGeneration() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()

	t.generations++
	return t.generations
}

// work builds tables until Close.
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

		next := t.dequeue()
		t.working++

		t.mu.Unlock()
		table, parsed := next.build(t.cache)
		err := t.put(next.index, table)

		t.mu.Lock()

		t.working--
		if parsed {
			t.parsed += next.id.Size
		}
		t.count(table, err)
		t.changed.Broadcast()

		if len(t.queue) == 0 && t.working == 0 && t.parsed >= returnedFileBytes {
			t.parsed = 0
			debug.FreeOSMemory() // the largest files take some 100 MB to parse
		}
	}
}

func (t *Tables) dequeue() job {
	first := 0
	for i, j := range t.queue {
		if j.precedes(t.queue[first]) {
			first = i
		}
	}

	next := t.queue[first]
	t.queue = append(t.queue[:first], t.queue[first+1:]...)
	return next
}

// build reads the file. A file without readable unwind information gets a table without pages,
// with which the BPF programs follow frame pointers. parsed reports that no cache had the table.
func (j job) build(cache *Cache) (table *Table, parsed bool) {
	defer j.source.Close()
	if table, ok := kept.Load(j.id); ok {
		return table.(*Table), false
	}

	table, cached, err := cache.Build(j.source, j.id.Size, j.path)
	if err != nil {
		return &Table{Words: make([]uint64, headerWords/2)}, true // frame pointers may serve
	}

	if BuildOnce && j.id.Size >= minKeptFileBytes {
		kept.Store(j.id, table)
	}
	return table, !cached
}

// count adds a table to the statistics. err is why the kernel did not take it.
func (t *Tables) count(table *Table, err error) {
	switch {
	case err != nil:
		t.stats.Dropped++
	case table.Rows == 0:
		t.stats.WithoutInfo++
	default:
		t.stats.Files++
		t.stats.Rows += table.Rows
	}

	if err == nil {
		t.bytes += roundToPage(8 * len(table.Words))
	}
}

func roundToPage(bytes int) int {
	page := int(process.PageSize)
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
	defer m.Close() // the outer map keeps it alive

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

// wordBytes returns the memory of words, in the byte order of this machine, which the BPF
// programs use.
func wordBytes(words []uint64) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), 8*len(words))
}

// Wait returns when every file added before has its table, when ctx ends, after the timeout, or at
// Close.
func (t *Tables) Wait(ctx context.Context, timeout time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()

	stop := context.AfterFunc(ctx, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.changed.Broadcast()
	})
	defer stop()

	t.mu.Lock()
	defer t.mu.Unlock()
	for !t.closed && (len(t.queue) > 0 || t.working > 0) && ctx.Err() == nil {
		t.changed.Wait()
	}
}

// Stats returns the current counts.
func (t *Tables) Stats() Stats {
	t.mu.Lock()
	defer t.mu.Unlock()

	stats := t.stats
	stats.Bytes, stats.Queued = t.bytes, len(t.queue)+t.working
	return stats
}

// Busy reports whether tables are being built or queued.
func (t *Tables) Busy() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.queue) > 0 || t.working > 0
}

// Close stops the workers. Tables that are being built are finished, queued ones are not.
func (t *Tables) Close() error {
	t.mu.Lock()
	t.closed = true
	t.changed.Broadcast()
	queue := t.queue
	t.queue = nil
	t.mu.Unlock()

	t.workers.Wait()
	t.cache.Close()
	var errs []error
	for _, j := range queue {
		errs = append(errs, j.source.Close())
	}

	return errors.Join(errs...)
}

// An AddressSpace hands the executable mappings of a process to the kernel, each with its unwind
// table.
type AddressSpace struct {
	process   *process.Process
	tables    *Tables
	outer     *ebpf.Map // process -> mappings
	inner     *ebpf.MapSpec
	files     map[process.FileID]file // seen so far
	vdso      uint32                  // index of its table; 0: not added yet, or not readable
	sent      []bpf.Mapping
	dropped   atomic.Int64
	codeFiles atomic.Int64 // that have been mapped

	publishing sync.WaitGroup // of the call that publishes the newest mappings
}

// A file has the data that the mappings of a file share.
type file struct {
	table   uint32       // index; 0: none
	headers *symbol.File // nil: not a readable ELF file
	// isGreenlet is set for the library of greenlet, which switches the stacks of a thread.
	isGreenlet bool
}

// NewAddressSpace is for one process. outer is the kernel's map of processes, inner the
// specification of one process's mappings in it.
func NewAddressSpace(p *process.Process, tables *Tables, outer *ebpf.Map, inner *ebpf.MapSpec) *AddressSpace {
	return &AddressSpace{
		process: p,
		tables:  tables,
		outer:   outer,
		inner:   inner,
		files:   make(map[process.FileID]file),
	}
}

// Update sends maps to the kernel unless it has them already. New files are queued for their
// tables; urgent reports which mappings need theirs first. interpreter is a mapping of the file
// with Python's evaluation loop, the zero Mapping if there is none.
func (s *AddressSpace) Update(
	maps []process.Mapping,
	interpreter process.Mapping,
	urgent func(process.Mapping) bool,
) error {
	entries := make([]bpf.Mapping, 1, 64) // the first one is the header
	dropped := 0
	for _, m := range maps {
		if !m.Execute || m.Path == "[uprobes]" || m.Path == "[vsyscall]" {
			continue
		}

		if len(entries) > bpf.MaxMappings {
			dropped++
			continue
		}

		entry := s.entry(m, urgent(m))
		if m.IsFile() && m.File() == interpreter.File() &&
			entry.Kind == bpf.MappingTable {
			entry.Kind = bpf.MappingInterpreter
		}

		entries = append(entries, entry)
	}

	s.dropped.Store(int64(dropped))
	if len(s.sent) > 0 && slices.Equal(entries[1:], s.sent[1:]) {
		return nil
	}

	entries[0].Start, entries[0].Bias = uint64(len(entries)-1), s.tables.nextGeneration()
	if err := s.send(entries); err != nil {
		return err
	}

	s.sent = entries
	return nil
}

// Dropped is the number of executable mappings beyond bpf.MaxMappings at the last Update.
func (s *AddressSpace) Dropped() int64 { return s.dropped.Load() }

// CodeFiles is the number of executable files that Update has seen mapped.
func (s *AddressSpace) CodeFiles() int64 { return s.codeFiles.Load() }

// entry describes one mapping. Code outside ELF files can only be unwound by frame pointers.
func (s *AddressSpace) entry(m process.Mapping, urgent bool) bpf.Mapping {
	entry := bpf.Mapping{
		Start: m.Start,
		End:   m.End,
		Kind:  bpf.MappingAnonymous,
	}

	if m.Path == "[vdso]" {
		if s.vdso == 0 {
			s.vdso, _ = s.tables.addVDSO() // frame pointers serve without it
		}

		if s.vdso != 0 { // the image is linked to address 0
			entry.Kind = bpf.MappingTable
			entry.Table, entry.Bias = s.vdso, m.Start
		}

		return entry
	}

	if !m.IsFile() {
		return entry
	}

	f, known := s.files[m.File()]
	if !known {
		f = s.addFile(m, urgent)
		s.files[m.File()] = f
		s.codeFiles.Add(1)
	}

	if f.headers == nil {
		return entry
	}

	if bias, ok := f.headers.Bias(m.Start, m.Offset); ok {
		entry.Kind, entry.Table, entry.Bias = bpf.MappingTable, f.table, bias
		if f.isGreenlet {
			entry.Kind = bpf.MappingGreenlet
		}
	}

	return entry
}

// addFile opens the file of a mapping and adds it to the tables.
func (s *AddressSpace) addFile(m process.Mapping, urgent bool) file {
	opened, err := s.process.OpenMapped(m)
	if err != nil {
		return file{}
	}

	headers, err := symbol.Open(opened, m.Path)
	if err != nil {
		opened.Close()
		return file{}
	}

	id := Identity{headers.BuildID(), opened.Device, opened.Inode, opened.Size()}
	queued := false // then the tables close it
	index, _ := s.tables.Add(
		id,
		m.Path,
		urgent,
		func() (Source, error) { // ErrFull is counted in Stats
			queued = true
			return opened, nil
		},
	)

	if !queued {
		opened.Close()
	}

	_, isGreenlet := headers.Export("PyInit__greenlet")
	return file{table: index, headers: headers, isGreenlet: isGreenlet}
}

// send replaces the mappings of the process in the kernel, all at once.
func (s *AddressSpace) send(entries []bpf.Mapping) error {
	spec := s.inner.Copy()
	spec.MaxEntries = uint32(len(entries))
	m, err := ebpf.NewMap(spec)
	if err != nil {
		return fmt.Errorf("create map of %d mappings: %w", len(entries), err)
	}

	keys := make([]uint32, len(entries))
	for i := range keys {
		keys[i] = uint32(i)
	}

	if _, err := m.BatchUpdate(keys, entries, nil); err != nil {
		return errors.Join(fmt.Errorf("write mappings: %w", err), m.Close())
	}
	if err := s.publish(m); err != nil {
		return fmt.Errorf("publish mappings of pid %d: %w", s.process.PID, err)
	}

	return nil
}

// publish puts the mappings into the kernel's map, and takes them over. It returns once the BPF
// programs find them. The kernel has the call itself wait for some 10 ms, until the programs have
// ended that may have found the earlier ones (maybe_wait_bpf_programs of kernel/bpf/syscall.c).
func (s *AddressSpace) publish(mappings *ebpf.Map) error {
	s.publishing.Wait()
	var wanted ebpf.MapID
	info, err := mappings.Info()
	if err == nil {
		wanted, _ = info.ID()
	}

	key, ended := uint32(s.process.PID), make(chan error, 1)
	s.publishing.Go(func() { ended <- errors.Join(s.outer.Put(key, mappings), mappings.Close()) })
	for {
		select {
		case err := <-ended:
			return err
		case <-time.After(publishedPoll):
		}
		var found ebpf.MapID
		if wanted != 0 && s.outer.Lookup(key, &found) == nil && found == wanted {
			return nil
		}
	}
}

// publishedPoll is the time between two readings of whether mappings are there: less than a thread
// takes to begin its call.
const publishedPoll = 50 * time.Microsecond

// Close waits for the calls of the kernel that have not returned.
func (s *AddressSpace) Close() { s.publishing.Wait() }

// addVDSO adds the code that the kernel maps into every process. This process's copy serves for
// all.
func (t *Tables) addVDSO() (index uint32, err error) {
	image, err := readVDSO()
	if err != nil {
		return 0, err
	}
	return t.Add(
		Identity{BuildID: "[vdso]", Size: int64(len(image))},
		"[vdso]",
		true,
		func() (Source, error) {
			return struct {
				io.ReaderAt
				io.Closer
			}{bytes.NewReader(image), io.NopCloser(nil)}, nil
		},
	)
}

// readVDSO reads the image of the vDSO from the memory of this process.
func readVDSO() ([]byte, error) {
	raw, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return nil, fmt.Errorf("find vdso: %w", err)
	}

	maps, err := process.ParseMaps(raw)
	if err != nil {
		return nil, fmt.Errorf("find vdso: %w", err)
	}

	at := slices.IndexFunc(maps,
		func(m process.Mapping) bool { return strings.HasPrefix(m.Path, "[vdso]") })

	if at < 0 {
		return nil, errors.New("find vdso: not mapped")
	}

	memory, err := os.Open("/proc/self/mem")
	if err != nil {
		return nil, fmt.Errorf("read vdso: %w", err)
	}
	defer memory.Close()

	image := make([]byte, maps[at].Len())
	if _, err := memory.ReadAt(image, int64(maps[at].Start)); err != nil {
		return nil, fmt.Errorf("read vdso: %w", err)
	}

	return image, nil
}
