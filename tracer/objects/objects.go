// Package objects reads from outside which objects a process has in its memory, and who keeps them.
// It counts the objects of CPython by type, and finds the variable that leads to an object. It sets
// no probe, stops nothing and writes nothing. All memory that it reads is hostile input: any
// contents cost bounded work and yield some answer.
package objects

import (
	"cmp"
	"errors"
	"fmt"
	"hash/maphash"
	"os"
	"slices"
	"time"

	"github.com/allocscope/allocscope/growth/keeper"
	"github.com/allocscope/allocscope/tracer/cpython"
	"github.com/allocscope/allocscope/tracer/heap/glibc"
	"github.com/allocscope/allocscope/tracer/liveness"
	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/objects/interpreter"
	"github.com/allocscope/allocscope/tracer/objects/native"
	"github.com/allocscope/allocscope/tracer/objects/sourcecode"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/python"
)

// A Heap is the memory of a process in which objects are. It is not safe for concurrent use.
type Heap struct {
	process *process.Process
	// Python is the version of the interpreter, such as "3.11"; empty: there is none that is known.
	Python string
	// Traced is how long the program has been traced, and BeforeSweep is called before a sweep
	// reads all memory, which must not take long by the clock; nil: nothing is.
	Traced      time.Duration
	BeforeSweep func()
	// NoPython says why there is none; nil: there is one.
	NoPython error

	python    *interpreter.Runtime // nil: there is none
	version   *cpython.Version     // nil: there is none
	heads     []uint64             // bytes that may lie before an object in its block
	allocator liveness.ProcessAllocator

	source   *sourcecode.Program // nil: it was not read yet
	maxWhole uint64              // the constant, less in tests
	// isStopped: the last search has found who keeps one suspect, and left the others.
	isStopped bool

	// The rest is of one moment: see refresh.
	reader  *process.Memory
	memory  *memory
	pages   *pageCache
	heaps   liveness.Heaps
	roots   *roots
	types   *typeTable    // nil: without Python
	objects *objectReader // nil: without Python
}

// isUnread reports whether there is a CPython whose objects cannot be read: they may be on any way.
func (h *Heap) isUnread() bool { return h.NoPython != nil && !errors.Is(h.NoPython, ErrNoPython) }

// ErrNoPython means that the process has no CPython whose objects can be counted.
var ErrNoPython = errors.New("no CPython in it (" + cpython.Supported +
	", with the GIL, are known)")

// Open opens the memory of a process. It is no error if the process has no Python: see NoPython.
// The caller closes the Heap, and then the process.
func Open(p *process.Process) (*Heap, error) {
	maps, err := p.Maps()
	if err != nil {
		return nil, err
	}
	h := &Heap{process: p, heads: []uint64{0}, maxWhole: maxWhole}
	h.allocator = liveness.AllocatorOf(p, maps)

	found, err := python.Find(p, maps)
	switch {
	case err != nil:
		h.NoPython = err
	case found == nil:
		h.NoPython = ErrNoPython
	default:
		h.python, err = interpreter.Open(heapMemory{h}, found)
		if err != nil {
			h.NoPython = err
			break
		}
		h.Python, h.version = found.Version, h.python.Version()
		h.heads = h.version.Heads()
	}

	return h, nil
}

// Close closes the files opened for memory and for the names of variables.
func (h *Heap) Close() (err error) {
	if h.roots != nil {
		err = h.roots.statics.Close()
	}
	if h.reader != nil {
		err = errors.Join(err, h.reader.Close())
	}
	return err
}

// maxRefreshes is how often the memory is read where heaps change meanwhile.
const maxRefreshes = 5

// A heapMemory reads the interpreter's own objects, by pages that are kept where they are in RAM.
type heapMemory struct{ heap *Heap }

// ReadMemory implements python.Memory.
func (m heapMemory) ReadMemory(address uint64, buffer []byte) error {
	if c := m.heap.pages; c != nil && uint64(len(buffer)) <= process.PageSize {
		if content, ok := c.peek(address, len(buffer)); ok {
			copy(buffer, content)
			return nil
		}
	}
	return m.heap.process.ReadMemory(address, buffer)
}

// Prepare keeps the pages of some addresses.
func (m heapMemory) Prepare(addresses []uint64) {
	c := m.heap.pages
	if c == nil {
		return
	}
	pages := make([]uint64, len(addresses))
	for i, address := range addresses {
		pages[i] = mem.AlignDown(address, process.PageSize)
	}
	slices.Sort(pages)
	for some := range slices.Chunk(slices.Compact(pages), int(bytesAtOnce/process.PageSize)) {
		c.keep(some)
	}
}

func (h *Heap) forgetPages() {
	if h.pages != nil {
		h.pages.forget()
	}
}

// refresh finds the memory of now that is searched for keepers, and the roots in it. Nothing that
// was read before is used again: the process goes on, and moves its objects.
func (h *Heap) refresh() error { return h.refreshBy((*memory).find) }

