package objects

import (
	"cmp"
	"errors"
	"os"
	"slices"
	"strings"

	"github.com/allocscope/allocscope/tracer/heap"
	"github.com/allocscope/allocscope/tracer/heap/glibc"
	"github.com/allocscope/allocscope/tracer/heap/pymalloc"
	"github.com/allocscope/allocscope/tracer/hostile"
	"github.com/allocscope/allocscope/tracer/liveness"
	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/process"
)

const (
	wordSize   = 8
	pieceBytes = hostile.MaxBytes
	// maxAddress bounds the addresses that are believed: user space has 47 bits on x86-64 and 48 on
	// arm64, unless a program asks for more.
	maxAddress = 1 << 48
	maxItems   = 1 << 40 // of a container, in counts that are believed

	// windowBytes is the unit in which anonymous memory is bulk or not. It is a multiple of every
	// pool, and no larger than twice the smallest table that has a mapping of its own.
	windowBytes = 256 << 10
	// minBulk is the size of the smallest part of a window that is checked; minLarge the size of
	// the smallest chunk.
	minBulk, minLarge = 32 << 10, 64 << 10
	// minPointers is the number of words in one probe that lead to objects, from which on memory
	// is no bulk. Random words hit some GiB of 2^64 never; tables and objects have dozens.
	minPointers = 2
	// minLowPointers is the same for words that may be floats: they lead to a heap below 4 GiB.
	minLowPointers = 8
	// A probe is made of each so many bytes, within limits.
	probedBytes, minProbes, maxProbes = 64 << 10, 3, 64
	probeBytes                        = 1024
	probesAtOnce                      = 4096
)

// A region is memory of one kind.
type region struct {
	mem.Span
	kind regionKind
}

// A regionKind is how the blocks of a region are found.
type regionKind uint8

const (
	// regionAnonymous has pools, chunks with mappings of their own, and anything else.
	regionAnonymous regionKind = iota
	// regionHeap is a heap of glibc: a chain of chunks.
	regionHeap
	// regionStatic has the variables of a file.
	regionStatic
	// regionStack is the live part of a thread's stack.
	regionStack
	// regionOther has words and no blocks: shared memory, and pages of files that the process has
	// changed. regionCode has words at any byte.
	regionOther
	regionCode
)

// A reader is a process.Memory, or a forged one in tests.
type reader interface {
	mem.Reader
	PeekPages(address uint64, buffer []byte) (present []bool, err error)
	PeekPagesAt(addresses []uint64, buffer []byte) (present []bool, err error)
	PeekBlocks(b hostile.Blocks, buffer []byte) (pages []uint64, err error)
}

// A memory is the part of a process that is searched: its private, writable memory that is in RAM
// and no bulk data. It is of one moment; the process goes on meanwhile.
type memory struct {
	process *process.Process
	reader  reader
	maps    []process.Mapping
	regions []region        // in the order of their addresses
	spans   mem.Spans       // of the regions, whole pages
	parts   []part          // of the spans, in the same order
	cached  map[uint64]bool // chunks of malloc that are free, by their headers in use
	// poolSize is the size of a pool of pymalloc. Without Python nothing looks like a pool.
	poolSize uint64
	buffer   []byte
	mmapped  []block           // chunks with a mapping of their own, that are known so far, in order
	without  mem.Span          // the last memory that was searched back, and in which none begins
	inside   []part            // whole pages of large chunks of heaps, in use, that were not read
	others   heap.Blocks       // of another malloc than glibc's; nil: it shows none
	frames   mem.Spans         // variables of running functions: they are no bulk
	budget   *budget           // of the census or search
	prepare  func([]*piece)    // before these are visited; nil: nothing is done
	pools    map[uint64]uint64 // how many probes of a window, by its number, have met pools
	bulk     uint64            // bytes that are left out
	read     uint64            // bytes that were read
	// areObjects are words that were checked, and whether they lead to objects of CPython.
	areObjects map[uint64]bool
}

// newMemory returns the memory of a process, of which find finds the part of maps that is searched.
func newMemory(p *process.Process, r reader) *memory {
	return &memory{
		process:  p,
		reader:   r,
		poolSize: pymalloc.MaxPoolSize,
		pools:    make(map[uint64]uint64),
		buffer:   make([]byte, pieceBytes),
	}
}

// find finds the memory of the process that is worth a search. others are the regions of roots.
func (m *memory) find(heaps liveness.Heaps, others []region) error {
	m.noteMmapped(heaps)
	m.findRegions(heaps.Spans, others)
	if err := m.findResident(); err != nil {
		return err
	}

	if err := m.leaveOutBulk(); err != nil {
		return err
	}
	m.findParts()
	if m.spans.Len() <= maxNumbered {
		return nil
	}
	return m.leaveOutInside()
}

