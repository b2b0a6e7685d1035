package region

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/process"
)

var pageSize = process.PageSize

// Of glibc.
const (
	heapMaxSize      = 64 << 20 // HEAP_MAX_SIZE
	threadListOffset = 704      // of list in a struct pthread
)

// forgery is memory of the test's making: pages by address. All else reads as zeros, or is not
// resident.
type forgery struct {
	pages map[uint64][]byte
	zeros bool
}

func (m *forgery) Peek(addresses []uint64, size int) ([][]byte, error) {
	contents := make([][]byte, len(addresses))
	for i, address := range addresses {
		page := m.pages[address&^(pageSize-1)]
		if page != nil || m.zeros {
			contents[i] = make([]byte, size)
		}
		if page != nil {
			copy(contents[i], page[address%pageSize:])
		}
	}
	return contents, nil
}

// endlessChunks is memory in which every page begins as an mmapped chunk does.
type endlessChunks struct{ peeks int }

func (m *endlessChunks) Peek(addresses []uint64, size int) ([][]byte, error) {
	m.peeks += len(addresses)
	content := make([]byte, size)
	binary.LittleEndian.PutUint64(content[8:], pageSize|2)
	return slices.Repeat([][]byte{content}, len(addresses)), nil
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

// poolHeader returns the words of a pool_header with 3 blocks of 48 bytes in use, the next one
// being the first of the free ones.
func poolHeader(pool, poolSize, arenaindex uint64) []uint64 {
	return []uint64{3, pool + 48, 0, 0, arenaindex | 2<<32, 48 + 3*48 | (poolSize-48)<<32}
}

// writeArena writes the headers of a pymalloc arena, all of whose pools but the last few are in
// use.
func (m *forgery) writeArena(base, index uint64) {
	const poolSize, arenaSize = 16 << 10, 1 << 20
	for pool := mem.AlignUp(base, poolSize); pool+4*poolSize <= base+arenaSize; pool += poolSize {
		m.write(pool, poolHeader(pool, poolSize, index)...)
	}
}

func TestScanForArenas(t *testing.T) {
	t.Run("adjacent arenas at any offset", func(t *testing.T) {
		for shift := uint64(0); shift < 16<<10; shift += pageSize {
			var m forgery
			base := somewhere + 5*pageSize + 300*(16<<10) + shift
			for i := range uint64(3) {
				m.writeArena(base+i<<20, 7+i)
			}

			maps := []process.Mapping{anonymous(somewhere, base+3<<20)}
			arenas, _ := ofClass(Classify(maps, nil, &m), PythonArena)
			if len(arenas) != 3 || arenas[2].End != base+3<<20 {
				t.Fatalf("shift %#x:\n%swant 3 up to %x", shift, dump(arenas), base+3<<20)
			}
			for i, r := range arenas {
				want := base + uint64(i)<<20
				if max(r.Start, want)-min(r.Start, want) >= 16<<10 {
					t.Errorf("shift %#x: arena at %x, want %x", shift, r.Start, want)
				}
			}
		}
	})

	// The kernel merges Python's first arena with the variables of libpython below it.
	t.Run("small arena above other memory", func(t *testing.T) {
		const poolSize, arenaSize = 4 << 10, 256 << 10
		for shift := uint64(0); shift < 1<<20; shift += pageSize {
			var m forgery
			start := somewhere + shift
			base := start + 33*pageSize
			for pool := base; pool < base+arenaSize; pool += poolSize {
				m.write(pool, poolHeader(pool, poolSize, 0)...)
			}

			maps := []process.Mapping{anonymous(start, base+arenaSize)}
			arenas, _ := ofClass(Classify(maps, nil, &m), PythonArena)
			if len(arenas) != 1 || arenas[0].Start != base || arenas[0].End != base+arenaSize {
				t.Errorf("shift %#x:\n%swant one at %x", shift, dump(arenas), base)
			}
		}
	})

	t.Run("lone pools in random data", func(t *testing.T) {
		random := rand.New(rand.NewPCG(1, 2))
		var m forgery
		for page := somewhere; page < somewhere+4<<20; page += pageSize {
			for offset := uint64(0); offset < 64; offset += 8 {
				m.write(page+offset, random.Uint64())
			}
		}
		for _, pool := range []uint64{somewhere, somewhere + 2<<20} {
			m.write(pool, poolHeader(pool, 16<<10, 7)...)
		}

		regions := Classify([]process.Mapping{anonymous(somewhere, somewhere+4<<20)}, nil, &m)
		if len(regions) != 1 || regions[0].Class != Anonymous {
			t.Error(dump(regions))
		}
	})
}

func TestArenaIndex(t *testing.T) {
	const pool, size = somewhere, 16 << 10
	maps := []process.Mapping{anonymous(somewhere, somewhere+1<<20)}
	find := func(first []uint64) []Region {
		var m forgery // four pools in use, so that the first must be known for one
		for address := somewhere; address < somewhere+4*size; address += size {
			m.write(address, poolHeader(address, size, 7)...)
		}
		m.write(pool, first...)
		arenas, _ := ofClass(Classify(maps, nil, &m), PythonArena)
		return arenas
	}
	if len(find(nil)) != 1 {
		t.Fatal("no arena in valid headers")
	}

	for name, header := range map[string][]uint64{
		"count beyond the pool":      {999, pool + 48, 0, 0, 7 | 2<<32, 48 + 3*48 | (size-48)<<32},
		"freeblock between blocks":   {3, pool + 49, 0, 0, 7 | 2<<32, 48 + 3*48 | (size-48)<<32},
		"freeblock outside":          {3, pool + size, 0, 0, 7 | 2<<32, 48 + 3*48 | (size-48)<<32},
		"nextpool beyond user space": {3, pool + 48, 1 << 60, 0, 7 | 2<<32, 48 + 3*48 | (size-48)<<32},
		"szidx above 512 bytes":      {3, pool + 48, 0, 0, 7 | 33<<32, 48 + 3*544 | (size-544)<<32},
		"maxnextoffset":              {3, pool + 48, 0, 0, 7 | 2<<32, 48 + 3*48 | (size-64)<<32},
		"nextoffset between blocks":  {3, pool + 48, 0, 0, 7 | 2<<32, 50 + 3*48 | (size-48)<<32},
		"arenaindex of another":      {3, pool + 48, 0, 0, 8 | 2<<32, 48 + 3*48 | (size-48)<<32},
		"unused before used":         {0, 0, 0, 0, 0, 0},
	} {
		if arenas := find(header); len(arenas) != 0 {
			t.Errorf("%s: %x is taken for a pool:\n%s", name, header, dump(arenas))
		}
	}
}

func TestIsHeap(t *testing.T) {
	const start, second = somewhere, somewhere + heapMaxSize
	maps := []process.Mapping{
		anonymous(start, start+1<<20),
		{Start: start + 1<<20, End: start + heapMaxSize},
		anonymous(second, second+heapMaxSize),
	}
	valid := []uint64{start + 48, 0, 1 << 19, 1 << 20}
	for _, c := range []struct {
		name        string
		first, next []uint64 // heap_info: ar_ptr, prev, size, mprotect_size
		want        int
	}{
		{"one heap", valid, nil, 1},
		{"two heaps", valid, []uint64{start + 48, start, heapMaxSize, heapMaxSize}, 2},
		{"before 2.35", []uint64{start + 32, 0, 1 << 19, 2 << 20}, nil, 1},
		{"ar_ptr at 40", []uint64{start + 40, 0, 1 << 19, 1 << 20}, nil, 0},
		{"size above mprotect_size", []uint64{start + 48, 0, 2 << 20, 1 << 20}, nil, 0},
		{"mprotect_size below size", []uint64{start + 48, 0, 1 << 19, 1 << 18}, nil, 0},
		{"mprotect_size within a page", []uint64{start + 48, 0, 1 << 19, 1<<20 + 1}, nil, 0},
		{"size 0", []uint64{start + 48, 0, 0, 1 << 20}, nil, 0},
		{"prev not aligned", []uint64{start + 48, 4096, 1 << 19, 1 << 20}, nil, 0},
		{"mprotect_size too large", []uint64{start + 48, 0, 1 << 19, 2 * heapMaxSize}, nil, 0},
		{"ar_ptr of another heap", []uint64{second + 48, 0, 1 << 19, 1 << 20}, nil, 0},
		{"prev of no heap", []uint64{second + 48, second, 1 << 19, 1 << 20}, nil, 0},
		{"less than is writable", []uint64{start + 48, 0, 1 << 18, 1 << 19}, nil, 0},
		{
			"next of no heap", valid,
			[]uint64{start + 48, start + 2*heapMaxSize, heapMaxSize, heapMaxSize},
			1,
		},
	} {
		var m forgery
		m.write(start, c.first...)
		m.write(second, c.next...)
		if heaps, _ := ofClass(Classify(maps, nil, &m), Arena); len(heaps) != c.want {
			t.Errorf("%s: %d heaps, want %d", c.name, len(heaps), c.want)
		}
	}
}

// The kernel merges the stack of a thread with the mapping above it. The list of threads, or a
// start, shows where the stack ends.
func TestThreadStacks(t *testing.T) {
	var m forgery
	const size, guard = 1 << 20, 4096
	const descriptor, stackblock = size - 2304, 1680 // offsets of the struct pthread, and in it
	first, second := somewhere, somewhere+4*size
	for _, s := range [][2]uint64{{first, second}, {second, first}} {
		self, next := s[0]+descriptor, s[1]+descriptor
		m.write(self, self, 0, self)
		m.write(self+threadListOffset, next+threadListOffset, next+threadListOffset)
		m.write(self+stackblock, s[0], size, guard)
	}
	maps := []process.Mapping{
		{Start: first, End: first + guard},
		anonymous(first+guard, first+size),
		{Start: second, End: second + guard},
		anonymous(second+guard, second+3*size),
	}
	mustFind := func(what string, starts, want []uint64) {
		t.Helper()
		stacks, _ := ofClass(Classify(maps, starts, &m), ThreadStack)
		var found []uint64
		for _, s := range stacks {
			if s.End == s.Start+size {
				found = append(found, s.Start)
			}
		}
		if len(stacks) != len(want) || !slices.Equal(found, want) {
			t.Errorf("%s: want stacks %x, got\n%s", what, want, dump(stacks))
		}
	}

	mustFind("by the list", nil, []uint64{first, second})
	m.write(first+descriptor, first+descriptor, 0, 0)
	mustFind("tcb without self", nil, nil)
	mustFind("by a start", []uint64{second + size}, []uint64{second})
	m.write(second+descriptor+stackblock, second, size/2, guard)
	mustFind("stack that ends elsewhere", []uint64{second + size}, nil)
}

func TestMaxPeeks(t *testing.T) {
	m := &endlessChunks{}
	regions := Classify([]process.Mapping{anonymous(somewhere, somewhere+16<<40)}, nil, m)
	if m.peeks > maxPeeks || len(regions) > maxPeeks+1 {
		t.Errorf("%d headers read for %d regions", m.peeks, len(regions))
	}
}

// FuzzClassify makes random maps and memory, a good part of it as allocators would write it.
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
			start := somewhere + random.Uint64N(1<<28)&^(pageSize-1)
			starts = append(starts, start, random.Uint64())
		}
		if err := checkCover(maps, Classify(maps, starts, m)); err != nil {
			t.Error(err)
		}
		random.Shuffle(len(maps), func(i, k int) { maps[i], maps[k] = maps[k], maps[i] })
		Classify(maps, starts, m) // must end
	})
}