// refreshBy is refresh with a method that finds what of the memory is searched.
func (h *Heap) refreshBy(find func(*memory, liveness.Heaps, []region) error) error {
	if h.reader != nil {
		_ = h.reader.Close()
	}
	var err error
	if h.reader, err = h.process.OpenMemory(); err != nil {
		return err
	}
	m := newMemory(h.process, h.reader)
	h.pages = newPageCache(m)

	maps, err := h.findHeaps()
	if err != nil {
		return err
	}
	if err := h.findRoots(maps); err != nil {
		return err
	}
	if err := h.readRuntime(); err != nil {
		return err
	}

	blocks, err := h.allocator.Blocks(h.process, maps)
	if errors.Is(err, process.ErrNotFound) {
		return err
	}

	m.maps, m.cached, m.others, m.frames = maps, h.heaps.Cached, blocks, h.roots.frameSpans()
	if h.version != nil {
		m.poolSize = h.version.PoolSize
	}
	if err := find(m, h.heaps, h.roots.regions()); err != nil {
		return err
	}

	h.use(m)
	return nil
}

// findHeaps finds the heaps of glibc, and returns the maps of the same moment. A chain of chunks is
// broken while the heap grows: then both are read again.
func (h *Heap) findHeaps() (maps []process.Mapping, err error) {
	for range maxRefreshes {
		if maps, err = h.process.Maps(); err != nil {
			return nil, err
		}
		h.heaps, err = h.allocator.Heaps(h.process, maps)
		if !errors.Is(err, glibc.ErrBrokenChain) {
			break
		}
	}

	if errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return maps, nil // without heaps, only objects in pools and large chunks are found
}

// findRoots finds the static variables and the stacks of the process.
func (h *Heap) findRoots(maps []process.Mapping) (err error) {
	if h.roots != nil {
		_ = h.roots.statics.Close()
		h.roots = nil
	}
	statics, err := native.Open(h.process, maps)
	if err != nil {
		return err
	}
	h.roots = &roots{statics: statics, storages: make(map[uint64]bool)}
	h.roots.stacks, err = native.Stacks(h.process, maps)
	return err
}

// readRuntime reads the modules and the running frames of Python.
func (h *Heap) readRuntime() error {
	if h.python == nil {
		return nil
	}
	modules, err := h.python.Modules()
	if err != nil {
		return fmt.Errorf("read the modules of Python: %w", err)
	}
	h.roots.modules = make(map[uint64]interpreter.Module, len(modules))
	for _, m := range modules {
		if _, has := h.roots.modules[m.Dict]; !has && m.Dict != 0 {
			h.roots.modules[m.Dict] = m
		}
	}

	frames, err := h.python.Frames()
	if err != nil {
		return fmt.Errorf("read the frames of Python: %w", err)
	}
	slices.SortFunc(frames, func(a, b interpreter.Frame) int {
		return cmp.Compare(a.Locals, b.Locals)
	})
	h.roots.frames = frames
	return nil
}

// use makes the readers of a memory.
func (h *Heap) use(m *memory) {
	h.memory = m
	h.roots.pages = h.pages
	if h.python == nil {
		return
	}

	before, seed := map[uint64]*typeInfo(nil), maphash.MakeSeed()
	if h.types != nil {
		before, seed = h.types.known, h.types.seed
	}
	h.types = &typeTable{
		before: before, seed: seed,
		python:   h.python,
		version:  h.version,
		heads:    h.heads,
		hasHeaps: len(h.heaps.Spans) > 0,
		memory:   m,
		pages:    h.pages,
		known:    make(map[uint64]*typeInfo),
		none:     new(noTypes),
	}

	m.prepare = h.types.prepare
	h.objects = &objectReader{
		python:  h.python,
		version: h.version,
		pages:   h.pages,
		dicts: &dictReader{
			python: h.python, version: h.version, pages: h.pages,
			names: make(map[uint64]keyName),
		},
		types: h.types,
	}
	h.roots.types = h.types
}

// named returns a reference with the name of its key, if it has one.
func (h *Heap) named(r reference) reference {
	if h.objects == nil {
		return r
	}
	return h.objects.dicts.named(r)
}

// collections returns how often the oldest generation has been collected; -1: not known. The
// incremental collector has none.
func (h *Heap) collections() (sum int) {
	collectors := h.collectors()
	for _, c := range collectors {
		if c.IsIncremental {
			return -1
		}
		sum += int(c.Collections)
	}
	if len(collectors) == 0 {
		return -1
	}
	return sum
}

func (h *Heap) collectors() []keeper.Collector {
	if h.python == nil {
		return nil
	}
	h.forgetPages() // the counts of now
	return h.python.Collectors()
}

// waits returns the event that garbage waits for, of which some tracked objects are given. It is
// empty with several interpreters: which of them has the garbage is not known.
func (h *Heap) waits(tracked []uint64) keeper.Wait {
	collectors := h.collectors()
	if len(collectors) != 1 {
		return keeper.Wait{}
	}
	return collectors[0].Waits(h.python.Frozen(tracked), len(tracked))
}

// wholeCollector returns the collector of the only interpreter, where it collects all objects at
// once; nil: it does not, or is not known.
func (h *Heap) wholeCollector() *keeper.Collector {
	collectors := h.collectors()
	if len(collectors) != 1 || collectors[0].HasFrozen || collectors[0].IsIncremental {
		return nil
	}
	return &collectors[0]
}
