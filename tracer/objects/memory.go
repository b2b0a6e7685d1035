package objects

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"slices"
	"strings"

	"github.com/allocscope/allocscope/tracer/hostile"
	"github.com/allocscope/allocscope/tracer/liveness"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/residency/pages"
)

const (
	wordSize   = 8
	pieceBytes = hostile.MaxBytes
	maxAddress = 1 << 47 // of user space, in what is believed

	// maxPoolSize is the size of the largest pools.
	maxPoolSize = 16 << 10
	// windowBytes is the unit in which memory is bulk or not. It is a multiple of every pool.
	windowBytes = 256 << 10
	// minBulk is the size of the smallest part of a window that is looked at.
	minBulk = 32 << 10
	// minPointers is the number of words of one page that lead to objects, from which on memory
	// is no bulk. Random words hit some GiB of 2^64 never; tables and objects have dozens.
	minPointers = 2
	// probedPages is the number of pages of a window that are read to tell whether it is bulk.
	probedPages = 4
)

// A region is memory of one kind.
type region struct {
	pages.Span
	kind regionKind
}

// A regionKind tells how the blocks of a region are found.
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
)

// A memory is what of a process is searched: its private, writable memory that is in RAM and no bulk
// data. It is of one moment; the process goes on meanwhile.
type memory struct {
	process *process.Process
	maps    []process.Mapping
	regions []region        // in the order of their addresses
	spans   pages.Spans     // of the regions, whole pages
	cached  map[uint64]bool // chunks of malloc that are free, by their headers in use
	buffer  []byte
	mmapped []block         // that were found so far, in order
	others  liveness.Blocks // of jemalloc or mimalloc; nil: neither is the malloc
	bulk    uint64          // bytes that are left out
	read    uint64          // bytes that were read
}

// errStop ends a pass without an error.
var errStop = errors.New("stop")

// findMemory finds the memory of a process that is worth a search.
func findMemory(
	p *process.Process, maps []process.Mapping, heaps liveness.Heaps, others []region,
) (*memory, error) {
	m := &memory{process: p, maps: maps, cached: heaps.Cached, buffer: make([]byte, pieceBytes)}
	pagemap, err := p.OpenPagemap()
	if err != nil {
		return nil, err
	}
	defer pagemap.Close()

	isOther := make(map[uint64]bool)
	for _, r := range others {
		isOther[r.Start] = true
	}
	var candidates []region
	var taken []pages.Span
	for _, r := range others {
		candidates = append(candidates, r)
		taken = append(taken, r.Span)
	}
	for _, s := range heaps.Spans {
		candidates = append(candidates, region{s, regionHeap})
		taken = append(taken, s)
	}
	var anonymous []pages.Span
	for _, v := range maps {
		isOwn := v.Read && v.Write && !v.Shared && !strings.HasPrefix(v.Path, "/dev/")
		if isOwn && !v.IsFile() && v.Path != "[stack]" {
			anonymous = append(anonymous, pages.Span{Start: v.Start, End: v.End})
		}
	}
	for _, s := range pages.MergeSpans(anonymous).Subtract(pages.MergeSpans(slices.Clone(taken))) {
		candidates = append(candidates, region{s, regionAnonymous})
	}
	slices.SortFunc(candidates, func(a, b region) int { return compareAddresses(a.Start, b.Start) })

	m.regions = candidates
	var resident []pages.Span
	var runs []process.PageRun
	for _, r := range candidates {
		start, end := r.Start&^(process.PageSize-1), roundUp(r.End, process.PageSize)
		runs, err = pagemap.AnonymousRuns(runs[:0], start, end)
		if errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		for _, run := range runs {
			if !run.Swapped { // whole pools, of which some pages may not have been touched
				resident = append(resident, pages.Span{
					Start: max(start, run.Start&^(maxPoolSize-1)), End: min(end, roundUp(run.End, maxPoolSize)),
				})
			}
		}
	}
	m.spans = pages.MergeSpans(resident)
	return m, m.leaveOutBulk()
}

