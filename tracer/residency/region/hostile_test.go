package region

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/allocscope/allocscope/tracer/process"
)

// A forgery is memory of the test's making: pages by address. All else reads as zeros, or is not resident.
type forgery struct {
	pages map[uint64][]byte
	zeros bool
}

func (m *forgery) Resident(address uint64) bool {
	return m.zeros || m.pages[address&^(pageSize-1)] != nil
}

func (m *forgery) Peek(addresses []uint64, size int) [][]byte {
	contents := make([][]byte, len(addresses))
	for i, address := range addresses {
		contents[i] = make([]byte, size)
		if page := m.pages[address&^(pageSize-1)]; page != nil {
			copy(contents[i], page[address%pageSize:])
		}
	}
	return contents
}

func (m *forgery) write(address uint64, words ...uint64) {
	page := address &^ (pageSize - 1)
	if m.pages == nil {
		m.pages = make(map[uint64][]byte)
	}
	if m.pages[page] == nil {
		m.pages[page] = make([]byte, pageSize)
	}
	for i, w := range words {
		binary.LittleEndian.PutUint64(m.pages[page][address%pageSize+8*uint64(i):], w)
	}
}

func anonymous(start, end uint64) process.Mapping {
	return process.Mapping{Start: start, End: end, Read: true, Write: true}
}

const somewhere = uint64(0x7f0000000000)

// writeArena writes the headers of an arena of Python, all of whose pools but the last few are in use.
func (m *forgery) writeArena(base, index uint64) {
	for at := alignUp(base, 16<<10); at+4*(16<<10) <= base+(1<<20); at += 16 << 10 {
		m.write(at, 3, at+48, 0, 0, index|2<<32, 48+3*48|(16384-48)<<32)
	}
}

func TestArenasAreFoundByTheirPoolsWhereNothingTellsTheirStart(t *testing.T) {
	for shift := uint64(0); shift < 16<<10; shift += pageSize {
		var m forgery
		base := somewhere + 5*pageSize + 300*(16<<10) + shift
		for i := range uint64(3) {
			m.writeArena(base+i<<20, 7+i)
		}
		regions := Classify([]process.Mapping{anonymous(somewhere, base+3<<20)}, nil, &m)
		arenas := of(regions, Python)
		if len(arenas) != 3 || arenas[2].End != base+3<<20 {
			t.Fatalf("shift %#x: arenas\n%swant 3 up to %x", shift, show(arenas), base+3<<20)
		}
		for i, r := range arenas {
			if want := base + uint64(i)<<20; max(r.Start, want)-min(r.Start, want) >= 16<<10 {
				t.Errorf("shift %#x: arena at %x, want %x", shift, r.Start, want)
			}
		}
	}
}

// The kernel joins an arena to what lies below it: Python's first one, to the variables of libpython, wherever that was loaded.
func TestASmallArenaIsFoundWhereverItLiesAboveOtherMemory(t *testing.T) {
	const pool, arena = 4 << 10, 256 << 10
	for shift := uint64(0); shift < 1<<20; shift += pageSize {
		var m forgery
		start := somewhere + shift
		base := start + 33*pageSize
		for at := base; at < base+arena; at += pool {
			m.write(at, 3, at+48, 0, 0, 2<<32, 48+3*48|(pool-48)<<32)
		}
		arenas := of(Classify([]process.Mapping{anonymous(start, base+arena)}, nil, &m), Python)
		if len(arenas) != 1 || arenas[0].Start != base || arenas[0].End != base+arena {
			t.Errorf("shift %#x: arenas\n%swant one at %x", shift, show(arenas), base)
		}
	}
}

