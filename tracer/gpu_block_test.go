package tracer_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/probe"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// TestBlocks compares blocks of PyTorch's caching allocator with the allocator's report.
func TestBlocks(t *testing.T) {
	t.Parallel()
	t.Run("every block has its allocation site", testBlocksBlockAllocationSite)
	t.Run("hook of each version", testBlocksHookEachVersion)
	t.Run("hook of Debian 13", testBlocksHookDebian13)
	t.Run("hook is probed only beside a driver", testBlocksHookProbedOnly)
	t.Run("totals are exact from the first event", testBlocksTotalsExactFirst)
	t.Run("libraries in either order", testBlocksLibrariesEitherOrder)
	t.Run("hook without totals is refused", testBlocksHookWithoutTotals)
}

// realLibC10 is from the distribution's torch.
func realLibC10(t testing.TB) string {
	t.Helper()
	found, err := filepath.Glob("/usr/lib/*/libc10.so.*")
	if err != nil || len(found) == 0 {
		t.Fatalf("no libc10.so in /usr/lib (apt-get install python3-torch): %v", err)
	}
	return found[0]
}

// startBlocks starts blocks.py with a libc10, the real one or a stand-in, and without a driver.
func startBlocks(t testing.TB, c10 string) gpuProgram {
	t.Helper()
	return startPythonProgram(t, "blocks.py", c10)
}

// traceBlocks traces it once it has a driver.
func traceBlocks(t testing.TB, g gpuProgram, options tracer.Options) *tracer.Session {
	t.Helper()
	g.Do("driver " + libcuda(t))
	options.PID = g.PID()
	s := open(t, options)
	awaitBlocks(t, s)
	return s
}

// A gpuTotal is the report of the allocator of one GPU on the order "totals" of blocks.py.
type gpuTotal struct {
	GPU                                string
	blocks, bytes, Allocated, Reserved int64
}

func (g gpuProgram) allocators() (all []gpuTotal) {
	g.t.Helper()
	for _, line := range g.Do("totals") {
		var a gpuTotal
		scan(g.t, line, "%s %d %d %d %d", &a.GPU, &a.blocks, &a.bytes, &a.Allocated, &a.Reserved)
		all = append(all, a)
	}
	return all
}

// heldByBlocks are the blocks of a snapshot by GPU and allocation site.
func heldByBlocks(snapshot *growth.Snapshot) amounts {
	held := make(amounts)
	for _, h := range snapshot.GPUHoldings {
		if h.Kind == growth.KindCudaBlock {
			held.add(h.GPU+" "+siteIn(h.Stack, "hold_"), int64(h.InuseObjects), h.InuseBytes)
		}
	}
	return held
}

// mustReportTotals wants the totals of a process to be the totals of its allocators, on each GPU
// and in sum.
func mustReportTotals(t *testing.T, g gpuProgram, s *tracer.Session, after string) {
	t.Helper()
	var allocated, reserved int64
	var want []growth.GPUTotals
	for _, a := range g.allocators() {
		allocated, reserved = allocated+a.Allocated, reserved+a.Reserved
		want = append(want, growth.GPUTotals{GPU: a.GPU, Allocated: a.Allocated, Reserved: a.Reserved})
	}
	if len(want) == 0 {
		allocated, reserved = growth.Unknown, growth.Unknown
	}

	taken := snapshot(t, s)
	if len(taken.GPUMemory) != 1 || fmt.Sprint(taken.GPUMemory[0].Totals) != fmt.Sprint(want) ||
		taken.GPUMemory[0].Allocated != allocated || taken.GPUMemory[0].Reserved != reserved ||
		taken.GPUMemory[0].PID != g.PID() {
		t.Errorf("%s: %+v, want %v", after, taken.GPUMemory, want)
	}
	if sample := s.Sample().Processes[0]; sample.CudaAllocated != allocated ||
		sample.CudaReserved != reserved {
		t.Errorf("%s: allocated %d, reserved %d, want %d, %d", after, sample.CudaAllocated,
			sample.CudaReserved, allocated, reserved)
	}
}

// blockOrders are orders of blocks.py and their changes: objects and bytes by GPU and allocation
// site.
var blockOrders = []struct {
	order   string
	changes amounts
}{
	{"hold weights 3 1000 0", amounts{"0 hold_weights": {3, 3072}}},
	{"hold activations 200 3000000 0", amounts{"0 hold_activations": {200, 200 * 3_000_320}}},
	{"churn 300 512 0", nil},
	{"cpu 100 64", nil},
	{"hold weights 2 10485761 3", amounts{"3 hold_weights": {2, 2 * 10_486_272}}},
	{"elsewhere activations 50 0", amounts{"0 hold_activations": {-50, -50 * 3_000_320}}},
	{"threads 8 50 2048 3", amounts{"3 hold_weights": {400, 400 * 2048}}},
	{"free weights 1 0", amounts{"0 hold_weights": {-1, -1024}}},
	// after the cache is emptied, which shows nothing by itself
	{"hold weights 1 700 0", amounts{"0 hold_weights": {1, 1024}}},
}