func compareAddresses(a, b uint64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func roundUp(n, to uint64) uint64 { return (n + to - 1) &^ (to - 1) }

// leaveOutBulk takes the windows without pointers out of the spans: tensors, images, arrays.
func (m *memory) leaveOutBulk() error {
	var probes []uint64
	var bulk []pages.Span
	page := process.PageSize
	var windows []pages.Span
	flush := func() error {
		contents, err := m.process.Peek(probes, int(min(page, 4096)))
		if err != nil {
			return err
		}
		for i, w := range windows {
			found := contents[i*probedPages:][:probedPages]
			if !slices.ContainsFunc(found, m.hasPointers) {
				bulk = append(bulk, w)
				m.bulk += w.Len()
			}
		}
		probes, windows = probes[:0], windows[:0]
		return nil
	}
	for _, s := range m.spans {
		for at := s.Start; at < s.End; {
			end := min(s.End, at&^(windowBytes-1)+windowBytes)
			if w := (pages.Span{Start: at, End: end}); w.Len() >= minBulk {
				windows = append(windows, w)
				for i := range uint64(probedPages) {
					probes = append(probes, (at+w.Len()*(2*i+1)/(2*probedPages))&^(page-1))
				}
			}
			at = end
			if len(windows) == 1024 {
				if err := flush(); err != nil {
					return err
				}
			}
		}
	}
	if err := flush(); err != nil {
		return err
	}
	m.spans = m.spans.Subtract(pages.MergeSpans(bulk))
	return nil
}

// hasPointers reports whether a page has words that lead to memory that may have objects.
func (m *memory) hasPointers(page []byte) bool {
	n := 0
	for i := 0; i+wordSize <= len(page); i += wordSize {
		w := binary.LittleEndian.Uint64(page[i:])
		if w%wordSize == 0 && w > process.PageSize && w < maxAddress && m.isMapped(w) {
			if n++; n >= minPointers {
				return true
			}
		}
	}
	return false
}

// isMapped reports whether an address is in memory that a pointer to an object or to code leads to.
func (m *memory) isMapped(address uint64) bool {
	v, ok := process.FindMapping(m.maps, address)
	return ok && v.Read
}

// A piece is memory that was read at once: whole pages.
type piece struct {
	start   uint64
	bytes   []byte
	present []bool // of the pages: which were in RAM
	memory  *memory
	region  region
	// chunks of a heap that begin in the piece or before, in order; of a heap only.
	chunks []chunk
	// skipped are chunks of the heap that begin in memory that was left out before the piece.
	skipped []chunk
	pools   map[uint64]*pool
}

func (p *piece) end() uint64 { return p.start + uint64(len(p.bytes)) }

// at returns the bytes from an address on; nil: not n of them are in the piece.
func (p *piece) at(address, n uint64) []byte {
	offset := address - p.start
	if address < p.start || offset+n > uint64(len(p.bytes)) || offset+n < offset {
		return nil
	}
	return p.bytes[offset : offset+n]
}

func word(b []byte, offset uint64) uint64 { return binary.LittleEndian.Uint64(b[offset:]) }

// each reads all memory, in the order of the addresses, and calls visit for each piece. Its bytes are
// valid until visit returns. choose tells which pieces are read; nil: all.
func (m *memory) each(
	ctx context.Context, choose func(pages.Span) bool, visit func(*piece) error,
) error {
	for _, r := range m.regions {
		inside := pages.Spans{{Start: r.Start &^ (process.PageSize - 1), End: roundUp(r.End, process.PageSize)}}
		var chain *chunkChain
		if r.kind == regionHeap {
			chain = &chunkChain{memory: m, heap: r.Span, at: r.Start}
		}
		for _, s := range m.spans.Intersect(inside) {
			for at := s.Start; at < s.End; {
				end := min(s.End, at&^(pieceBytes-1)+pieceBytes)
				if choose != nil && r.kind == regionAnonymous {
					end = min(s.End, at&^(windowBytes-1)+windowBytes)
				}
				span := pages.Span{Start: at, End: end}
				at = end
				if choose != nil && r.kind == regionAnonymous && !choose(span) {
					continue
				}
				if err := ctx.Err(); err != nil {
					return err
				}
				p, err := m.readPiece(span, r)
				if err != nil {
					return err
				}
				if chain != nil {
					chain.through(p)
				}
				if err := visit(p); err != nil {
					return err
				}
			}
		}
		if chain == nil {
			continue
		}
		p := &piece{start: r.End, memory: m, region: r} // what was left out at the end
		if chain.through(p); len(p.skipped) > 0 {
			if err := visit(p); err != nil {
				return err
			}
		}
	}
	return nil
}

func (m *memory) readPiece(s pages.Span, r region) (*piece, error) {
	buffer := m.buffer[:s.Len()]
	present, err := m.process.PeekPages(s.Start, buffer)
	if err != nil {
		return nil, err
	}
	m.read += s.Len()
	return &piece{start: s.Start, bytes: buffer, present: present, memory: m, region: r}, nil
}

// regionAt returns the region of an address.
func (m *memory) regionAt(address uint64) (region, bool) {
	i, found := slices.BinarySearchFunc(m.regions, address, func(r region, a uint64) int {
		return compareAddresses(r.Start, a)
	})
	if !found {
		i--
	}
	if i < 0 || address >= m.regions[i].End {
		return region{}, false
	}
	return m.regions[i], true
}
