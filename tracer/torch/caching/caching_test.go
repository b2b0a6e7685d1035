package caching

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

func TestMain(m *testing.M) { tracertest.Main(m) }

// versions are the layouts of testdata/caching.cc.
var versions = []int{200, 206, 299}

// An allocator is a process of testdata/segments.cc with its reader.
type allocator struct {
	*tracertest.Target
	t       testing.TB
	process *process.Process
	reader  Reader
}

func startAllocator(t testing.TB, version int) *allocator {
	t.Helper()
	layout := fmt.Sprint("-DTORCH=", version)
	library := tracertest.BuildCachingAllocator(t, layout)
	driver := tracertest.BuildLibrary(t, "libcuda.c", "libcuda.so.1")
	program := tracertest.Build(t, "segments.cc", "-pthread", layout, library, driver,
		"-Wl,-rpath,"+filepath.Dir(library)+":"+filepath.Dir(driver))

	a := &allocator{Target: tracertest.Start(t, program), t: t}
	a.Do("list")
	a.process = tracertest.Must(process.Open(a.PID()))(t)
	t.Cleanup(func() { a.process.Close() })
	return a
}

func (a *allocator) read() *growth.GPUCache {
	a.t.Helper()
	return tracertest.Must(a.reader.Read(a.process))(a.t)
}

// list returns the segments by the program's own records.
func (a *allocator) list() *growth.GPUCache {
	a.t.Helper()
	c := &growth.GPUCache{}
	for _, line := range a.Do("list") {
		kind, rest, _ := strings.Cut(line, " ")
		var numbers []int64
		for number := range strings.FieldsSeq(rest) {
			numbers = append(numbers, tracertest.Must(strconv.ParseInt(number, 10, 64))(a.t))
		}
		switch n := numbers; kind {
		case "segment":
			c.Segments = append(c.Segments, growth.GPUSegment{
				GPU: fmt.Sprint(n[0]), Address: uint64(n[1]), Size: n[2], Stream: uint64(n[3]),
				Pool: poolWith(uint64(n[4]), uint64(n[5])), Small: n[6] == 1, Expandable: n[7] == 1,
			})
		case "block":
			s := &c.Segments[len(c.Segments)-1]
			s.Blocks = append(s.Blocks, growth.GPUBlock{
				Address: uint64(n[0]), Size: n[1], Requested: n[2], State: growth.GPUBlockState(n[3]),
			})
		case "stats":
			if n[2] != 0 {
				c.Stats = append(c.Stats, growth.GPUCacheStats{
					GPU: fmt.Sprint(n[0]), PeakAllocated: n[1], PeakReserved: n[2], Retries: n[3], OOMs: n[4],
				})
			}
		}
	}

	return c
}

func poolWith(first, second uint64) growth.GPUPool {
	switch {
	case second != 0:
		return growth.GPUPool{Kind: growth.GPUPoolUser, ID: [2]uint64{first, second}}
	case first != 0:
		return growth.GPUPool{Kind: growth.GPUPoolGraph, ID: [2]uint64{first, second}}
	}

	return growth.GPUPool{}
}

// mustEqual compares the segments that are read with the program's own list.
func (a *allocator) mustEqual() {
	a.t.Helper()
	want, got := a.list(), a.read()
	if got.Changed != 0 {
		a.t.Errorf("%d segments changed", got.Changed)
	}
	for i := range max(len(want.Segments), len(got.Segments)) {
		var w, g growth.GPUSegment
		if i < len(want.Segments) {
			w = want.Segments[i]
		}
		if i < len(got.Segments) {
			g = got.Segments[i]
		}
		if !reflect.DeepEqual(w, g) {
			a.t.Fatalf("%d segments, want %d; segment %d is\n%+v, want\n%+v",
				len(got.Segments), len(want.Segments), i, g, w)
		}
	}
	if !slices.Equal(got.Stats, want.Stats) {
		a.t.Fatalf("counts are %+v, want %+v", got.Stats, want.Stats)
	}
}

// reserved is the sum of the segments of the default pools, and the part of it that empty_cache()
// returns.
func reserved(c *growth.GPUCache) (bytes, returnable int64) {
	for _, sum := range c.Sums {
		if sum.Kind == growth.GPUPoolDefault {
			bytes, returnable = bytes+sum.Reserved, returnable+sum.Returnable
		}
	}

	return bytes, returnable
}

// orders are random orders for a program, by a seed.
type orders struct {
	*rand.Rand
	live   map[int]bool // blocks
	last   int          // block
	issued []string
}

func (o *orders) add(format string, arguments ...any) {
	o.issued = append(o.issued, fmt.Sprintf(format, arguments...))
}

// size of a block in bytes: more often small than large.
func (o *orders) size() int {
	return 1 + o.IntN(1<<(6+o.IntN(20)))
}

func (o *orders) anyLive() int {
	return slices.Sorted(maps.Keys(o.live))[o.IntN(len(o.live))]
}