func TestAPoolWithAnyFieldAmissIsNone(t *testing.T) {
	sound := func() *forgery { // an arena four of whose pools are in use, so that the first must be known for one
		var m forgery
		for at := somewhere; at < somewhere+4*(16<<10); at += 16 << 10 {
			m.write(at, 3, at+48, 0, 0, 7|2<<32, 48+3*48|(16384-48)<<32)
		}
		return &m
	}
	maps := []process.Mapping{anonymous(somewhere, somewhere+1<<20)}
	if len(of(Classify(maps, nil, sound()), Python)) != 1 {
		t.Fatal("a sound arena is not found")
	}
	for _, amiss := range [][]uint64{
		{999, somewhere + 48, 0, 0, 7 | 2<<32, 48 + 3*48 | (16384-48)<<32},     // more blocks in use than there are
		{3, somewhere + 49, 0, 0, 7 | 2<<32, 48 + 3*48 | (16384-48)<<32},       // a free block between blocks
		{3, somewhere + 16384, 0, 0, 7 | 2<<32, 48 + 3*48 | (16384-48)<<32},    // ... outside
		{3, somewhere + 48, 1 << 60, 0, 7 | 2<<32, 48 + 3*48 | (16384-48)<<32}, // a link to nowhere
		{3, somewhere + 48, 0, 0, 7 | 33<<32, 48 + 3*544 | (16384-544)<<32},    // blocks of more than 512 bytes
		{3, somewhere + 48, 0, 0, 7 | 2<<32, 48 + 3*48 | (16384-64)<<32},       // the last block at a wrong place
		{3, somewhere + 48, 0, 0, 7 | 2<<32, 50 + 3*48 | (16384-48)<<32},       // the next block between blocks
		{3, somewhere + 48, 0, 0, 8 | 2<<32, 48 + 3*48 | (16384-48)<<32},       // of another arena than the rest
		{0, 0, 0, 0, 0, 0},
	} {
		m := sound()
		m.write(somewhere, amiss...)
		if arenas := of(Classify(maps, nil, m), Python); len(arenas) != 0 {
			t.Errorf("%x is taken for a pool:\n%s", amiss, show(arenas))
		}
	}
}

func TestOneForgedPoolAmongOtherDataIsNoArena(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var m forgery
	for at := somewhere; at < somewhere+4<<20; at += pageSize {
		for offset := uint64(0); offset < 64; offset += 8 {
			m.write(at+offset, random.Uint64())
		}
	}
	m.write(somewhere, 3, somewhere+48, 0, 0, 7|2<<32, 48+3*48|(16384-48)<<32)
	m.write(somewhere+2<<20, 3, somewhere+2<<20+48, 0, 0, 7|2<<32, 48+3*48|(16384-48)<<32)
	if regions := Classify([]process.Mapping{anonymous(somewhere, somewhere+4<<20)}, nil, &m); len(regions) != 1 || regions[0].Class != Anonymous {
		t.Errorf("random data: %s", show(regions))
	}
}

func TestAHeapIsOneOnlyIfAllItsFieldsAgree(t *testing.T) {
	const start, second = somewhere, somewhere + heapMax
	hole := process.Mapping{Start: start + 1<<20, End: start + heapMax}
	maps := []process.Mapping{anonymous(start, start+1<<20), hole, anonymous(second, second+heapMax)}
	find := func(first, next []uint64) int {
		var m forgery
		m.write(start, first...)
		m.write(second, next...)
		return len(of(Classify(maps, nil, &m), Arena))
	}
	sound := []uint64{start + 48, 0, 1 << 19, 1 << 20}
	if find(sound, []uint64{start + 48, start, heapMax, heapMax}) != 2 || find(sound, nil) != 1 ||
		find([]uint64{start + 32, 0, 1 << 19, 2 << 20}, nil) != 1 {
		t.Error("a sound heap is not found")
	}
	for _, amiss := range [][]uint64{
		{start + 40, 0, 1 << 19, 1 << 20},
		{start + 48, 0, 2 << 20, 1 << 20},
		{start + 48, 0, 1 << 19, 1 << 18},
		{start + 48, 0, 1 << 19, 1<<20 + 1},
		{start + 48, 0, 0, 1 << 20},
		{start + 48, 4096, 1 << 19, 1 << 20},
		{start + 48, 0, 1 << 19, 2 * heapMax},
		{second + 48, 0, 1 << 19, 1 << 20},
		{second + 48, second, 1 << 19, 1 << 20},
		{start + 48, 0, 1 << 18, 1 << 19},
	} {
		if find(amiss, nil) != 0 {
			t.Errorf("%x is taken for a heap", amiss)
		}
	}
	if find(sound, []uint64{start + 48, start + 2*heapMax, heapMax, heapMax}) != 1 {
		t.Error("a heap after one that is none is taken")
	}
}

