package caching

import (
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// Addresses of the forged process: the library's code, its variables, and the heap, which all are
// forged memory from memoryStart on.
const (
	codeStart   = 0x7000_0000
	comparator  = codeStart + 0x40
	memoryStart = 0x1000_0000
	variables   = 64 << 10 // bytes, at the start of the memory
)

// forgedLayout is the one of 2.6.
var forgedLayout = layout{ptr: 72, hasRequested: true, hasMappedFlag: true}

// A forgery is a process with forged memory, which counts how much is read of it.
type forgery struct {
	t     testing.TB
	bytes []byte
	used  uint64 // of the variables

	reads, bytesRead int
	live             uint64 // bytes of our own heap, at most
}

func newForgery(t testing.TB) *forgery {
	return &forgery{t: t, bytes: make([]byte, variables)}
}

func (f *forgery) Maps() ([]process.Mapping, error) {
	end := memoryStart + mem.AlignUp(uint64(len(f.bytes)), mem.PeekSize)
	return []process.Mapping{
		{
			Start: memoryStart, End: memoryStart + variables, Read: true, Write: true, Inode: 1,
			Path: "/usr/lib/libc10_cuda.so",
		},
		{Start: memoryStart + variables, End: end, Read: true, Write: true, Path: "[heap]"},
		{
			Start: codeStart, End: codeStart + 0x1000, Read: true, Execute: true, Inode: 1,
			Path: "/usr/lib/libc10_cuda.so",
		},
	}, nil
}

// Peek counts. The memory ends with a whole page.
func (f *forgery) Peek(addresses []uint64, size int) ([][]byte, error) {
	if size < 1 || size > mem.PeekSize {
		f.t.Fatalf("%d bytes are read at an address", size)
	}
	f.reads++
	bytes := len(addresses) * size
	if f.reads%4096 == 0 || f.bytesRead>>23 != (f.bytesRead+bytes)>>23 {
		f.noteLive()
	}
	f.bytesRead += bytes

	contents := make([][]byte, len(addresses))
	end := mem.AlignUp(uint64(len(f.bytes)), mem.PeekSize)
	for i, a := range addresses {
		if at := a - memoryStart; a >= memoryStart && at <= end && end-at >= uint64(size) {
			contents[i] = make([]byte, size)
			copy(contents[i], f.bytes[min(at, uint64(len(f.bytes))):])
		}
	}

	return contents, nil
}

// noteLive measures what is live of our own heap, without the forged memory.
func (f *forgery) noteLive() {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	f.live = max(f.live, m.HeapAlloc-min(m.HeapAlloc, uint64(len(f.bytes))))
}

// add adds words to the heap and returns their address.
func (f *forgery) add(words ...uint64) uint64 {
	at := memoryStart + uint64(len(f.bytes))
	for _, w := range words {
		f.bytes = binary.LittleEndian.AppendUint64(f.bytes, w)
	}

	return at
}

func (f *forgery) put(address uint64, words ...uint64) {
	for i, w := range words {
		binary.LittleEndian.PutUint64(f.bytes[address-memoryStart+uint64(8*i):], w)
	}
}

// get returns a word.
func (f *forgery) get(address uint64) uint64 { return mem.Word(f.bytes, address-memoryStart) }

// addBlock adds a Block.
func (f *forgery) addBlock(b block) uint64 {
	l, self := &forgedLayout, f.add(make([]uint64, 20)...)
	flags := uint64(1 << 8) // mapped
	if b.isAllocated {
		flags++
	}
	f.put(self, uint64(b.device), b.stream)
	f.put(self+l.sizeAt(), b.size, b.requested, b.pool, b.address, flags, b.prev, b.next)
	return self
}

// addTable adds a flat_hash_map at an address with entries of so many words, all in use, and others
// to a power of two.
func (f *forgery) addTable(at uint64, words int, values ...[]uint64) {
	slots := 2
	for slots < len(values) {
		slots *= 2
	}
	const lookups = 4
	entries := memoryStart + uint64(len(f.bytes))
	for i := range slots + lookups - 1 {
		if i < len(values) {
			f.add(append([]uint64{0}, values[i]...)...)
		} else {
			f.add(append([]uint64{0xff}, make([]uint64, words)...)...)
		}
	}
	f.add(make([]uint64, 1+words)...) // sentinel
	f.put(at, entries, uint64(slots-1), lookups<<8, uint64(len(values)))
}

// addAllocated adds a table of allocated blocks to the variables.
func (f *forgery) addAllocated(blocks ...uint64) {
	var values [][]uint64
	for _, b := range blocks {
		values = append(values, []uint64{f.get(b + forgedLayout.ptr), b})
	}
	f.addTable(memoryStart+f.used, 2, values...)
	f.used += tableBytes
}

// A forgedGPU has the addresses of the allocator of one GPU.
type forgedGPU struct {
	large, active, private uint64   // its large pool, and tables behind it
	blocks                 []uint64 // three allocated ones and a free one, which fill a segment
	node                   uint64   // of the tree of free blocks
}

const (
	forgedSize    = 5 << 20 // of a block
	forgedAddress = 1 << 44
	forgedBytes   = 4 * forgedSize
)

// addGPU adds an allocator with one segment.
func (f *forgery) addGPU(device uint8, address uint64) (g forgedGPU) {
	f.add(make([]uint64, 64)...)
	g.large = f.add(make([]uint64, 64)...)
	const size = poolBytes + 8
	for i, self := range []uint64{g.large, g.large + size} {
		f.put(self, comparator)
		f.put(self+setBytes, comparator)
		f.put(self+2*setBytes, uint64(i), 0)
	}
	g.active, g.private = g.large+2*size, g.large+2*size+tableBytes

	for i := range uint64(4) {
		g.blocks = append(g.blocks, f.addBlock(block{
			device: device, size: forgedSize, requested: 100, pool: g.large,
			address: address + i*forgedSize, isAllocated: i < 3,
		}))
	}
	for i := range 3 {
		f.put(g.blocks[i]+forgedLayout.ptr+nextAt, g.blocks[i+1])
		f.put(g.blocks[i+1]+forgedLayout.ptr+prevAt, g.blocks[i])
	}
	g.node = f.add(1, 0, 0, 0, g.blocks[3])
	f.put(g.large+setRootAt, g.node, g.node, g.node, 1)
	f.addAllocated(g.blocks[:3]...)
	return g
}

// read reads the process, and checks that the work was bounded and the result is possible.
func (f *forgery) read() (*growth.GPUCache, error) {
	f.t.Helper()
	f.live = 0
	c, err := new(Reader).Read(f)
	if f.reads >= 1000 {
		f.noteLive()
	}
	if f.reads > maxReads || f.bytesRead > maxReadBytes || f.live > 256<<20 {
		f.t.Errorf("%d reads of %d bytes, and %d bytes of our own", f.reads, f.bytesRead, f.live)
	}
	if err == nil {
		mustBePossible(f.t, c)
	}

	return c, err
}

func mustBePossible(t testing.TB, c *growth.GPUCache) {
	t.Helper()
	ends, total := make(map[string]uint64), int64(0)
	for _, s := range c.Segments {
		if s.Address < ends[s.GPU] || s.Size <= 0 {
			t.Fatalf("segment at %#x of %d bytes of GPU %s, behind %#x", s.Address, s.Size, s.GPU,
				ends[s.GPU])
		}
		end := s.Address
		for _, b := range s.Blocks {
			if b.Address != end || b.Size <= 0 || b.Requested < growth.Unknown || b.Requested > b.Size {
				t.Fatalf("block %+v at %#x", b, end)
			}
			end += uint64(b.Size)
		}
		if end != s.Address+uint64(s.Size) {
			t.Fatalf("blocks up to %#x in a segment at %#x of %d bytes", end, s.Address, s.Size)
		}
		ends[s.GPU] = end
	}

	for _, s := range c.Sums {
		total += s.Reserved
		if min(s.Reserved, s.Allocated, s.Rounding, s.Pending, s.Pinned, s.Returnable, s.Largest) < 0 ||
			s.Allocated+s.Pending+s.Pinned+s.Returnable != s.Reserved || total < s.Reserved {
			t.Fatalf("%+v", s)
		}
	}
	for _, s := range c.Stats {
		if min(s.PeakAllocated, s.PeakReserved, s.Retries, s.OOMs) < 0 || s.GPU == "" {
			t.Fatalf("%+v", s)
		}
	}
}

// TestHostile changes words of a process with two GPUs, of one segment each.
func TestHostile(t *testing.T) {
	const (
		size, ptr  = 48, 72 // of a Block
		prev, next = ptr + prevAt, ptr + nextAt
		device     = 0
	)
	type want struct{ segments, changed int }
	for name, c := range map[string]struct {
		change func(f *forgery, a, b forgedGPU)
		want   want
	}{
		"nothing": {func(*forgery, forgedGPU, forgedGPU) {}, want{2, 0}},
		"cycle of next": {
			func(f *forgery, a, _ forgedGPU) { f.put(a.blocks[3]+next, a.blocks[1]) }, want{1, 1},
		},
		"next is itself": {
			func(f *forgery, a, _ forgedGPU) { f.put(a.blocks[0]+next, a.blocks[0]) }, want{1, 1},
		},
		"cycle of prev": {
			func(f *forgery, a, _ forgedGPU) { f.put(a.blocks[0]+prev, a.blocks[3]) }, want{1, 0},
		},
		"next of another GPU": {
			func(f *forgery, a, b forgedGPU) { f.put(a.blocks[3]+next, b.blocks[0]) }, want{1, 1},
		},
		"size beyond the next block": {
			func(f *forgery, a, _ forgedGPU) { f.put(a.blocks[1]+size, 2*forgedSize) }, want{1, 1},
		},
		"last size of 2^41": {
			func(f *forgery, a, _ forgedGPU) { f.put(a.blocks[3]+size, maxGPUBytes) }, want{1, 0},
		},
		"last size of 2^62": {
			func(f *forgery, a, _ forgedGPU) { f.put(a.blocks[3]+size, 1<<62) }, want{1, 1},
		},
		"size of 0": {
			func(f *forgery, a, _ forgedGPU) { f.put(a.blocks[1]+size, 0) }, want{1, 1},
		},
		"last addresses": {
			func(f *forgery, _, _ forgedGPU) { f.addGPU(2, math.MaxUint64-forgedBytes+1) }, want{2, 0},
		},
		"same addresses of two GPUs": {
			func(f *forgery, _, _ forgedGPU) { f.addGPU(2, forgedAddress) }, want{3, 0},
		},
		"same addresses of one GPU": {
			func(f *forgery, _, _ forgedGPU) { f.addGPU(0, forgedAddress+forgedSize) }, want{2, 0},
		},
		"GPU -1": {
			func(f *forgery, a, _ forgedGPU) {
				for _, b := range a.blocks {
					f.put(b+device, 255)
				}
			}, want{1, 0},
		},
		"GPU 64": {
			func(f *forgery, a, _ forgedGPU) {
				for _, b := range a.blocks {
					f.put(b+device, 64)
				}
			}, want{1, 0},
		},
		"GPU of one block": {
			func(f *forgery, a, _ forgedGPU) { f.put(a.blocks[1]+device, 1) }, want{1, 1},
		},
		"requested more than the size": {
			func(f *forgery, a, _ forgedGPU) { f.put(a.blocks[0]+size+8, 1<<60) }, want{2, 0},
		},
		"cycle in the tree": {
			func(f *forgery, a, _ forgedGPU) { f.put(a.node+nodeLeftAt, a.node, a.node) }, want{2, 0},
		},
		"tree of another GPU": {
			func(f *forgery, a, b forgedGPU) { f.put(a.node+nodeLeftAt, b.node, b.node) }, want{2, 0},
		},
		"tree is no memory": {
			func(f *forgery, a, _ forgedGPU) { f.put(a.large+setRootAt, math.MaxUint64&^7) }, want{2, 0},
		},
		"pool is no memory": {
			func(f *forgery, a, _ forgedGPU) {
				for _, b := range a.blocks {
					f.put(b+ptr-8, 1<<40)
				}
			}, want{1, 0},
		},
		"pool is its own PrivatePool": {
			func(f *forgery, a, _ forgedGPU) {
				f.put(a.large+2*setBytes+8, a.large)
				f.addTable(a.private, 3, []uint64{1, 0, a.large})
			}, want{2, 0},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newForgery(t)
			a, b := f.addGPU(0, forgedAddress), f.addGPU(1, forgedAddress+1<<30)
			c.change(f, a, b)
			got := tracertest.Must(f.read())(t)
			if (want{len(got.Segments), got.Changed}) != c.want {
				t.Errorf("%d segments, %d changed, want %+v", len(got.Segments), got.Changed,
					c.want)
			}
		})
	}
}

