package objects

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/allocscope/allocscope/growth/keeper"
	"github.com/allocscope/allocscope/tracer/heap/glibc"
	"github.com/allocscope/allocscope/tracer/hostile"
	"github.com/allocscope/allocscope/tracer/liveness"
	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/objects/native"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// forgedAt is where the memory of the tests lies.
const forgedAt = uint64(0x7f0000000000)

// An image is forged memory. All else is not in RAM.
type image struct {
	content []byte // whole pages
	reads   int
}

func newImage(content []byte) *image {
	size := mem.AlignUp(uint64(len(content)), process.PageSize)
	return &image{content: append(make([]byte, 0, size), content...)[:size]}
}

func (f *image) span() mem.Span {
	return mem.Span{Start: forgedAt, End: forgedAt + uint64(len(f.content))}
}

func (f *image) Peek(addresses []uint64, size int) ([][]byte, error) {
	contents := make([][]byte, len(addresses))
	for i, address := range addresses {
		offset := address - forgedAt
		if f.reads++; address >= forgedAt && offset+uint64(size) <= uint64(len(f.content)) {
			contents[i] = f.content[offset : offset+uint64(size)]
		}
	}
	return contents, nil
}

func (f *image) PeekPages(address uint64, buffer []byte) ([]bool, error) {
	addresses := make([]uint64, uint64(len(buffer))/process.PageSize)
	for i := range addresses {
		addresses[i] = address + uint64(i)*process.PageSize
	}
	return f.PeekPagesAt(addresses, buffer)
}

func (f *image) PeekPagesAt(addresses []uint64, buffer []byte) ([]bool, error) {
	present := make([]bool, len(addresses))
	clear(buffer)
	for i, address := range addresses {
		content, _ := f.Peek([]uint64{address}, int(process.PageSize))
		present[i] = copy(buffer[uint64(i)*process.PageSize:], content[0]) > 0
	}
	return present, nil
}

func (f *image) PeekBlocks(b hostile.Blocks, buffer []byte) (pages []uint64, err error) {
	for b.At < b.End && uint64(len(pages)+1)*process.PageSize <= uint64(len(buffer)) {
		page := mem.AlignDown(b.At, process.PageSize)
		present, _ := f.PeekPages(page, buffer[len(pages)*int(process.PageSize):][:process.PageSize])
		if !present[0] {
			break
		}
		pages = append(pages, page)
		for b.At < min(b.End, page+process.PageSize-wordSize) {
			header, _ := f.Peek([]uint64{b.At}, glibc.HeaderSize)
			if header[0] == nil || mem.Word(header[0], wordSize) < minChunk {
				return pages, nil
			}
			b.At += mem.AlignDown(mem.Word(header[0], wordSize), minChunk/2)
		}
	}
	return pages, nil
}

// forgedWords are words that lead to each other, sizes of chunks, and numbers.
func forgedWords(seed uint64, size int) []byte {
	r := rand.New(rand.NewPCG(seed, 1))
	content := make([]byte, size)
	for at := 0; at < size; at += wordSize {
		values := []uint64{
			0, 1, 0x21, 0x31, 0x10011, 0x1002, ^uint64(0), 1 << 60, r.Uint64(), r.Uint64N(1 << 12),
			forgedAt + 8*r.Uint64N(uint64(size)/8), forgedAt + 16*r.Uint64N(uint64(size)/16),
		}
		binary.LittleEndian.PutUint64(content[at:], values[r.IntN(len(values))])
	}
	return content
}

// Of a malloc_chunk.
const (
	minChunk  = 32
	prevInUse = 1
	isMmapped = 2
)

// Chunks follow each other, in the heap, and are found however the heap is read.
func FuzzChunks(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(forgedWords(seed, 32<<10), uint64(seed%2*8), uint64(seed*16))
	}
	// Chunks of a heap that begins 8 bytes too late, up to 8 bytes before its end.
	odd := make([]byte, 8<<10)
	for at := 8; at < len(odd)-8; at += minChunk {
		binary.LittleEndian.PutUint64(odd[at+8:], minChunk|prevInUse)
		if at == 8 {
			binary.LittleEndian.PutUint64(odd[at+8:], minChunk+16|prevInUse)
			at += 16
		}
	}
	f.Add(odd, uint64(8), uint64(0))

	f.Fuzz(func(t *testing.T, content []byte, skip, short uint64) {
		forged := newImage(content)
		heap := forged.span()
		heap.Start += skip % process.PageSize &^ 7
		if heap.End -= min(short%process.PageSize&^7, heap.Len()); heap.Len() == 0 {
			return
		}
		m := newMemory(nil, forged)
		m.regions, m.spans = []region{{heap, regionHeap}}, mem.Spans{wholePages(heap)}
		m.findParts()
		end := heap.Start
		err := m.each(nil, func(p *piece) error {
			for _, c := range p.chunks {
				if c.Start < heap.Start || c.Start >= p.End() || c.End() > heap.End ||
					c.Size < minChunk || c.Start < end && c.Start >= p.Start {
					t.Fatalf("%+v of %x", c, heap)
				}
				end = c.End()
			}
			return nil
		})
		tracertest.NoError(t, err)
		for _, p := range m.inside {
			if p.Start < heap.Start || p.End > heap.End || p.Start >= p.End {
				t.Fatalf("%x of %x", p, heap)
			}
		}
		if most := 2*(glibc.MaxAlone+len(content)) + 1<<10; forged.reads > most {
			t.Fatalf("%d reads of %d bytes", forged.reads, len(content))
		}
	})
}