// The stack of a thread joins what lies above it: the list that links threads, or a start, leads to it.
func TestStacksThatJoinWhatLiesAboveAreFound(t *testing.T) {
	var m forgery
	const size, guard = 1 << 20, 4096
	write := func(stack, next uint64) {
		block := stack + size - 2304
		m.write(block, block, 0, block)
		m.write(block+threadList, next+threadList, next+threadList)
		m.write(block+1680, stack, size, guard)
	}
	first, second := somewhere, somewhere+4*size
	write(first, second+size-2304)
	write(second, first+size-2304)
	maps := []process.Mapping{
		{Start: first, End: first + guard},
		anonymous(first+guard, first+size),
		{Start: second, End: second + guard},
		anonymous(second+guard, second+3*size),
	}
	regions := Classify(maps, nil, &m)
	stacks := of(regions, ThreadStack)
	if len(stacks) != 2 || stacks[1].Start != second || stacks[1].End != second+size {
		t.Errorf("by the list: %s", show(regions))
	}
	block := first + size - 2304
	m.write(block, block, 0, 0)
	if stacks := of(Classify(maps, nil, &m), ThreadStack); len(stacks) != 0 {
		t.Errorf("a block with one pointer to itself is taken: %s", show(stacks))
	}
	if stacks := of(Classify(maps, []uint64{second + size}, &m), ThreadStack); len(stacks) != 1 || stacks[0].End != second+size {
		t.Errorf("by a start: %s", show(stacks))
	}
	m.write(second+size-2304+1680, second, size/2, guard)
	if stacks := of(Classify(maps, []uint64{second + size}, &m), ThreadStack); len(stacks) != 0 {
		t.Errorf("a stack that ends elsewhere is taken: %s", show(stacks))
	}
}

func TestWhatOneCallReadsIsBounded(t *testing.T) {
	m := &forged{chunk: pageSize}
	regions := Classify([]process.Mapping{anonymous(somewhere, somewhere+16<<40)}, nil, m)
	if m.peeks > maxPeeks || len(regions) > maxPeeks+1 {
		t.Errorf("%d headers read for %d regions", m.peeks, len(regions))
	}
}

// FuzzClassify makes maps and memory of random numbers, a good part of it as allocators would write it.
func FuzzClassify(f *testing.F) {
	for seed := range uint64(50) {
		f.Add(seed, uint16(20))
	}
	f.Fuzz(func(t *testing.T, seed uint64, count uint16) {
		random := rand.New(rand.NewPCG(seed, 0))
		m := &fuzzed{forgery{zeros: seed%4 == 0}, random}
		maps := m.maps(int(count % 200))
		var starts []uint64
		for range random.IntN(20) {
			starts = append(starts, somewhere+random.Uint64N(1<<28)&^(pageSize-1), random.Uint64())
		}
		if fault := faultOf(maps, Classify(maps, starts, m)); fault != "" {
			t.Error(fault)
		}
		random.Shuffle(len(maps), func(i, k int) { maps[i], maps[k] = maps[k], maps[i] })
		Classify(maps, starts, m) // must end
	})
}

type fuzzed struct {
	forgery
	*rand.Rand
}

func (m *fuzzed) maps(count int) []process.Mapping {
	var maps []process.Mapping
	at := somewhere
	for range count {
		if m.IntN(3) == 0 {
			at += m.Uint64N(64) * pageSize
		}
		if m.IntN(6) == 0 {
			at = alignUp(at, heapMax)
		}
		size := []uint64{pageSize, 16 << 10, 1 << 20, 8 << 20, 8<<20 + pageSize, heapMax}[m.IntN(6)] * (1 + m.Uint64N(3))
		path := []string{"", "", "", "", "[heap]", "[anon:x]", "[stack]", "/a", "[vdso]"}[m.IntN(9)]
		maps = append(maps, process.Mapping{
			Start: at, End: at + size, Path: path, Read: m.IntN(4) > 0, Write: m.IntN(4) > 0, Execute: m.IntN(9) == 0, Share: m.IntN(9) == 0,
		})
		for range m.IntN(30) {
			m.forge(at + m.Uint64N(size)&^(pageSize-1))
		}
		m.forge(at)
		m.forge(at + size - pageSize)
		at += size
	}
	return maps
}

// forge writes what an allocator may write to a page, now and then with one word amiss.
func (m *fuzzed) forge(page uint64) {
	block, start := page+pageSize-2304, page+pageSize-[]uint64{4096, 8 << 20, 8<<20 + 4096}[m.IntN(3)]
	switch m.IntN(5) {
	case 0:
		m.write(page, 0, (1+m.Uint64N(300))*pageSize|2)
	case 1:
		m.write(page, page-page%heapMax+48, 0, pageSize, (1+m.Uint64N(1<<14))*pageSize)
	case 2:
		m.writeArena(page, m.Uint64N(100))
	case 3:
		m.write(block, block, 0, block)
		m.write(block+threadList, m.Uint64(), page)
		m.write(block+1680, start, page+pageSize-start, pageSize)
	}
	if m.IntN(3) == 0 {
		words := []uint64{0, 2, page, pageSize | 2, m.Uint64(), 1 << 63, ^uint64(0)}
		m.write(page+8*m.Uint64N(8), words[m.IntN(len(words))])
	}
}