// findBlocks finds the regions alone, in which blocks are: a sweep reads all memory, and needs not
// know which part of it has pointers.
func (m *memory) findBlocks(heaps liveness.Heaps, others []region) error {
	m.noteMmapped(heaps)
	m.findRegions(heaps.Spans, others)
	return nil
}

// noteMmapped notes the chunks with a mapping of their own that are known.
func (m *memory) noteMmapped(heaps liveness.Heaps) {
	for _, s := range heaps.Mapped {
		m.mmapped = append(m.mmapped, block{glibc.UserOf(s), blockMmapped})
	}
}

// findRegions divides the writable, private memory: first come the regions of roots, then the heaps
// of glibc, and the rest is anonymous memory.
func (m *memory) findRegions(heaps []mem.Span, others []region) {
	candidates := slices.Clone(others)
	var taken []mem.Span
	for _, r := range others {
		taken = append(taken, r.Span)
	}
	for _, s := range heaps {
		candidates = append(candidates, region{s, regionHeap})
		taken = append(taken, s)
	}

	var anonymous []mem.Span
	for _, v := range m.maps {
		isOwn := v.Read && v.Write && !v.Shared && !strings.HasPrefix(v.Path, "/dev/")
		if isOwn && !v.IsFile() && v.Path != "[stack]" {
			anonymous = append(anonymous, mem.Span{Start: v.Start, End: v.End})
		}
	}

	for _, s := range mem.MergeSpans(anonymous).Subtract(mem.MergeSpans(taken)) {
		candidates = append(candidates, region{s, regionAnonymous})
	}

	m.regions = disjoint(candidates)
}

// findResident finds the pages of the regions that are in RAM. To read others would bring them back
// from swap, or allocate them.
func (m *memory) findResident() error {
	pagemap, err := m.process.OpenPagemap()
	if err != nil {
		return err
	}
	defer pagemap.Close()
	pagemap.SetMappings(m.maps)

	var resident []mem.Span
	var runs []mem.Run
	for _, r := range m.regions {
		whole, round := wholePages(r.Span), uint64(pymalloc.MaxPoolSize)
		if r.kind == regionHeap {
			round = windowBytes
		}
		runs, err = pagemap.AnonymousRuns(runs[:0], whole.Start, whole.End)
		if errors.Is(err, os.ErrNotExist) {
			return err
		}
		for _, run := range runs {
			if run.Swapped {
				continue
			}
			// Whole pools, of which some pages may not have been touched. Nor have all pages of a
			// heap: its chunks go on behind them.
			resident = append(resident, mem.Span{
				Start: max(whole.Start, mem.AlignDown(run.Start, round)),
				End:   min(whole.End, mem.AlignUp(run.End, round)),
			})
		}
	}

	m.spans = mem.MergeSpans(resident)
	return nil
}

// disjoint sorts regions, and takes from each the part that is in one before. The stacks of two
// threads overlap if one thread runs on the stack of the other.
func disjoint(regions []region) (apart []region) {
	slices.SortFunc(regions, func(a, b region) int { return cmp.Compare(a.Start, b.Start) })
	end := uint64(0)
	for _, r := range regions {
		r.Start = max(r.Start, end)
		if r.Start < r.End {
			apart, end = append(apart, r), r.End
		}
	}
	return apart
}

// wholePages widens a range to whole pages.
func wholePages(s mem.Span) mem.Span {
	return mem.Span{
		Start: s.Start &^ (process.PageSize - 1), End: mem.AlignUp(s.End, process.PageSize),
	}
}

// divide returns the parts of a range between multiples of a size.
func divide(s mem.Span, size uint64) (parts []mem.Span) {
	for at := s.Start; at < s.End; {
		end := min(s.End, at&^(size-1)+size)
		parts = append(parts, mem.Span{Start: at, End: end})
		at = end
	}
	return parts
}

// lastAt returns the index of the last item that starts at an address or before; -1: there is none.
// The items are in the order of their starts.
func lastAt[T any](items []T, address uint64, startOf func(T) uint64) int {
	i, found := slices.BinarySearchFunc(items, address, func(item T, a uint64) int {
		return cmp.Compare(startOf(item), a)
	})
	if found {
		return i
	}
	return i - 1
}

// readAround reads a range that need not begin or end with a page; nil: its first page is not in
// RAM.
func (m *memory) readAround(start, size uint64) []byte {
	whole := wholePages(mem.Span{Start: start, End: start + size})
	content := make([]byte, whole.Len())
	present, err := m.reader.PeekPages(whole.Start, content)
	if err != nil || !present[0] {
		return nil
	}
	return content[start-whole.Start:][:size:size]
}

// isMapped reports whether an address is in memory that a pointer to an object or to code leads to.
func (m *memory) isMapped(address uint64) bool {
	v, ok := process.FindMapping(m.maps, address)
	return ok && v.Read
}

