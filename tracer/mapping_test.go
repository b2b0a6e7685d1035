package tracer_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// TestKernelMappings compares direct mappings with what the program reports, on every kernel.
func TestKernelMappings(t *testing.T) {
	t.Run("direct mappings are exact to the page", testKernelMappingsDirectMappingsExactToPage)
	t.Run("growth between two snapshots", testKernelMappingsGrowthBetweenTwoSnapshots)
}

// TestMappings tells direct mappings from the allocator's.
func TestMappings(t *testing.T) {
	t.Run("another trace does not hide the allocator's mappings", testMappingsAnotherTraceDoesNotHideAllocatorSMappings)
}

// What a function of a target has mapped and has given back, as the target says (see testdata/mappings.c) or as we measure.
type (
	mapper struct {
		function string
		kind     growth.Kind
	}
	mappedBy struct {
		objects, touched, mapped int64
	}
	releaser struct{ function, call string }
	released struct{ calls, bytes int64 }
	space    struct {
		holds               map[mapper]mappedBy
		releases            map[releaser]released
		reserved, allocator int64
		heap                int64 // resident, of no known holder
	}
)

func newSpace() space {
	return space{holds: make(map[mapper]mappedBy), releases: make(map[releaser]released)}
}

// told is the truth in the lines of a target.
func reported(t testing.TB, lines []string) space {
	t.Helper()
	truth := newSpace()
	for _, line := range lines {
		what, rest, _ := strings.Cut(line, " ")
		var by mapper
		var held mappedBy
		var from releaser
		var gone released
		var bytes int64
		var err error
		switch what {
		case "holds":
			_, err = fmt.Sscan(rest, &by.function, &by.kind, &held.objects, &held.touched, &held.mapped)
			if by.function == "map_only_read" && runningKernel() < tellsZeroPages {
				held.touched = held.mapped
			}
			truth.holds[by] = held
		case "releases":
			_, err = fmt.Sscan(rest, &from.function, &from.call, &gone.calls, &gone.bytes)
			truth.releases[from] = gone
		case "heap":
			_, err = fmt.Sscan(rest, &truth.heap)
		case "reserved":
			_, err = fmt.Sscan(rest, &truth.reserved)
		case "allocator":
			_, err = fmt.Sscan(rest, &bytes)
			truth.allocator += bytes
		default:
			err = fmt.Errorf("unknown word %q", what)
		}
		if err != nil {
			t.Fatalf("target says %q: %v", line, err)
		}
	}
	return truth
}

// measured is what a snapshot says of the functions of a program. Rows of memory that is merely resident say nothing of
// mappings.
func measured(snapshot *growth.Snapshot, program string) space {
	got := newSpace()
	for _, h := range snapshot.Holdings {
		if h.Kind == growth.KindHeap && h.Stack.Root == unknownSite {
			got.heap += h.ResidentBytes
		}
		if h.Kind == growth.KindHeap || h.InuseObjects == 0 && h.InuseBytes == 0 && h.AllocBytes == 0 {
			continue
		}
		by := mapper{caller(h.Stack, program), h.Kind}
		sum := got.holds[by]
		got.holds[by] = mappedBy{sum.objects + int64(h.InuseObjects), sum.touched + h.InuseBytes, sum.mapped + int64(h.AllocBytes)}
	}
	for _, r := range snapshot.Releases {
		by := releaser{caller(r.Stack, program), r.Call}
		sum := got.releases[by]
		got.releases[by] = released{sum.calls + r.Calls, sum.bytes + r.Bytes}
	}
	got.reserved, got.allocator = snapshot.Mappings.Reserved-snapshot.Mappings.Allocator, snapshot.Mappings.Allocator
	return got
}

func mustEqual[K, V comparable](t *testing.T, what string, got, want map[K]V) {
	t.Helper()
	for by, w := range want {
		if g := got[by]; g != w {
			t.Errorf("%s of %v: %v, want %v", what, by, g, w)
		}
	}
	for by, g := range got {
		if _, ok := want[by]; !ok {
			t.Errorf("%s of %v: %v, want nothing", what, by, g)
		}
	}
}

