package tracer_test

import (
	"fmt"
	"os"
	"os/exec"
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
	t.Run("direct mappings are exact to the page", testKernelMappingsDirectMappingsExact)
	t.Run("growth between two snapshots", testKernelMappingsGrowthTwoSnapshots)
}

// TestMappings separates direct mappings from the allocator's.
func TestMappings(t *testing.T) {
	t.Run("another trace does not hide the allocator's mappings", testMappingsAnotherTraceDoes)
	t.Run("of other allocators", testMappingsOfOtherAllocators)
}

// These are what a function of a target has mapped and released, as the target reports (see
// testdata/mappings.c) or as we measure.
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
		heap                int64 // resident, allocation site unknown
	}
)

func newSpace() space {
	return space{holds: make(map[mapper]mappedBy), releases: make(map[releaser]released)}
}

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
			if by.function == "map_only_read" && runningKernel() < separatesZeroPages {
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
			t.Fatalf("the target reports %q: %v", line, err)
		}
	}
	return truth
}

// measured is what a snapshot reports of the functions of a program. Rows of memory that is merely
// resident are not about mappings.
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
		got.holds[by] = mappedBy{
			sum.objects + int64(h.InuseObjects), sum.touched + h.InuseBytes,
			sum.mapped + int64(h.AllocBytes),
		}
	}

	for _, r := range snapshot.Releases {
		by := releaser{caller(r.Stack, program), r.Call}
		sum := got.releases[by]
		got.releases[by] = released{sum.calls + r.Calls, sum.bytes + r.Bytes}
	}

	totals := snapshot.Mappings
	got.reserved, got.allocator = totals.Reserved-totals.Allocator, totals.Allocator
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
		t.Errorf("%d bytes mapped directly and %d by the allocator, want %d and %d", got.reserved,
			got.allocator, want.reserved, want.allocator)
	}
}

func mustAddUp(t *testing.T, totals growth.MappingTotals, truth space) {
	t.Helper()
	want := growth.MappingTotals{
		Reserved:  truth.reserved + truth.allocator,
		Allocator: truth.allocator,
	}

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

func pagedFile(t testing.TB) string {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()

	// one at a time: of pages that were written together the kernel maps all when one is touched
	for range 16 {
		if _, err := file.Write(make([]byte, 4096)); err != nil {
			t.Fatal(err)
		}
	}
	return file.Name()
}

func startMappings(t *testing.T) (target *tracertest.Target, program string) {
	t.Helper()
	program = tracertest.Build(t, "mappings.c", "-fno-omit-frame-pointer")
	return start(t, program, pagedFile(t)), program
}

// At the largest interval calls of malloc are not sampled. Its mappings must be separated all the
// same.
func testKernelMappingsDirectMappingsExact(t *testing.T) {
	for _, mode := range modes {
		for _, interval := range []uint64{1, kernel.MaxInterval} {
			t.Run(fmt.Sprint(mode, " ", interval), func(t *testing.T) {
				target, program := startMappings(t)
				s := open(t, tracer.Options{PID: target.PID(), Interval: interval, Mode: mode})
				mustBe(t, measured(snapshot(t, s), program), newSpace())
				target.Say("go")
				truth := reported(t, target.Await("done"))
				if len(truth.holds) < 15 || len(truth.releases) < 3 {
					t.Fatalf("the target reports %+v: the test is wrong", truth)
				}
				for range 2 { // a snapshot changes nothing
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

// A return probe in the C library changes where malloc returns to, in all processes.
func testMappingsAnotherTraceDoes(t *testing.T) {
	other := start(t, tracertest.Build(t, "leak.c", "-pthread"))
	open(t, tracer.Options{PID: other.PID(), Interval: 1})
	target, program := startMappings(t)
	s := open(t, tracer.Options{PID: target.PID(), Interval: kernel.MaxInterval})
	target.Say("go")
	truth := reported(t, target.Await("done"))
	mustBe(t, measured(snapshot(t, s), program), truth)
}

// What other allocators map is none of the program's mappings, whether they are preloaded or linked
// in. The probes of the heap are closed, as between two bursts.
func testMappingsOfOtherAllocators(t *testing.T) {
	for _, a := range allocators {
		linked := map[string][]string{"preloaded": nil, "linked": {"-no-pie", a.link}}
		if a.static != "" {
			linked["linked in"] = []string{a.static, "-lstdc++", "-lm", "-pthread"}
		}
		for how, flags := range linked {
			t.Run(a.name+" "+how, func(t *testing.T) {
				flags = append([]string{"-fno-omit-frame-pointer", "-fno-builtin"}, flags...)
				program := tracertest.Build(t, "mappings.c", flags...)
				command := exec.Command(program, pagedFile(t))
				if how == "preloaded" {
					command.Env = append(os.Environ(), "LD_PRELOAD="+a.library)
				}
				target := startCommand(t, command)
				s := open(t, tracer.Options{PID: target.PID(), Interval: 1})
				if err := tracer.Probing(s).CloseHeap(); err != nil {
					t.Fatal(err)
				}

				target.Say("go")
				truth := reported(t, target.Await("done"))
				got := measured(snapshot(t, s), program)
				mustEqual(t, "holdings (objects, bytes touched, bytes mapped)", got.holds, truth.holds)
				if got.reserved != truth.reserved || got.allocator == 0 {
					t.Errorf("%d bytes mapped directly, want %d; %d by the allocator", got.reserved,
						truth.reserved, got.allocator)
				}
			})
		}
	}
}

// Pages touched since the last snapshot count in the next, and a line that maps twice counts twice.
// The program has no malloc.
func testKernelMappingsGrowthTwoSnapshots(t *testing.T) {
	program := tracertest.Build(t, "bare.c", bare...)
	target := start(t, program)
	s := open(t, tracer.Options{PID: target.PID(), Interval: 1})
	heap := sourceOf(t, s, "heap")
	if heap.Attached || !strings.Contains(heap.Reason, "no malloc symbol") {
		t.Errorf("heap: %+v", heap)
	}

	before := snapshot(t, s)
	target.Say("go")
	truth := reported(t, target.Await("done"))
	after := snapshot(t, s)
	mustBe(t, measured(after, program), truth)
	mustAddUp(t, after.Mappings, truth)

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
	mustLoseNothing(t, s)
}