// A piece is memory of a region that was read at once: whole pages.
type piece struct {
	mem.Piece
	memory *memory
	region region
	// chunks of a heap that begin in the piece or before, in order; of a heap only. The inside of a
	// large chunk has none.
	chunks []glibc.Chunk
	pools  map[uint64]*pymalloc.Pool
}

// A part is memory of a region that becomes one piece.
type part struct {
	mem.Span
	region int // index
}

// findParts divides the spans into parts: of anonymous memory, none crosses the border of a window.
func (m *memory) findParts() {
	// Whether a window is read is drawn by its address. So a part of anonymous memory lies within
	// one.
	next := 0 // the first span that may be in a region
	for i, r := range m.regions {
		size := uint64(pieceBytes)
		if r.kind == regionAnonymous {
			size = windowBytes
		}

		whole := wholePages(r.Span)
		for next < len(m.spans) && m.spans[next].End <= whole.Start {
			next++
		}
		for _, s := range m.spans[next:] {
			if s.Start >= whole.End {
				break
			}
			within := mem.Span{Start: max(whole.Start, s.Start), End: min(whole.End, s.End)}
			for _, p := range divide(within, size) {
				m.parts = append(m.parts, part{p, i})
			}
		}
	}
}

// each reads all memory, and calls visit for each piece. Its bytes are valid until visit returns.
// choose reports which windows of anonymous memory are read; nil: all. The error is errLate when
// the time is used up.
func (m *memory) each(choose func(mem.Span) bool, visit func(*piece) error) error {
	reading := batchReader{memory: m, visit: visit}
	for _, p := range m.parts {
		kind := m.regions[p.region].kind
		if kind == regionHeap || kind == regionAnonymous && choose != nil && !choose(p.Span) {
			continue
		}
		if err := reading.add(p); err != nil {
			return err
		}
	}

	if err := m.eachOfHeaps(visit); err != nil {
		return err
	}
	left, err := m.insideWithPointers()
	if err != nil {
		return err
	}
	for _, p := range left {
		if err := reading.add(p); err != nil {
			return err
		}
	}
	return reading.flush()
}

// A batchReader reads several parts at once.
type batchReader struct {
	memory *memory
	visit  func(*piece) error
	batch  []part
	bytes  uint64
}

// add adds a part, of at most pieceBytes, to the batch.
func (r *batchReader) add(p part) error {
	if r.bytes+p.Len() > pieceBytes {
		if err := r.flush(); err != nil {
			return err
		}
	}
	r.batch, r.bytes = append(r.batch, p), r.bytes+p.Len()
	return nil
}

// flush reads the parts of the batch by one call: a process has thousands of small regions.
func (r *batchReader) flush() error {
	m := r.memory
	addresses := make([]uint64, 0, r.bytes/process.PageSize)
	for _, p := range r.batch {
		for at := p.Start; at < p.End; at += process.PageSize {
			addresses = append(addresses, at)
		}
	}

	if len(addresses) == 0 {
		return nil
	}
	if m.budget.check() {
		return errLate
	}

	present, err := m.reader.PeekPagesAt(addresses, m.buffer[:r.bytes])
	if err != nil {
		return err
	}

	m.read += r.bytes
	content := m.buffer
	read := make([]*piece, len(r.batch))
	for i, part := range r.batch {
		n := part.Len()
		read[i] = &piece{
			Piece: mem.Piece{
				Start: part.Start, Bytes: content[:n:n], Present: present[:n/process.PageSize],
			},
			memory: m, region: m.regions[part.region],
		}
		content, present = content[n:], present[n/process.PageSize:]
	}

	r.batch, r.bytes = r.batch[:0], 0
	return visitAll(m, read, r.visit)
}

// visitAll prepares some pieces of a memory, and visits them.
func visitAll(m *memory, pieces []*piece, visit func(*piece) error) error {
	if m.prepare != nil {
		m.prepare(pieces)
	}
	for _, p := range pieces {
		if err := visit(p); err != nil {
			return err
		}
	}
	return nil
}

// readPiece reads whole pages of a region, into the buffer.
func (m *memory) readPiece(s mem.Span, r region) (*piece, error) {
	buffer := m.buffer[:s.Len()]
	present, err := m.reader.PeekPages(s.Start, buffer)
	if err != nil {
		return nil, err
	}

	m.read += s.Len()
	return &piece{
		Piece: mem.Piece{Start: s.Start, Bytes: buffer, Present: present}, memory: m, region: r,
	}, nil
}

// regionAt returns the region of an address.
func (m *memory) regionAt(address uint64) (region, bool) {
	i := lastAt(m.regions, address, func(r region) uint64 { return r.Start })
	if i < 0 || address >= m.regions[i].End {
		return region{}, false
	}
	return m.regions[i], true
}