// FuzzSearch searches forged memory without Python: whatever it has, a path leads to memory that is
// in use, from the stack.
func FuzzSearch(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(forgedWords(seed, 16<<10), seed*160)
	}
	f.Fuzz(func(t *testing.T, content []byte, sample uint64) {
		forged := newImage(content)
		whole := forged.span()
		if whole.Len() < 4*process.PageSize {
			return
		}
		stack := mem.Span{Start: whole.Start, End: whole.Start + process.PageSize}
		heap := mem.Span{Start: stack.End, End: whole.Start + 2*process.PageSize}
		rest := mem.Span{Start: heap.End, End: whole.End}
		m := newMemory(nil, forged)
		m.spans = mem.Spans{whole}
		m.regions = []region{{stack, regionStack}, {heap, regionHeap}, {rest, regionAnonymous}}
		h := &Heap{
			heads:   []uint64{0},
			heaps:   liveness.Heaps{Heaps: glibc.Heaps{Spans: []mem.Span{heap}}},
			process: &process.Process{PID: 1},
			roots: &roots{
				statics: &native.Statics{},
				stacks:  []native.Stack{{TID: 1, Start: stack.Start, End: stack.End, Known: true}},
			},
		}
		m.findParts()
		h.pages = newPageCache(m)
		h.use(m)
		suspects := []Suspect{{Stack: 1, Objects: []uint64{
			heap.Start + glibc.HeaderSize, heap.Start + sample%process.PageSize, rest.Start + glibc.HeaderSize,
			rest.Start + sample, ^uint64(0), 0, 8,
		}}}
		began := process.OwnCPUTime()
		found, err := h.searchIn(newBudget(context.Background(), noLimit), suspects, began)
		if err != nil || len(found) != 1 {
			t.Fatalf("%+v, %v", found, err)
		}
		mustBeSound(t, found[0], len(suspects[0].Objects))
		for _, p := range found[0].Paths {
			if p.Root.Kind != keeper.RootThread || p.Root.Owner != "1" {
				t.Errorf("%+v", p)
			}
		}
		if most := 1 << 20; forged.reads > most {
			t.Errorf("%d reads", forged.reads)
		}
	})
}

// mustBeSound checks conditions that every result of a search has to meet.
func mustBeSound(t *testing.T, s keeper.Search, objects int) {
	t.Helper()
	if s.Samples > objects || s.Garbage > s.Samples || len(s.Paths) > maxPaths ||
		s.Reason == keeper.ReasonNone && len(s.Paths) == 0 {
		t.Errorf("%+v", s)
	}
	for _, p := range s.Paths {
		if p.Samples < 1 || p.Samples > s.Samples || len(p.Links) == 0 {
			t.Errorf("%+v", p)
		}
	}
}

// At its limit, or at the deadline, a search returns its findings so far.
func TestBudget(t *testing.T) {
	past, cancel := context.WithDeadline(context.Background(), time.Now())
	defer cancel()
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	for name, c := range map[string]struct {
		ctx    context.Context
		limit  time.Duration
		isOver bool
	}{
		"without a limit": {context.Background(), noLimit, false},
		"within it":       {context.Background(), time.Hour, false},
		"no overflow":     {context.Background(), noLimit - 1, false},
		"nothing left":    {context.Background(), 0, true},
		"less":            {context.Background(), -time.Hour, true},
		"used up":         {context.Background(), 1, true},
		"deadline":        {past, time.Hour, true},
		"canceled":        {canceled, time.Hour, true},
	} {
		b := newBudget(c.ctx, c.limit)
		if b.check() != c.isOver || b.most().check() != c.isOver || b.isSpent() != c.isOver {
			t.Errorf("%s: %+v", name, b)
		}
		if err := b.canceled(); (err != nil) != (name == "canceled") {
			t.Errorf("%s: %v", name, err)
		}
	}
	var none *budget
	if none.check() || none.isSpent() {
		t.Error("no budget is spent")
	}
}

