package tracer_test

// The ledger of one process, held against a program that knows what it holds.

import (
	"encoding/xml"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer"
)

// After each order the rows are what the program says.
func TestRowsAreWhatTheProgramHolds(t *testing.T) {
	for _, orders := range [][]string{
		{"heap_small"},
		{"heap_large"},
		{"heap_partly"},
		{"heap_reserve", "map_reserve"},
		{"heap_fragment", "heap_trim"},
		{"heap_small", "heap_fragment", "heap_large"},
		{"map_touched", "discard"},
		{"jit_at_once", "jit_protected"},
		{"stacks"},
		{"arenas"},
	} {
		t.Run(strings.Join(orders, " "), func(t *testing.T) {
			target := startLedger(t)
			s := open(t, tracer.Options{PID: target.PID(), Interval: 1})
			for _, order := range orders {
				facts := whole(do(t, target, order))
				mustTell(t, balanced(t, s), target.PID(), facts)
			}
			mustLoseNothing(t, s)
		})
	}
}

// whole sums what is told of arenas, which have a test of their own.
func whole(facts []fact) []fact {
	var sums []fact
	for _, f := range facts {
		i := slices.IndexFunc(sums, func(sum fact) bool { return sum.name == f.name && sum.kind == f.kind })
		if i < 0 {
			sums = append(sums, f)
		} else {
			sums[i].bytes += f.bytes
		}
	}
	return sums
}

func TestWhatIsReservedAndNotTouchedIsNoGrowthOfAnyRow(t *testing.T) {
	target := startLedger(t)
	s := open(t, tracer.Options{PID: target.PID(), Interval: 1})
	before := balanced(t, s)
	do(t, target, "heap_reserve")
	do(t, target, "map_reserve")
	after := balanced(t, s)
	for _, h := range growth.Between(before, after) {
		if h.Kind != growth.KindFile && h.ResidentBytes > 64<<10 { // code that runs for the first time is touched
			t.Errorf("%s of %v %s has grown by %d resident bytes", h.Kind, functions(h.Stack), h.Stack.Root, h.ResidentBytes)
		}
	}
}

// mallocInfo is what malloc_info() writes.
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
func TestEachArenaHasItsRow(t *testing.T) {
	const slack = 256 << 10
	target := startLedger(t)
	s := open(t, tracer.Options{PID: target.PID(), Interval: 1})
	do(t, target, "arenas")
	got := balanced(t, s)
	target.Say("info")
	var info mallocInfo
	if err := xml.Unmarshal([]byte(strings.Join(target.Await("done"), "\n")), &info); err != nil {
		t.Fatal(err)
	}
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
	if r := residentOf(t, got, target.PID()); r.Arenas != 9 || r.Threads != 9 || !r.Traced || !r.HeapTraced {
		t.Errorf("%+v, want 9 arenas and 9 threads", r)
	}
}

func TestStacksOfThreadsAreARowWhenTheyWereThereBeforeTheAttachToo(t *testing.T) {
	target := startLedger(t)
	facts := do(t, target, "stacks")
	s := open(t, tracer.Options{PID: target.PID(), Interval: 1})
	got := balanced(t, s)
	mustTell(t, got, target.PID(), facts)
	if r := residentOf(t, got, target.PID()); r.Threads != 21 {
		t.Errorf("%d threads, want 21", r.Threads)
	}
}

// What is there at the attach has no holder, until it is given back and touched again.
func TestMemoryFromBeforeTheAttach(t *testing.T) {
	target := startLedger(t)
	facts := do(t, target, "before")
	s := open(t, tracer.Options{PID: target.PID(), Interval: 1})
	for range 2 { // untouched since
		mustTell(t, balanced(t, s), target.PID(), facts)
	}
	facts = do(t, target, "free_before")
	mustTell(t, balanced(t, s), target.PID(), facts)
	left := facts[0].bytes
	facts = do(t, target, "touch_again")
	facts[0].bytes = left - 12<<20
	mustTell(t, balanced(t, s), target.PID(), facts)
}

func TestMemoryThatIsMappedAnewAtThePlaceOfOlderHasAHolder(t *testing.T) {
	target := startLedger(t)
	do(t, target, "before")
	s := open(t, tracer.Options{PID: target.PID(), Interval: 1})
	for range 2 {
		facts := do(t, target, "map_anew")
		mustTell(t, balanced(t, s), target.PID(), facts)
	}
}

func TestMemoryThatWasMappedBeforeTheAttachIsHeldByWhomeverTouchesItFirst(t *testing.T) {
	target := startLedger(t)
	facts := do(t, target, "before")
	s := open(t, tracer.Options{PID: target.PID(), Interval: 1})
	facts = append(facts, do(t, target, "touch_first")...)
	mustTell(t, balanced(t, s), target.PID(), facts)
}

// Each kind of mapping of a file of 8 MiB.
func TestFilesAreRowsByTheirPaths(t *testing.T) {
	t.Parallel()
	for _, order := range []string{"file_read", "file_shared", "file_written"} {
		t.Run(order, func(t *testing.T) {
			target := startLedger(t)
			s := open(t, tracer.Options{PID: target.PID(), Interval: 1})
			path := dataFile(t, 8<<20)
			facts := do(t, target, order+" "+path)
			got := balanced(t, s)
			mustTell(t, got, target.PID(), facts)
			for _, h := range holdingsOf(got, target.PID()) {
				if strings.Contains(h.Stack.Root, path) && h.Stack.Root != fmt.Sprintf("[file: %s]", path) && order != "file_written" {
					t.Errorf("a row of %s", h.Stack.Root)
				}
			}
		})
	}
}