// fuzzed is memory that a random source fills.
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
			at = mem.AlignUp(at, heapMaxSize)
		}
		sizes := []uint64{pageSize, 16 << 10, 1 << 20, 8 << 20, 8<<20 + pageSize, heapMaxSize}
		size := sizes[m.IntN(6)] * (1 + m.Uint64N(3))
		paths := []string{"", "", "", "", "[heap]", "[anon:x]", "[stack]", "/a", "[vdso]"}
		maps = append(maps, process.Mapping{
			Start: at, End: at + size, Path: paths[m.IntN(9)],
			Read: m.IntN(4) > 0, Write: m.IntN(4) > 0,
			Execute: m.IntN(9) == 0, Shared: m.IntN(9) == 0,
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

// forge writes words that an allocator may write to a page, now and then with one wrong word.
func (m *fuzzed) forge(page uint64) {
	descriptor := page + pageSize - 2304
	stackblock := page + pageSize - []uint64{4096, 8 << 20, 8<<20 + 4096}[m.IntN(3)]

	switch m.IntN(5) {
	case 0:
		m.write(page, 0, (1+m.Uint64N(300))*pageSize|2)
	case 1:
		m.write(page, page-page%heapMaxSize+48, 0, pageSize, (1+m.Uint64N(1<<14))*pageSize)
	case 2:
		m.writeArena(page, m.Uint64N(100))
	case 3:
		m.write(descriptor, descriptor, 0, descriptor)
		m.write(descriptor+threadListOffset, m.Uint64(), page)
		m.write(descriptor+1680, stackblock, page+pageSize-stackblock, pageSize)
	}

	if m.IntN(3) == 0 {
		words := []uint64{0, 2, page, pageSize | 2, m.Uint64(), 1 << 63, ^uint64(0)}
		m.write(page+8*m.Uint64N(8), words[m.IntN(len(words))])
	}
}