// mustFollowBlocks gives all orders and wants each block to be known with its allocation site.
func mustFollowBlocks(t *testing.T, g gpuProgram, s *tracer.Session) {
	t.Helper()
	want := make(amounts)
	for i, o := range blockOrders {
		if i == len(blockOrders)-1 {
			g.Do("empty 0")
		}

		g.Do(o.order)
		want = want.plus(o.changes)
		mustAmount(t, o.order, heldByBlocks(snapshot(t, s)), want)
		mustReportTotals(t, g, s, o.order)
	}

	var held [2]int64
	for _, a := range g.allocators() {
		held[0], held[1] = held[0]+a.blocks, held[1]+a.bytes
	}
	if got := sumOfKind(snapshot(t, s), growth.KindCudaBlock); got != held {
		t.Errorf("%d are held, the program has %d (objects, bytes)", got, held)
	}

	mustAmount(t, "segments", amounts{"": sumOfKind(snapshot(t, s), growth.KindCudaSegment)},
		amounts{"": g.totals("driver_totals")["device"]})
	mustLoseNothing(t, s)
}

func sumOfKind(snapshot *growth.Snapshot, kind growth.Kind) (sum [2]int64) {
	for _, h := range snapshot.GPUHoldings {
		if h.Kind == kind {
			sum[0], sum[1] = sum[0]+int64(h.InuseObjects), sum[1]+h.InuseBytes
		}
	}
	return sum
}

func testBlocksBlockAllocationSite(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, mode probe.Mode) {
		t.Parallel()
		g := startBlocks(t, realLibC10(t))
		options := tracer.Options{Interval: 1, Mode: mode, Sources: []string{"cuda", "mapping"}}
		mustFollowBlocks(t, g, traceBlocks(t, g, options))
	})
}

// The stand-ins have the hook of each known version. The hook of PyTorch 2.6 represents the hooks
// with unsigned totals.
func testBlocksHookEachVersion(t *testing.T) {
	t.Parallel()
	for _, flag := range []string{"-DREPORT", "-DREPORT_SIGNED"} {
		t.Run(flag, func(t *testing.T) {
			g := startBlocks(t, tracertest.BuildLibrary(t, "c10.cc", "libc10.so", flag))
			s := traceBlocks(t, g, exact)
			if said := sourceOf(t, s, "cuda"); !said.Attached || said.Reason != "" ||
				!strings.Contains(strings.Join(said.Details, "\n"), "c10::reportMemoryUsageToProfiler in /") {
				t.Errorf("%+v", said)
			}
			mustFollowBlocks(t, g, s)
		})
	}
}

// testdata/peers/debian.sh sets up Debian 13 with PyTorch 2.6, in the folder that ALLOCSCOPE_PEERS
// names.
func testBlocksHookDebian13(t *testing.T) {
	t.Parallel()
	folder := os.Getenv("ALLOCSCOPE_PEERS")
	if folder == "" {
		folder = "/var/cache/allocscope/peers"
	}

	folder = filepath.Join(folder, "trixie")
	found, _ := filepath.Glob(filepath.Join(folder, "usr/lib/*/libc10.so.2.*"))
	if len(found) == 0 {
		t.Skipf("there is no Debian 13 in %s: testdata/peers/debian.sh sets it up", folder)
	}

	ours := fmt.Sprintf("/proc/%d/root", os.Getpid()) // where that Debian sees our files
	blocks := tracertest.Must(filepath.Abs(tracertest.Source("blocks.py")))(t)

	target := startCommand(t, exec.Command(tracertest.Source("peers/inside.sh"), folder,
		python, ours+blocks, strings.TrimPrefix(found[0], folder)))
	g := gpuProgram{target, t}
	g.Do("driver " + ours + libcuda(t))
	s := open(t, tracer.Options{PID: g.PID(), Interval: 1})

	awaitBlocks(t, s)
	mustFollowBlocks(t, g, s)
}