func (o *orders) addRandom() {
	gpu := o.IntN(2)
	pools := []string{"1 0", "2 0", "0 7"}
	switch n := o.IntN(200); {
	case n < 2:
		o.add("empty")
	case n < 6:
		o.add("events")
	case n < 12:
		o.add("begin %d %s", gpu, pools[o.IntN(3)])
	case n < 24:
		o.add("end %d", gpu)
	case n < 26:
		o.add("release %d %s", gpu, pools[o.IntN(3)])
	case n < 30:
		o.add("expandable %d", o.IntN(2))
	case n < 32:
		o.add("fail %d", 1+o.IntN(3))
	case n < 85 && len(o.live) > 0:
		name := o.anyLive()
		delete(o.live, name)
		o.add("%s %d", []string{"free", "free", "free", "used"}[o.IntN(4)], name)
	default:
		o.last++
		o.add("malloc %d %d %d %d", o.last, gpu, o.IntN(3)*4096, o.size())
	}
}

// execute has a program execute random orders.
func (o *orders) execute(a *allocator, n int) {
	a.t.Helper()
	for range n {
		o.issued = o.issued[:0]
		o.addRandom()
		printed := a.Do(o.issued...)
		if strings.HasPrefix(o.issued[0], "malloc") && slices.Equal(printed, []string{"1"}) {
			o.live[o.last] = true
		} else if len(printed) > 0 && printed[0] != "0" {
			a.t.Fatalf("%s: %q", o.issued, printed)
		}
	}
}

func newOrders(seed uint64) *orders {
	return &orders{Rand: rand.New(rand.NewPCG(seed, 1)), live: make(map[int]bool)}
}

// TestRead compares the segments of a process with its own list, after random orders.
func TestRead(t *testing.T) {
	for _, version := range versions {
		for seed := range uint64(3) {
			t.Run(fmt.Sprintf("%d, seed %d", version, seed), func(t *testing.T) {
				a, o := startAllocator(t, version), newOrders(seed)
				a.Do("malloc 0 0 0 700") // one is allocated all the time
				for range 20 {
					o.execute(a, 75)
					a.mustEqual()
				}

				a.Do("events")
				a.mustEqual()
				before, returnable := reserved(a.read())
				a.Do("empty")
				if after, _ := reserved(a.read()); before-after != returnable {
					t.Errorf("empty_cache() returned %d bytes, want %d", before-after, returnable)
				}
			})
		}
	}
}

func TestReadWithout(t *testing.T) {
	a := startAllocator(t, 206)
	if _, err := a.reader.Read(a.process); !errors.Is(err, ErrNoBlocks) {
		t.Errorf("before the first block: %v", err)
	}
	a.Do("malloc 1 0 0 512")
	a.mustEqual()
	a.Do("free 1")
	if _, err := a.reader.Read(a.process); !errors.Is(err, ErrNoBlocks) {
		t.Errorf("after the last block: %v", err)
	}

	own := tracertest.Must(process.Open(os.Getpid()))(t)
	defer own.Close()
	if _, err := new(Reader).Read(own); !errors.Is(err, ErrNotLoaded) {
		t.Errorf("of a process without PyTorch: %v", err)
	}
}

// TestReadChurn reads while a thread allocates and frees. Blocks that are there all the time must
// be in each segment that is read, and be found at some time.
func TestReadChurn(t *testing.T) {
	for _, version := range versions {
		t.Run(strconv.Itoa(version), func(t *testing.T) {
			const readings = 30
			a, o := startAllocator(t, version), newOrders(9)
			o.execute(a, 500)
			a.Do("events", "end 0", "end 1", "fail 0", "expandable 0")
			kept := make(map[uint64]growth.GPUBlock)
			for _, s := range a.list().Segments {
				for _, b := range s.Blocks {
					if b.State == growth.GPUBlockAllocated {
						kept[b.Address] = b
					}
				}
			}

			a.Do("churn 5")
			missing, changed, segments, counted := maps.Clone(kept), 0, 0, 0
			for n := 0; n < readings || len(missing) > 0 && n < 100*readings; n++ {
				c, err := a.reader.Read(a.process)
				if errors.Is(err, ErrNoBlocks) {
					continue // the only table grows
				}
				tracertest.NoError(t, err)
				changed, segments = changed+c.Changed, segments+len(c.Segments)
				counted += len(c.Stats)
				for i := range c.Segments {
					mustKeep(t, &c.Segments[i], kept, missing)
				}
			}
			a.Do("stop")
			t.Logf("%d of %d segments changed", changed, changed+segments)
			if len(missing) != 0 {
				t.Errorf("%d of %d blocks were never found", len(missing), len(kept))
			}
			if counted < readings/2 {
				t.Errorf("%d counts of GPUs in %d readings or more", counted, readings)
			}
			a.mustEqual()
		})
	}
}

// mustKeep checks a segment: its blocks fill it, and those that are kept are as they were. It takes
// them off the missing ones.
func mustKeep(t *testing.T, s *growth.GPUSegment, kept, missing map[uint64]growth.GPUBlock) {
	t.Helper()
	end := s.Address
	for _, b := range s.Blocks {
		if b.Address != end || b.Size <= 0 {
			t.Fatalf("block %+v at %#x of %+v", b, end, s)
		}
		end += uint64(b.Size)
		delete(missing, b.Address)
	}
	if end != s.Address+uint64(s.Size) {
		t.Fatalf("%d bytes are full of %+v", end-s.Address, s)
	}

	for address, b := range kept {
		if address < s.Address || address >= end {
			continue
		}
		i, ok := slices.BinarySearchFunc(s.Blocks, address, func(b growth.GPUBlock, a uint64) int {
			return cmp.Compare(b.Address, a)
		})
		if !ok || s.Blocks[i] != b {
			t.Fatalf("%+v is not in %+v", b, s)
		}
	}
}
