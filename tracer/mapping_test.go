package tracer_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/addrspace"
	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// TestKernelMappings compares direct mappings with the program's report, on every kernel.
func TestKernelMappings(t *testing.T) {
	t.Run("direct mappings are exact to the page", testKernelMappingsDirectMappingsExact)
	t.Run("growth between two snapshots", testKernelMappingsGrowthTwoSnapshots)
}

// TestMappings separates direct mappings from the allocator's.
func TestMappings(t *testing.T) {
	t.Run("another trace does not hide the allocator's mappings", testMappingsAnotherTraceDoes)
	t.Run("of other allocators", testMappingsOfOtherAllocators)
}

// TestMappingStorm maps and unmaps as fast as it goes. Most of these calls reach user space as
// counts alone. The program's own numbers and /proc/PID/maps must agree with the remaining
// mappings.
func TestMappingStorm(t *testing.T) {
	t.Run("kept mappings under a storm are exact", testMappingStormKeptExact)
	t.Run("sites that were walked leave the budget to others", testMappingStormRepeats)
	t.Run("random calls of threads that pass mappings on", testMappingStormRandomCalls)
	t.Run("a library that comes and goes", testMappingStormLibraries)
	t.Run("two lines of Python at one depth", testMappingStormPythonLines)
	t.Run("the maps correct what such calls leave alone", testMappingStormMapsCorrect)
	t.Run("more calls than are kept, between two snapshots", testMappingStormManyCalls)
}

// These are the mappings and releases of a function of a target, as the target reports (see
// testdata/mappings.c) or as we measure.
type (
	mapper struct {
		function string
		kind     growth.Kind
	}
	mappedBy struct {
		objects, touched, mapped int64
	}
	space struct {
		holds               map[mapper]mappedBy
		released, unmapped  int64 // by madvise; by munmap
		reserved, allocator int64
		heap                int64 // resident, allocation site unknown
	}
)

func newSpace() space {
	return space{holds: make(map[mapper]mappedBy)}
}

func reported(t testing.TB, lines []string) space {
	t.Helper()
	truth := newSpace()
	for _, line := range lines {
		what, rest, _ := strings.Cut(line, " ")
		var by mapper
		var held mappedBy
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
			var call string
			if _, err = fmt.Sscan(rest, &call, &bytes); call == "madvise" {
				truth.released += bytes
			} else {
				truth.unmapped += bytes
			}
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

// measured is a snapshot's data on the functions of a program. Rows of memory that is merely
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

	totals := snapshot.Mappings
	got.released, got.unmapped = totals.Released, totals.Unmapped
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
	if got.released != want.released || got.unmapped != want.unmapped {
		t.Errorf("%d bytes were released by madvise and %d by munmap, want %d and %d", got.released,
			got.unmapped, want.released, want.unmapped)
	}
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
		Released:  truth.released,
		Unmapped:  truth.unmapped,
	}

	for _, h := range truth.holds {
		want.Touched += h.touched
	}

	if totals != want {
		t.Errorf("totals %+v, want %+v", totals, want)
	}
}

