package liveness

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/tracer/heap/glibc"
	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// all is the residency of a range all of which is in RAM.
func all(start, end uint64) uint64 { return end - start }

// mallocInfo is the program's count of all its arenas, in bytes.
type mallocInfo struct{ heaps, fast, rest uint64 }

var infoLine = regexp.MustCompile(`<(total|system) type="(\w+)"(?: count="(\d+)")? size="(\d+)"/>`)

// info returns the program's own counts, the last of which are about all arenas.
func (p *program) info() (info mallocInfo) {
	p.Say("info")
	text := strings.Join(p.Await("done"), "\n")
	arenas := uint64(strings.Count(text, "<heap "))
	for _, match := range infoLine.FindAllStringSubmatch(text, -1) {
		count, _ := strconv.ParseUint(match[3], 10, 64) // of mappings there is none
		size, err := strconv.ParseUint(match[4], 10, 64)
		if err != nil {
			p.t.Fatal(err)
		}
		switch match[1] + " " + match[2] {
		case "system current":
			info.heaps = size
		case "total fast":
			info.fast = size
		case "total rest": // with the top chunks; sizes of all others have their PREV_INUSE
			info.rest = size - (count - arenas)
		}
	}
	return info
}

func TestWalkHeaps(t *testing.T) {
	// There, the variables of the first thread lie before the first chunk.
	t.Run("static program", func(t *testing.T) {
		path := tracertest.Build(t, "liveness.c", "-pthread", "-static")
		p := startBuild(t, "mixed", path)
		got, err := mustFind(t, p.process).Allocator.(*glibc.Malloc).WalkHeaps(p.process, mapsOf(t, p.process), all)
		if !errors.Is(err, glibc.ErrBrokenChain) {
			t.Errorf("%+v, %v", got, err)
		}
	})

	t.Run("one arena", func(t *testing.T) {
		t.Setenv("MALLOC_ARENA_MAX", "1")
		startProgram(t, "mixed").mustWalk()
	})

	// The program's own numbers are of the same moment.
	t.Run("to the byte, one thread", testWalkHeapsExact)
	t.Run("the large chunks", testLargeChunks)
	t.Run("a heap that grows meanwhile", testGrowingHeap)
	t.Run("a heap above a GiB", testBigHeap)

	t.Run("memory that is not in RAM", func(t *testing.T) {
		p, free := startFragmented(t)
		half := func(start, end uint64) uint64 { return (end - start) / 2 }
		got, err := mustFind(t, p).Allocator.(*glibc.Malloc).WalkHeaps(p, mapsOf(t, p), half)
		if most := (free + got.Cached) / 2; err != nil || got.FreeResident > most ||
			got.FreeResident < most-1000 {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

// mustWalk walks the heaps while the program stands still, and while it goes on.
func (p *program) mustWalk() {
	p.t.Helper()
	a := mustFind(p.t, p.process).Allocator.(*glibc.Malloc)
	for range 5 {
		p.Say("stop")
		p.Await("stopped")
		p.mustWalkAtRest(a)
		p.Say("go")
		p.Await("going")
	}

	const walks = 10
	complete := 0
	for range walks {
		got, err := a.WalkHeaps(p.process, mapsOf(p.t, p.process), all)
		switch {
		case err == nil:
			complete++
		case !errors.Is(err, glibc.ErrBrokenChain):
			p.t.Errorf("%+v, %v", got, err)
		}
	}
	p.t.Logf("%d of %d walks of a busy program were complete", complete, walks)
}

// mustWalkAtRest compares a walk with the program's own counts. A thread that is being made or is
// ending may still allocate: then the program counts differently before and after the walk.
func (p *program) mustWalkAtRest(a *glibc.Malloc) {
	p.t.Helper()
	for {
		before := p.info()
		got, err := a.WalkHeaps(p.process, mapsOf(p.t, p.process), all)
		if p.info() != before {
			continue
		}

		sum := got.InUse + got.Cached + got.Free
		if err != nil || got.Free != before.rest || sum != before.heaps || got.Cached < before.fast {
			p.t.Errorf("%+v, %d in all, %v; malloc_info: %+v", got, sum, err, before)
		}
		return
	}
}

// startFragmented starts a program most of whose heap is free, and returns the free bytes by
// mallinfo2.
func startFragmented(t *testing.T) (p *process.Process, free uint64) {
	t.Helper()
	target := tracertest.Start(t, tracertest.Build(t, "causes.c"), "fragment", "1000", "20")
	t.Cleanup(target.Hangup)
	target.Await("ready")
	target.Say("info")
	var heap, inUse uint64
	line := target.Await("done")[0]
	tracertest.Must(fmt.Sscanf(line, "info %d %d %d", &heap, &free, &inUse))(t)
	return openProcess(t, target.PID()), free
}

func testWalkHeapsExact(t *testing.T) {
	p, free := startFragmented(t)
	got, err := mustFind(t, p).Allocator.(*glibc.Malloc).WalkHeaps(p, mapsOf(t, p), all)
	if err != nil || got.Free != free || got.FreeResident != free+got.Cached {
		t.Errorf("%+v, %v; want %d bytes free", got, err, free)
	}
}

// testLargeChunks compares the large chunks in use with malloc_usable_size of the process.
func testLargeChunks(t *testing.T) {
	target := tracertest.Start(t, tracertest.Build(t, "largechunks.c"))
	t.Cleanup(target.Hangup)
	var want mem.Spans
	for _, line := range target.Await("ready") {
		var start, size uint64
		if _, err := fmt.Sscanf(line, "chunk %d %d", &start, &size); err == nil {
			want = append(want, mem.Span{Start: start, End: start + size})
		}
	}

	p := openProcess(t, target.PID())
	got, err := mustFind(t, p).Allocator.(*glibc.Malloc).WalkHeaps(p, mapsOf(t, p), all)
	if err != nil || len(want) != 5 || !slices.Equal(got.Large, want) {
		t.Errorf("%+v, %v; want %+v", got.Large, err, want)
	}
}

// testBigHeap compares a heap that is too large for a walk with mallinfo2 of the process: to the byte
// while that stands still, and where it frees chunks in the middle of a walk. Then 64 blocks of 300 kB at most come and go, and the heap grows.
func testBigHeap(t *testing.T) {
	target := tracertest.Start(t, tracertest.Build(t, "bigheap.c"))
	t.Cleanup(target.Hangup)
	var heap, free, fast uint64
	info := func(lines []string, name string) {
		t.Helper()
		line := lines[len(lines)-1]
		tracertest.Must(fmt.Sscanf(line, name+" %d %d %d", &heap, &free, &fast))(t)
	}
	info(target.Await("done"), "ready")

	p := openProcess(t, target.PID())
	process.KeepMemory(p)
	a := ProcessAllocator{Allocator: mustFind(t, p).Allocator}
	mustBe := func(got glibc.HeapChunks, err error) {
		t.Helper()
		if err != nil || !got.ByBins || got.Free != free-fast || got.InUse+got.Cached+got.Free != heap ||
			got.Cached < fast || got.FreeResident != got.Free+got.Cached {
			t.Errorf("%+v, %v; mallinfo2: %d bytes, %d free, %d in fastbins", got, err, heap, free,
				fast)
		}
	}
	mustBe(a.WalkHeaps(p, all))

	// Chunks get to the front of a bin whose front has been read.
	maps := mapsOf(t, p)
	memory := tracertest.Must(newPrivateMemory(p, withRoom(maps)))(t)
	interrupted := &interruptedMemory{Reader: memory, at: 200, interrupt: func() {
		info(target.Do("free"), "freed")
	}}
	mustBe(a.Allocator.(*glibc.Malloc).WalkHeaps(interrupted, maps, all))
	if interrupted.reads < 2*interrupted.at {
		t.Errorf("%d reads: the test is wrong", interrupted.reads)
	}

	target.Say("go")
	target.Await("done")
	// The bins are not read at one moment.
	const walks, enough = 1000, 10
	most := int64(64*300_000 + free/10)
	complete := 0
	for i := 0; i < walks && complete < enough; i++ {
		got, err := a.WalkHeaps(p, all)
		switch off := int64(got.Free) - int64(free); {
		case errors.Is(err, glibc.ErrLargeHeap), errors.Is(err, glibc.ErrBrokenChain):
		case err != nil, off > most, off < -most:
			t.Errorf("%+v, %v: %d bytes are free, %d at rest", got, err, got.Free, free)
		default:
			complete++
		}
	}
	if complete < enough {
		t.Errorf("%d of %d walks were complete", complete, walks)
	}
}

// An interruptedMemory calls a function before one of its reads.
type interruptedMemory struct {
	mem.Reader
	reads, at int
	interrupt func()
}

func (m *interruptedMemory) Peek(addresses []uint64, size int) ([][]byte, error) {
	if m.reads++; m.reads == m.at {
		m.interrupt()
	}
	return m.Reader.Peek(addresses, size)
}

// testGrowingHeap walks a heap as far as it went when the maps were read. To find its end, both are read
// again.
func testGrowingHeap(t *testing.T) {
	target := tracertest.Start(t, tracertest.Build(t, "steps.c"))
	t.Cleanup(target.Hangup)
	target.Await("ready")
	target.Do("leak 100 100")
	p := openProcess(t, target.PID())
	maps := mapsOf(t, p)
	heap := maps[slices.IndexFunc(maps, func(m process.Mapping) bool { return m.Path == "[heap]" })]

	const objects, size = 20_000, 1000
	target.Do(fmt.Sprintf("leak %d %d", objects, size))
	got, err := mustFind(t, p).Allocator.(*glibc.Malloc).WalkHeaps(p, maps, all)
	sum := got.InUse + got.Cached + got.Free
	if before := heap.End - heap.Start; err != nil || sum > before || sum < before-2*size {
		t.Errorf("%+v, %d in all, %v; %d before it grew", got, sum, err, before)
	}

	found, err := mustFind(t, p).Heaps(p, maps)
	if !errors.Is(err, glibc.ErrBrokenChain) {
		t.Errorf("by the maps of before: %+v, %v", found.Spans, err)
	}
	found, err = mustFind(t, p).Heaps(p, mapsOf(t, p))
	if err != nil || len(found.Spans) != 1 || found.Spans[0].Len() < objects*size {
		t.Errorf("by the maps of now: %+v, %v", found.Spans, err)
	}
}