// Without a GPU, PyTorch reports memory of the CPU to the same function.
func testBlocksHookProbedOnly(t *testing.T) {
	t.Parallel()
	g, s := openOn(t, startBlocks(t, realLibC10(t)), exact)

	g.Do("cpu 100 64", "hold weights 10 1000 0")
	for range 3 {
		s.Sample()
		if driver, blocks := tracer.Targets(s)[0].GPU.Active(); driver || blocks ||
			counted(t, s, bpf.CountBlocks) != 0 || len(snapshot(t, s).GPUMemory) > 0 {
			t.Errorf("driver %t, blocks %t, %d events: %+v", driver, blocks,
				counted(t, s, bpf.CountBlocks), tracer.Targets(s)[0].GPU.Status())
		}
	}

	g.Do("driver " + libcuda(t))
	awaitBlocks(t, s)
	if d := snapshot(t, s).GPUMemory; len(d) != 1 || !d[0].DriverProbed || !d[0].BlocksProbed ||
		d[0].Allocated != growth.Unknown || d[0].Reserved != growth.Unknown {
		t.Errorf("before the first event: %+v", d)
	}

	g.Do("cpu 10 64")
	if sample := s.Sample().Processes[0]; sample.CudaAllocated != growth.Unknown ||
		sample.CudaReserved != growth.Unknown {
		t.Errorf("what the processor has is taken for the GPU's: %+v", sample)
	}

	g.Do("hold weights 4 1000 0")
	mustAmount(t, "from then on", heldByBlocks(snapshot(t, s)), amounts{"0 hold_weights": {4, 4096}})
	mustReportTotals(t, g, s, "from then on")
	mustLoseNothing(t, s)
}

// From the first event on, the allocator's totals contain older blocks. Those are freed here.
func testBlocksTotalsExactFirst(t *testing.T) {
	t.Parallel()
	g := startBlocks(t, realLibC10(t))
	g.Do("hold weights 100 5000 0", "hold activations 30 3000000 1")
	s := traceBlocks(t, g, exact)

	g.Do("free weights 1 0")
	taken := snapshot(t, s)
	if d := taken.GPUMemory[0]; len(d.Totals) != 1 || d.Allocated != 99*5120 {
		t.Errorf("after the first event: %+v", d)
	}

	g.Do("free activations 10 1")
	mustReportTotals(t, g, s, "frees of older blocks")
	mustAmount(t, "held", heldByBlocks(snapshot(t, s)), amounts{})
	g.Do("hold activations 5 3000000 1", "free activations 20 1", "free weights 99 0")
	mustReportTotals(t, g, s, "frees of older blocks")
	mustAmount(t, "held", heldByBlocks(snapshot(t, s)),
		amounts{"1 hold_activations": {5, 5 * 3_000_320}})
	mustLoseNothing(t, s)
}

// PyTorch loads its libraries one after the other. One for CUDA shows a GPU as well as the driver
// does.
func testBlocksLibrariesEitherOrder(t *testing.T) {
	t.Parallel()
	for _, way := range []struct {
		sources       []string // with source mapping, or without it
		first, second string
	}{
		{[]string{"cuda"}, "driver " + libcuda(t), "load " + realLibC10(t)},
		{nil, "load " + realLibC10(t), "driver " + copied(t, libcuda(t), "libc10_cuda.so")},
	} {
		g := startPythonProgram(t, "blocks.py")
		s := open(t, tracer.Options{PID: g.PID(), Interval: 1, Sources: way.sources})

		g.Do(way.first)
		eventually(t, "the first is found", func() bool {
			s.Sample()
			return len(tracer.Targets(s)[0].GPU.Status().Details) > 0
		})

		if !tracer.Targets(s)[0].GPU.Pending() {
			t.Errorf("%s: the other is not waited for", way.first)
		}
		g.Do(way.second)
		awaitBlocks(t, s)
		g.Do("hold weights 4 1000 2", "hold activations 2 1000 2", "free weights 1 2")
		mustAmount(t, way.first, heldByBlocks(snapshot(t, s)),
			amounts{"2 hold_weights": {3, 3072}, "2 hold_activations": {2, 2048}})
		mustReportTotals(t, g, s, way.first)
		if tracer.Targets(s)[0].GPU.Pending() && len(way.sources) > 0 {
			t.Error("both are still waited for")
		}
	}
}

func testBlocksHookWithoutTotals(t *testing.T) {
	t.Parallel()
	c10 := tracertest.BuildLibrary(t, "c10.cc", "libc10.so", "-DREPORT_WITHOUT_TOTALS")
	g := startBlocks(t, c10)
	g.Do("driver " + libcuda(t))
	s := open(t, tracer.Options{PID: g.PID(), Interval: 1})

	awaitCUDA(t, s)
	g.Do("hold weights 3 1000 0")
	said := sourceOf(t, s, "cuda")
	if want := "find c10::reportMemoryUsageToProfiler in " + c10 +
		": its c10::reportMemoryUsageToProfiler reports no totals"; !said.Attached ||
		!strings.HasPrefix(said.Reason, want) {
		t.Errorf("%+v, want %s", said, want)
	}

	taken := snapshot(t, s)
	if d := taken.GPUMemory; len(d) != 1 || d[0].BlocksProbed || !d[0].DriverProbed ||
		d[0].Allocated != growth.Unknown {
		t.Errorf("%+v", d)
	}

	mustAmount(t, "segments", amounts{"": sumOfKind(taken, growth.KindCudaSegment)},
		amounts{"": g.totals("driver_totals")["device"]})
}
