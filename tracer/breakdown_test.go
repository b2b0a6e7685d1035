package tracer_test

import (
	"encoding/xml"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// TestBreakdown compares the RSS breakdown of one process with a program that knows what it holds.
func TestBreakdown(t *testing.T) {
	t.Run("rows are what the program holds", testBreakdownRowsProgramHolds)
	t.Run("each arena has its row", testBreakdownEachArenaRow)
	t.Run("memory from before tracing started", testBreakdownMemoryTracingStarted)
	t.Run("older mapping belongs to its first toucher", testBreakdownOlderMappingBelongs)
	t.Run("files are rows by their paths", testBreakdownFilesRowsPaths)
	t.Run("Python's small objects and buffers", testBreakdownPythonSmallObjects)
	t.Run("untraced heap is of the same size", testBreakdownUntracedHeapSame)
	t.Run("terabytes are left out without PAGEMAP_SCAN", testBreakdownTerabytesLeftOut)
	t.Run("sampled rows are within their error", testBreakdownSampledRowsWithin)
}

// After each order the rows are the bytes that the program reports. Before it is traced, too, it
// may get one.
func testBreakdownRowsProgramHolds(t *testing.T) {
	for _, c := range []struct {
		before string
		orders []string
	}{
		{"", []string{"heap_partly"}},
		{"", []string{"heap_reserve", "map_reserve"}},
		{"", []string{"heap_fragment", "heap_trim"}},
		{"", []string{"heap_small", "heap_fragment", "heap_large"}},
		{"", []string{
			"map_touched", "discard", "jit_at_once", "jit_protected", "share_memfd", "stacks",
		}},
		{"", []string{"arenas"}},
		{"stacks", nil},
		{"before", []string{"map_anew", "map_anew"}},
	} {
		t.Run(fmt.Sprintf("%s before, %v", c.before, c.orders), func(t *testing.T) {
			target := startBreakdown(t)
			var facts []fact
			if c.before != "" {
				facts = do(t, target, c.before)
			}
			s := open(t, tracer.Options{PID: target.PID(), Interval: 1})
			mustReport(t, balanced(t, s), target.PID(), facts)

			for _, order := range c.orders {
				facts := whole(do(t, target, order))
				mustReport(t, balanced(t, s), target.PID(), facts)
			}
			mustLoseNothing(t, s)
		})
	}
}

// whole sums the facts of arenas, which have a case of their own.
func whole(facts []fact) []fact {
	var sums []fact
	for _, f := range facts {
		i := slices.IndexFunc(sums,
			func(sum fact) bool { return sum.name == f.name && sum.kind == f.kind })
		if i < 0 {
			sums = append(sums, f)
		} else {
			sums[i].bytes += f.bytes
		}
	}
	return sums
}

type mallocInfo struct {
	Heaps []struct {
		Totals []struct {
			Type string `xml:"type,attr"`
			Size int64  `xml:"size,attr"`
		} `xml:"total"`
	} `xml:"heap"`
}

// free bytes of each arena, in order of size.
func (m mallocInfo) free() (sizes []int64) {
	for _, heap := range m.Heaps {
		var size int64
		for _, total := range heap.Totals {
			size += total.Size
		}
		sizes = append(sizes, size)
	}
	slices.Sort(sizes)
	return sizes
}

// The oracle counts the end of each arena too, of which up to 132 KiB have never been touched.
func testBreakdownEachArenaRow(t *testing.T) {
	const slack = 256 << 10
	target, s := openOn(t, startBreakdown(t), exact)

	do(t, target, "arenas")
	got := balanced(t, s)
	var info mallocInfo
	must(t, xml.Unmarshal([]byte(strings.Join(target.Do("info"), "\n")), &info))

	want := info.free()
	rows := make(map[string]int64)
	for _, h := range holdingsOf(got, target.PID()) {
		if h.Kind == growth.KindRetained && len(h.Stack.Frames) > 0 {
			rows[h.Stack.Frames[0].Function] += h.ResidentBytes
		}
	}

	var sizes []int64
	for name, bytes := range rows {
		if name == "main heap" || strings.HasPrefix(name, "arena 0x") {
			sizes = append(sizes, bytes)
		}
	}

	slices.Sort(sizes)
	if len(want) != 9 || len(sizes) < 8 || len(sizes) > 9 {
		t.Fatalf("rows %v, want %d", rows, want)
	}

	for i, got := range sizes {
		if want := want[len(want)-len(sizes)+i]; got < want-slack || got > want+slack {
			t.Errorf("an arena keeps %d bytes, want %d: rows %v", got, want, rows)
		}
	}
	if r := residentOf(t, got, target.PID()); r.Arenas != 9 || r.Threads != 9 || !r.Traced ||
		!r.HeapTraced {
		t.Errorf("%+v, want 9 arenas and 9 threads", r)
	}
}

// Memory from before tracing started has no allocation site until it is released and touched again.
func testBreakdownMemoryTracingStarted(t *testing.T) {
	target := startBreakdown(t)
	facts := do(t, target, "before")
	s := open(t, tracer.Options{PID: target.PID(), Interval: 1})

	for range 2 { // untouched since
		mustReport(t, balanced(t, s), target.PID(), facts)
	}

	facts = do(t, target, "free_before")
	mustReport(t, balanced(t, s), target.PID(), facts)
	left := facts[0].bytes
	facts = do(t, target, "touch_again")
	facts[0].bytes = left - 12<<20
	mustReport(t, balanced(t, s), target.PID(), facts)
}

func testBreakdownOlderMappingBelongs(t *testing.T) {
	target := startBreakdown(t)
	facts := do(t, target, "before")
	s := open(t, tracer.Options{PID: target.PID(), Interval: 1})
	facts = append(facts, do(t, target, "touch_first")...)
	mustReport(t, balanced(t, s), target.PID(), facts)
}

// Each kind of mapping of a file of 8 MiB.
func testBreakdownFilesRowsPaths(t *testing.T) {
	t.Parallel()
	target, s := openOn(t, startBreakdown(t), exact)
	for _, order := range []string{"file_read", "file_shared", "file_written"} {
		path := dataFile(t, 8<<20)
		facts := do(t, target, order+" "+path)
		got := balanced(t, s)
		mustReport(t, got, target.PID(), facts)
		for _, h := range holdingsOf(got, target.PID()) {
			isOther := h.Stack.Root != fmt.Sprintf("[file: %s]", path)
			if strings.Contains(h.Stack.Root, path) && isOther && order != "file_written" {
				t.Errorf("a row of %s", h.Stack.Root)
			}
		}
	}
}

func testBreakdownPythonSmallObjects(t *testing.T) {
	target, s := openOn(t, start(t, python, tracertest.Source("breakdown.py")), exact)
	facts := do(t, target, "small")
	mustReport(t, balanced(t, s), target.PID(), facts)
	facts = append(facts, do(t, target, "bytes")...)
	mustReport(t, balanced(t, s), target.PID(), facts)
}

// TestSwapped checks that swapped memory keeps its allocation site.
func TestSwapped(t *testing.T) {
	tracertest.Swap(t)
	target, s := openOn(t, startBreakdown(t), exact)

	facts := do(t, target, "map_touched")
	mustReport(t, balanced(t, s), target.PID(), facts)
	facts = do(t, target, "page_out")
	got := balanced(t, s)
	mustReport(t, got, target.PID(), facts)
	want := kilobytes(t, fmt.Sprintf("/proc/%d/status", target.PID()))["VmSwap"]
	var all, here int64
	for _, h := range holdingsOf(got, target.PID()) {
		all += h.SwappedBytes
		if facts[0].of(h) {
			here += h.SwappedBytes
		}
	}

	mustBeNear(t, "swapped out", all, want)
	mustBeNear(t, "swapped out of the mapping", here, 32<<20-facts[0].bytes)
	if r := residentOf(t, got, target.PID()); r.Swap != want {
		t.Errorf("%d bytes swapped out, want %d", r.Swap, want)
	}
}

const unknownSite = "[heap: allocation site unknown]"

// Two runs of one program differ in the known allocation sites, and in nothing else.
func testBreakdownUntracedHeapSame(t *testing.T) {
	with, without := startBreakdown(t), startBreakdown(t)
	full := open(t, tracer.Options{PID: with.PID(), Interval: 1})
	bare := open(t, tracer.Options{
		PID: without.PID(), Interval: 1,
		Sources: []string{"mapping", "fault"},
	})

	for _, order := range []string{"heap_small", "heap_large", "heap_fragment", "map_touched"} {
		do(t, with, order)
		do(t, without, order)
	}

	got := balanced(t, bare)
	known, unknown := rowsOf(balanced(t, full), with.PID()), rowsOf(got, without.PID())
	mustBeNear(t, unknownSite, unknown[growth.KindHeap],
		known[growth.KindHeap]+known[growth.KindRetained]+known[growth.KindMetadata])
	mustBeNear(t, "mappings", unknown[growth.KindMmap], known[growth.KindMmap])
	if unknown[growth.KindRetained] != 0 || unknown[growth.KindMetadata] != 0 ||
		residentOf(t, got, without.PID()).HeapTraced {
		t.Errorf("rows %v of a heap that is not traced", unknown)
	}

	for _, h := range holdingsOf(got, without.PID()) {
		if h.Kind == growth.KindHeap && h.Stack.Root != unknownSite {
			t.Errorf("heap of %v %q where it is not traced", functions(h.Stack), h.Stack.Root)
		}
	}
}

// readPagemap makes scans read the page map, as on kernels without PAGEMAP_SCAN (before 6.7).
func readPagemap(s *tracer.Session) {
	for _, target := range tracer.Targets(s) {
		canScan := reflect.ValueOf(target.Pages.Pagemap).Elem().FieldByName("canScan")
		*(*bool)(unsafe.Pointer(canScan.UnsafeAddr())) = false
	}
}

func testBreakdownTerabytesLeftOut(t *testing.T) {
	target, s := openOn(t, startBreakdown(t), exact)

	readPagemap(s)
	facts := do(t, target, "map_vast")
	for _, order := range []string{"map_touched", "heap_small"} {
		facts = append(facts, do(t, target, order)...)
	}

	for range 2 {
		got := snapshot(t, s)
		rows, r := rowsOf(got, target.PID()), residentOf(t, got, target.PID())
		for _, f := range facts[1:] {
			row, _ := rowOf(got, target.PID(), f)
			mustBeNear(t, f.name, row, f.bytes)
		}

		mustBeNear(t, "unexplained", rows[growth.KindUnexplained], facts[0].bytes)
		mustBeNear(t, "scanned", int64(r.Scanned*float64(r.RSS)), r.RSS-facts[0].bytes)
		if got.Mappings.Unmeasured != 4<<40 || got.Mappings.Reserved < 4<<40 {
			t.Errorf("%+v, want 4 TiB not scanned", got.Mappings)
		}
	}
}

// Rows are estimates then, each with its variance. They sum to RSS all the same.
func testBreakdownSampledRowsWithin(t *testing.T) {
	t.Parallel()
	for range 4 {
		target, s := openOn(t, startBreakdown(t), tracer.Options{})

		facts := do(t, target, "heap_small")
		facts = append(facts, do(t, target, "heap_fragment")...)
		facts = append(facts, do(t, target, "heap_large")...)
		got := balanced(t, s)
		for _, f := range facts {
			mustBeWithinItsError(t, got, target.PID(), f)
		}

		if t.Failed() {
			t.Log(breakdownText(got, target.PID()))
		}
	}
}

// mustBeWithinItsError allows 4.5 standard deviations, and 2 % or 1 MiB as everywhere; of a few large
// objects that one in 400 be missed. Where few were drawn, a row and its variance are both too low by
// the same factor, so that the variance of the row as it should be counts.
func mustBeWithinItsError(t *testing.T, s *growth.Snapshot, pid int, f fact) {
	t.Helper()
	row, variance := rowOf(s, pid, f)
	off := float64(row - f.bytes)
	reported := math.Sqrt(variance)
	deviation := reported * math.Sqrt(max(1, float64(f.bytes)/float64(max(row, 1))))
	allowed := max(1<<20, 0.02*float64(f.bytes))
	if f.name == "heap_large" {
		allowed = 6 << 20
	}
	if math.Abs(off) > 4.5*deviation+allowed {
		t.Errorf("%s of %s: %d ± %.0f bytes, want %d", f.kind, f.name, row, deviation, f.bytes)
	}
	if f.name == "heap_small" && f.kind == growth.KindHeap && reported < 0.03*float64(f.bytes) {
		t.Errorf("%s of %s: a deviation of %.0f bytes, which so few samples cannot have", f.kind,
			f.name, reported)
	}
}

// isNamed reports whether a stack is of a function, or of a file or shared memory, of that name.
func isNamed(stack *growth.Stack, name string) bool {
	return slices.Contains(functions(stack), name) || strings.Contains(stack.Root, name)
}