func mustBe(t *testing.T, got, want space) {
	t.Helper()
	mustEqual(t, "holdings (objects, bytes touched, bytes mapped)", got.holds, want.holds)
	mustEqual(t, "releases (calls, bytes)", got.releases, want.releases)
	if got.heap != want.heap {
		t.Errorf("%d bytes of heap are resident, want %d", got.heap, want.heap)
	}
	if got.reserved != want.reserved || got.allocator != want.allocator {
		t.Errorf("%d bytes mapped directly and %d by the allocator, want %d and %d", got.reserved, got.allocator, want.reserved, want.allocator)
	}
}

// mustAddUp fails unless the totals are the sums of what the target tells.
func mustAddUp(t *testing.T, totals growth.MappingTotals, truth space) {
	t.Helper()
	want := growth.MappingTotals{Reserved: truth.reserved + truth.allocator, Allocator: truth.allocator}
	for _, h := range truth.holds {
		want.Touched += h.touched
	}
	for by, r := range truth.releases {
		if by.call == "madvise" {
			want.Released += r.bytes
		} else {
			want.Unmapped += r.bytes
		}
	}
	if totals != want {
		t.Errorf("totals %+v, want %+v", totals, want)
	}
}

// startMappings starts testdata/mappings.c with a file of its own.
func startMappings(t *testing.T) (target *tracertest.Target, program string) {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for range 16 { // one at a time: of pages that were written together the kernel maps all when one is touched
		if _, err := file.Write(make([]byte, 4096)); err != nil {
			t.Fatal(err)
		}
	}
	program = tracertest.Build(t, "mappings.c", "-fno-omit-frame-pointer")
	target = tracertest.Start(t, program, file.Name())
	target.Await("ready")
	return target, program
}

// The largest interval leaves all calls of malloc to be followed cheaply: its mappings must be told apart all the same.
func testKernelMappingsDirectMappingsExactToPage(t *testing.T) {
	for _, mode := range modes {
		for _, interval := range []uint64{1, kernel.MaxInterval} {
			t.Run(fmt.Sprint(mode, " ", interval), func(t *testing.T) {
				target, program := startMappings(t)
				s := open(t, tracer.Options{PID: target.PID(), Interval: interval, Mode: mode})
				mustBe(t, measured(snapshot(t, s), program), newSpace())
				target.Say("go")
				truth := reported(t, target.Await("done"))
				if len(truth.holds) < 15 || len(truth.releases) < 3 {
					t.Fatalf("the target tells %+v: the test is wrong", truth)
				}
				for range 2 { // looking changes nothing
					taken := snapshot(t, s)
					mustBe(t, measured(taken, program), truth)
					mustAddUp(t, taken.Mappings, truth)
				}
				if events := mustLoseNothing(t, s); events.MappingCalls < 40 {
					t.Errorf("%d mapping calls seen", events.MappingCalls)
				}
			})
		}
	}
}

// A return probe in the C library, whoever has set it and for whatever process, changes where malloc returns to.
func testMappingsAnotherTraceDoesNotHideAllocatorSMappings(t *testing.T) {
	other := tracertest.Start(t, tracertest.Build(t, "leak.c", "-pthread"))
	other.Await("ready")
	open(t, tracer.Options{PID: other.PID(), Interval: 1})
	target, program := startMappings(t)
	s := open(t, tracer.Options{PID: target.PID(), Interval: kernel.MaxInterval})
	target.Say("go")
	truth := reported(t, target.Await("done"))
	mustBe(t, measured(snapshot(t, s), program), truth)
}

// What was touched after the snapshot before counts in the next, and what was mapped twice by one line counts twice.
func testKernelMappingsGrowthBetweenTwoSnapshots(t *testing.T) {
	program := tracertest.Build(t, "bare.c", bare...)
	target := tracertest.Start(t, program)
	target.Await("ready")
	s := open(t, tracer.Options{PID: target.PID()})
	before := snapshot(t, s)
	target.Say("go")
	truth := reported(t, target.Await("done"))
	after := snapshot(t, s)
	var grown int64
	for _, h := range growth.Between(before, after) {
		grown += h.InuseBytes
		if h.AllocBytes <= 0 && h.InuseBytes != 0 {
			t.Errorf("%s has grown without having been mapped: %+v", caller(h.Stack, program), h)
		}
	}
	var want int64
	for _, h := range truth.holds {
		want += h.touched
	}
	if grown != want {
		t.Errorf("grown by %d bytes, want %d", grown, want)
	}
}