func pagedFile(t testing.TB) string {
	t.Helper()
	file := tracertest.Must(os.Create(filepath.Join(t.TempDir(), "file")))(t)
	defer file.Close()

	// one at a time: of pages that were written together the kernel maps all when one is touched
	for range 16 {
		_, err := file.Write(make([]byte, process.PageSize))
		must(t, err)
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
	ways := []tracer.Options{{Interval: 1}}
	for _, mode := range modes {
		ways = append(ways, tracer.Options{Interval: kernel.MaxInterval, Mode: mode})
	}
	for _, options := range ways {
		t.Run(fmt.Sprint(options.Mode, " ", options.Interval), func(t *testing.T) {
			target, program := startMappings(t)
			_, s := openOn(t, target, options)
			mustBe(t, measured(snapshot(t, s), program), newSpace())
			truth := reported(t, target.Do("go"))
			if len(truth.holds) < 15 || truth.released == 0 || truth.unmapped == 0 {
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

// A return probe in the C library changes where malloc returns to, in all processes.
func testMappingsAnotherTraceDoes(t *testing.T) {
	other := start(t, tracertest.Build(t, "leak.c", "-pthread"))
	open(t, tracer.Options{PID: other.PID(), Interval: 1})
	target, program := startMappings(t)
	s := open(t, tracer.Options{PID: target.PID(), Interval: kernel.MaxInterval})
	truth := reported(t, target.Do("go"))
	mustBe(t, measured(snapshot(t, s), program), truth)
}

// Mappings by other allocators are none of the program's mappings, whether they are preloaded or
// linked in. The probes of the heap are closed, as between two bursts.
func testMappingsOfOtherAllocators(t *testing.T) {
	for _, a := range allocators {
		linked := map[string][]string{"preloaded": nil}
		if a.static != "" {
			linked["linked in"] = []string{a.static, "-lstdc++", "-lm", "-pthread"}
		}
		for how, flags := range linked {
			t.Run(a.name+" "+how, func(t *testing.T) {
				flags = append([]string{"-fno-omit-frame-pointer", "-fno-builtin"}, flags...)
				program := tracertest.Build(t, "mappings.c", flags...)
				command := exec.Command(program, pagedFile(t))
				if how == "preloaded" {
					command = preloading(a.library, command)
				}
				target, s := openOn(t, startCommand(t, command), exact)
				closeHeap(t, s)
				truth := reported(t, target.Do("go"))
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

// sampleWhile takes a sample every few milliseconds until the target has carried out its order, and
// returns its report.
func sampleWhile(t *testing.T, s *tracer.Session, target *tracertest.Target, order string) []string {
	t.Helper()
	target.Say(order)
	done := make(chan []string)
	go func() { done <- target.Await("done") }()
	for {
		select {
		case lines := <-done:
			return lines
		case <-time.After(5 * time.Millisecond):
			s.Sample()
		}
	}
}

func startStorm(t testing.TB) (*tracertest.Target, string) {
	program := tracertest.Build(t, "mapstorm.c", "-fno-omit-frame-pointer", "-pthread", "-ldl")
	return start(t, program), program
}

// mustMatchMaps fails if /proc/PID/maps has shown anything that the calls had not.
func mustMatchMaps(t *testing.T, totals growth.MappingTotals) {
	t.Helper()
	if totals.Unknown != 0 || totals.Vanished != 0 {
		t.Errorf("of the maps, %d bytes are not known from calls, and %d bytes of calls are not there",
			totals.Unknown, totals.Vanished)
	}
}

// mappedBytes are all bytes that a process has mapped, but for its heap and the kernel's page for
// probes.
func mappedBytes(t *testing.T, pid int) (sum int64) {
	t.Helper()
	for _, m := range mapsOf(t, pid) {
		if m.Path != "[heap]" && m.Path != "[uprobes]" {
			sum += int64(m.End - m.Start)
		}
	}
	return sum
}

func testMappingStormKeptExact(t *testing.T) {
	target, program := startStorm(t)
	s := open(t, tracer.Options{PID: target.PID(), Interval: kernel.MaxInterval})
	truth := reported(t, sampleWhile(t, s, target, "keep 300"))
	got := balanced(t, s)
	mustBe(t, measured(got, program), truth)
	mustMatchMaps(t, got.Mappings)

	if counted(t, s, bpf.CountSiteStacks) == 0 {
		t.Error("each stack was walked: there was no storm")
	}
	mustLoseNothing(t, s)
}

// Sites that have been walked leave most of the budget to those that have not: each of them may be
// walked 64 times at once. Of this budget all sites could have a quarter of these walks.
func testMappingStormRepeats(t *testing.T) {
	const sizes, times = 200, 64 // each size is a site
	const share = 0.0004         // of the time
	target := start(t, python, "-c", fmt.Sprintf(`
import mmap
print("ready", flush=True)
input()
for _ in range(%d):
    for size in range(1, %d):
        mmap.mmap(-1, 4096 * size).close()
print("done", flush=True)
input()
`, times, sizes+1))
	s := open(t, tracer.Options{PID: target.PID(), Sources: []string{"mapping"}})
	must(t, tracer.Kernel(s).LimitWalks(share))
	target.Do("go")

	unwalked := counted(t, s, bpf.CountSiteStacks) + counted(t, s, bpf.DropMappingWalks)
	walked := sizes*times - int(unwalked)
	if walked <= 0 || walked > sizes*times/8 {
		t.Errorf("%d walks of %d calls, want some and at most an eighth", walked, sizes*times)
	}
}

// testMappingStormMapsCorrect maps memory by shmat(2), which no probe sees, beside calls that fall
// into each reading of the maps. An event comes each 0.3 ms: too often for the reader of events to
// find the ring buffer empty after a pause, and too seldom to fill it soon. Snapshots end all the
// same.
func testMappingStormMapsCorrect(t *testing.T) {
	target := start(t, python, "-c", `
import ctypes, mmap, threading, time
libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype, libc.shmdt.argtypes = ctypes.c_void_p, [ctypes.c_void_p]

def resize():
    mapping = mmap.mmap(-1, 4096)
    while True:
        for size in 8192, 4096:
            mapping.resize(size)
            time.sleep(0.0002)

threading.Thread(target=resize, daemon=True).start()
print("ready", flush=True)
input()
segment = libc.shmget(0, 16 << 20, 0o600)
address = libc.shmat(segment, None, 0)
assert libc.shmctl(segment, 0, None) == 0 and address != -1
print("done", flush=True)
input()
assert libc.shmdt(address) == 0
print("done", flush=True)
input()
`)
	s := open(t, tracer.Options{PID: target.PID(), Sources: []string{"mapping"}})
	const mapped = 16 << 20
	order(target, "map")
	if got := snapshot(t, s).Mappings.Unknown; got < mapped || got > mapped+mapped/2 {
		t.Errorf("%d bytes are mapped without a call, want %d", got, mapped)
	}

	order(target, "unmap")
	got := snapshot(t, s).Mappings
	if got.Unknown > mapped/2 || got.Vanished < mapped || got.Vanished > mapped+mapped/2 {
		t.Errorf("%d bytes are mapped without a call, and %d have vanished, want 0 and %d",
			got.Unknown, got.Vanished, mapped)
	}
}

// testMappingStormManyCalls makes many times more calls than are kept. In between, samples are taken,
// and no snapshot.
func testMappingStormManyCalls(t *testing.T) {
	defer func(bound int) { addrspace.MaxCalls = bound }(addrspace.MaxCalls)
	addrspace.MaxCalls = 4096

	target, program := startStorm(t)
	s := open(t, tracer.Options{PID: target.PID(), Interval: kernel.MaxInterval})
	var truth space
	for range 40 {
		truth = reported(t, target.Do("random 250"))
		s.Sample()
	}

	got := snapshot(t, s)
	mustMatchMaps(t, got.Mappings)
	by := measured(got, program).holds[mapper{"change", growth.KindMmap}]
	if by.touched != truth.reserved {
		t.Errorf("%d bytes are touched, want %d", by.touched, truth.reserved)
	}
	if events := mustLoseNothing(t, s); events.MappingCalls < 4*uint64(addrspace.MaxCalls) {
		t.Errorf("only %d calls were made: the test is wrong", events.MappingCalls)
	}
}

func testMappingStormRandomCalls(t *testing.T) {
	target, program := startStorm(t)
	s := open(t, tracer.Options{PID: target.PID(), Interval: kernel.MaxInterval})
	for range 12 { // the events of each fit the ring buffer
		truth := reported(t, sampleWhile(t, s, target, "random 4000"))
		got := balanced(t, s)
		mustMatchMaps(t, got.Mappings)
		all := measured(got, program)
		if all.reserved != truth.reserved {
			t.Errorf("%d bytes are mapped, want %d", all.reserved, truth.reserved)
		}
		if by := all.holds[mapper{"change", growth.KindMmap}]; by.touched != truth.reserved {
			t.Errorf("%d bytes are touched, want %d", by.touched, truth.reserved)
		}
	}
	mustLoseNothing(t, s)
}

func testMappingStormLibraries(t *testing.T) {
	target, _ := startStorm(t)
	library := tracertest.Build(t, "plugin.c", "-shared", "-fPIC")
	s := open(t, tracer.Options{PID: target.PID(), Interval: kernel.MaxInterval})
	before := mappedBytes(t, target.PID())
	sampleWhile(t, s, target, "libraries 1000 "+library)
	got := balanced(t, s)
	mustMatchMaps(t, got.Mappings)

	more := mappedBytes(t, target.PID()) - before
	if all := got.Mappings.Reserved - got.Mappings.Allocator; more == 0 || all != more {
		t.Errorf("%d bytes are mapped, want %d", all, more)
	}
	mustLoseNothing(t, s)
}

// Both lines map pieces of one size at one place of the machine's stack.
func testMappingStormPythonLines(t *testing.T) {
	target := start(t, python, tracertest.Source("maplines.py"))
	s := open(t, tracer.Options{PID: target.PID(), Sources: []string{"mapping"}})
	sampleWhile(t, s, target, "20000 100")

	var kept, stormed [2]float64
	for _, h := range snapshot(t, s).Holdings {
		if h.Kind != growth.KindShmem {
			continue
		}
		sum := [2]float64{h.InuseObjects, h.AllocObjects}
		if slices.Contains(functions(h.Stack), "keep") {
			kept[0], kept[1] = kept[0]+sum[0], kept[1]+sum[1]
		} else if slices.Contains(functions(h.Stack), "storm") {
			stormed[0], stormed[1] = stormed[0]+sum[0], stormed[1]+sum[1]
		}
	}
	if kept != [2]float64{100, 100} || stormed != [2]float64{0, 20000} {
		t.Errorf("mapped now and ever: %v by keep, %v by storm; want 100 of 100, and 0 of 20000",
			kept, stormed)
	}
}

// Pages touched since the last snapshot count in the next, and a line that maps twice counts twice.
// The program has no malloc.
func testKernelMappingsGrowthTwoSnapshots(t *testing.T) {
	program := tracertest.Build(t, "bare.c", bare...)
	target, s := openOn(t, start(t, program), exact)
	heap := sourceOf(t, s, "heap")
	if heap.Attached || !strings.Contains(heap.Reason, "no malloc symbol") {
		t.Errorf("heap: %+v", heap)
	}

	before := snapshot(t, s)
	truth := reported(t, target.Do("go"))
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