// TestHostileAmounts has processes that lead on and on. Some answer comes, or errLimit.
func TestHostileAmounts(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for name, change := range map[string]func(f *forgery, g forgedGPU){
		"10,000 tables of the same 2^20 blocks": func(f *forgery, g forgedGPU) {
			entries := f.add()
			for range 1<<20 + 63 {
				f.add(0, forgedAddress, g.blocks[0])
			}
			f.add(0, 0, 0)
			for at := f.used; at+8 < variables; at += 8 {
				f.put(memoryStart+at, entries)
			}
			for at := f.used; at+tableBytes <= variables; at += tableBytes {
				f.put(memoryStart+at, entries, 1<<20-1, 64<<8, 1<<20)
			}
		},
		"tables of 2^20 random entries": func(f *forgery, g forgedGPU) {
			entries := f.add()
			for range 3 << 20 {
				f.add(random.Uint64() &^ 0xff)
			}
			f.add(make([]uint64, 300)...)
			for at := f.used; at+tableBytes <= variables; at += tableBytes {
				f.put(memoryStart+at, entries, 1<<20-1, 64<<8, 1<<20)
			}
		},
		"a list of 300,000 blocks": func(f *forgery, g forgedGPU) {
			last := g.blocks[3]
			for i := range uint64(300_000) {
				b := f.addBlock(block{
					size: 512, pool: g.large, address: forgedAddress + forgedBytes + i*512, prev: last,
				})
				f.put(last+forgedLayout.ptr+nextAt, b)
				last = b
			}
		},
		"a tree of 300,000 nodes in a row": func(f *forgery, g forgedGPU) {
			last := g.node
			for range 300_000 {
				node := f.add(1, 0, 0, 0, g.blocks[3])
				f.put(last+nodeRightAt, node)
				last = node
			}
		},
		"2^19 broken segments": func(f *forgery, g forgedGPU) {
			var blocks []uint64
			for i := range uint64(400_000) {
				blocks = append(blocks, f.addBlock(block{
					size: 512, pool: g.large, address: 1<<45 + i*1024, isAllocated: true,
					next: g.blocks[0],
				}))
			}
			f.addAllocated(blocks...)
		},
		"10,000 segments that lead to one of 100,000 blocks": func(f *forgery, g forgedGPU) {
			var blocks []uint64
			for i := range uint64(110_000) {
				b := block{size: 512, pool: g.large, address: 1<<45 + i*512, isAllocated: true}
				if i > 100_000 {
					b.address, b.next = 1<<46+i*1024, blocks[50_000]
				}
				self := f.addBlock(b)
				if i > 0 && i <= 100_000 {
					f.put(blocks[i-1]+forgedLayout.ptr+nextAt, self)
					f.put(self+forgedLayout.ptr+prevAt, blocks[i-1])
				}
				blocks = append(blocks, self)
			}
			f.addAllocated(blocks...)
		},
		"segments of 2^41 bytes": func(f *forgery, g forgedGPU) {
			for i := range 5000 {
				f.addBlock(block{})
				b := f.addBlock(block{
					device: uint8(i % maxGPUs), size: maxGPUBytes, pool: g.large,
					address: uint64(i+64) << 41, isAllocated: true,
				})
				if i < 1000 {
					f.addAllocated(b)
				}
			}
		},
		"pools in a row": func(f *forgery, g forgedGPU) {
			var last uint64
			for i := range uint64(20_000) {
				pool := f.add(make([]uint64, 18)...)
				f.put(pool, comparator)
				f.put(pool+setBytes, comparator)
				b := f.addBlock(block{
					size: 512, pool: pool, address: 1<<45 + i*1024, isAllocated: true,
				})
				f.put(pool+setRootAt, f.add(1, 0, 0, 0, last), 0, 0, 1)
				last = b
			}
			f.put(g.node+nodeBlockAt, last)
		},
		"PrivatePools of all GPUs": func(f *forgery, g forgedGPU) {
			var values [][]uint64
			for i := range uint64(20_000) {
				owner := f.add(make([]uint64, ownerScanned/8)...)
				for at := uint64(0); at+poolBytes <= ownerScanned; at += poolBytes {
					f.put(owner+at, comparator)
					f.put(owner+at+setBytes, 0, owner, g.node, g.node)
				}
				values = append(values, []uint64{i + 1, 0, owner})
			}
			f.addTable(g.private, 3, values...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newForgery(t)
			g := f.addGPU(0, forgedAddress)
			change(f, g)
			c, err := f.read()
			if err != nil && !errors.Is(err, errLimit) && !errors.Is(err, errTooMany) {
				t.Fatal(err)
			}
			if c != nil {
				t.Logf("%d segments, %d changed", len(c.Segments), c.Changed)
			}
			t.Logf("%v; %d reads of %d MiB, %d MiB of our own", err, f.reads, f.bytesRead>>20, f.live>>20)
		})
	}
}

// FuzzRead reads forged memory.
func FuzzRead(f *testing.F) {
	forgery := newForgery(f)
	a := forgery.addGPU(0, forgedAddress)
	forgery.addGPU(1, forgedAddress)
	forgery.addTable(a.active, 1, a.blocks[:1])
	f.Add(slices.Concat(forgery.bytes[:2*tableBytes], forgery.bytes[variables:]))

	f.Fuzz(func(t *testing.T, memory []byte) {
		if len(memory) > 1<<16 || len(memory) < 2*tableBytes {
			return
		}
		f := newForgery(t)
		copy(f.bytes, memory[:2*tableBytes])
		f.bytes = append(f.bytes, memory[2*tableBytes:]...)
		_, _ = f.read()
	})
}