func TestSeenSet(t *testing.T) {
	for name, c := range map[string]struct{ count, apart, others uint64 }{
		"exact":         {2000, 48, 0},
		"many windows":  {maxSeenWindows, windowBytes, 0},
		"more than fit": {2 * maxSeenWindows, windowBytes, 0},
	} {
		s, others := newSeenSet(), uint64(0)
		for i := range c.count {
			s.add(forgedAt + c.apart*i)
		}
		for i := range c.count {
			if !s.has(forgedAt + c.apart*i) {
				t.Fatalf("%s: %d is missing", name, i)
			}
			if s.has(forgedAt + granule + c.apart*i) {
				others++
			}
		}
		if others > c.others || len(s.bits) > maxSeenWindows*bitsOfWindow/64 {
			t.Errorf("%s: %d others, %d words", name, others, len(s.bits))
		}
	}
}

// TestMmapped finds chunks with mappings of their own by any address, in any order, and reads
// little for those that are in none.
func TestMmapped(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		const count = 3000 // pages
		forged := newImage(make([]byte, count*int(process.PageSize)))
		in := make([]mem.Span, count) // the chunk that each page is in; zero: none
		for page := r.IntN(200); page < count; page += 1 + r.IntN(300) {
			n := min(1+r.IntN(50), count-page)
			at := forgedAt + uint64(page)*process.PageSize
			chunk := mem.Span{Start: at + glibc.HeaderSize, End: at + uint64(n)*process.PageSize}
			binary.LittleEndian.PutUint64(forged.content[at-forgedAt+8:], (chunk.End-at-16*r.Uint64N(2))|isMmapped) // from 2.43 on 16 less
			for range n {
				in[page], page = chunk, page+1
			}
		}
		m := &memory{reader: forged, regions: []region{{forged.span(), regionAnonymous}}}
		for range 2000 {
			page, offset := r.IntN(count), glibc.HeaderSize+r.Uint64N(process.PageSize-glibc.HeaderSize)
			b, ok := m.mmappedAt(forgedAt + uint64(page)*process.PageSize + offset)
			if want := in[page]; ok != (want.End != 0) || ok && b.Span != want {
				t.Fatalf("page %d is in %x, %t, want %x", page, b.Span, ok, want)
			}
		}
		forged.reads = 0
		for page := range count {
			for range 100 {
				m.mmappedAt(forgedAt + uint64(page)*process.PageSize + glibc.HeaderSize)
			}
		}
		if most := 4 * count; forged.reads > most {
			t.Errorf("%d reads", forged.reads)
		}
	}
}

// TestBulk takes no arena for bulk data, though it shares a window with such data.
func TestBulk(t *testing.T) {
	const poolSize, nextpool = 16 << 10, 16
	for _, pools := range [][]int{{0}, {0, 1, 2}, {15}, {13, 14, 15}, {11, 12, 13, 14, 15}, {}} {
		forged := newImage(make([]byte, 2*windowBytes))
		window := mem.AlignUp(forgedAt, windowBytes)
		for _, pool := range pools { // nextpool and prevpool
			header := forged.content[window-forgedAt+uint64(pool)*poolSize:]
			binary.LittleEndian.PutUint64(header[nextpool:], forgedAt+poolSize)
			binary.LittleEndian.PutUint64(header[nextpool+wordSize:], forgedAt+poolSize)
		}

		span := mem.Span{Start: window, End: window + windowBytes}
		m := &memory{
			reader: forged, maps: []process.Mapping{{Start: forgedAt, End: forged.span().End, Read: true}},
			regions: []region{{span, regionAnonymous}}, spans: mem.Spans{span},
		}
		tracertest.NoError(t, m.leaveOutBulk())
		if isBulk := m.bulk == windowBytes; isBulk != (len(pools) == 0) {
			t.Errorf("pools %d: %d bytes are bulk data", pools, m.bulk)
		}
	}
}

// TestMasks takes no mask for memory with pointers: a float with a zero beside it is an address of
// a heap below 4 GiB. The table of a list is memory with pointers there, too.
func TestMasks(t *testing.T) {
	const one = 0x3f800000
	m := &memory{
		reader: newImage(nil), maps: []process.Mapping{{Start: 1 << 20, End: 1 << 31, Read: true}},
	}
	for name, c := range map[string]struct {
		word func(i int) uint64
		want bool
	}{
		"mask":       {func(i int) uint64 { return one * uint64(i%2) }, false},
		"two floats": {func(i int) uint64 { return one + 0x400000*uint64(i%2) }, false},
		"table":      {func(i int) uint64 { return 4<<20 + 64*uint64(i) }, true},
	} {
		page := make([]byte, probeBytes)
		for i := range probeBytes / wordSize {
			binary.LittleEndian.PutUint64(page[i*wordSize:], c.word(i))
		}
		if got := m.hasPointers(page); got != c.want {
			t.Errorf("%s: has pointers: %t", name, got)
		}
	}
}
