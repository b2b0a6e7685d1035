package tracer_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/probe"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// TestKernelGPU counts the calls of CUDA's driver on every kernel.
func TestKernelGPU(t *testing.T) {
	t.Parallel()
	t.Run("every driver call counts for its caller", testKernelGPUDriverCallCounts)
}

// TestGPU compares memory on GPUs with the report of a driver that counts itself.
func TestGPU(t *testing.T) {
	t.Parallel()
	t.Run("reused address belongs to its new allocation site", testGPUReusedAddressBelongs)
	t.Run("created memory is on the GPU of its properties", testGPUCreatedMemoryGPU)
	t.Run("one unmap of many mappings", testGPUOneUnmapMany)
	t.Run("Python frames below the driver's", testGPUPythonFramesBelow)
	t.Run("hostile arguments do no harm", testGPUHostileArgumentsDo)
}

const mib = 1 << 20

// A gpuAPI is one of cuda.c: the bytes that an object of an order's size counts, in which kind of
// the tracer's and in which of the library's.
type gpuAPI struct {
	name    string
	size    int64
	counts  int64
	kind    growth.Kind // empty: memory of others, in the breakdown alone
	gpu     string
	library string
}

var gpuAPIs = []gpuAPI{
	{"malloc", 1000, 1000, growth.KindCudaSegment, "", "device"},
	{"pitch", 1000, 3 * 1024, growth.KindCudaSegment, "", "pitch"},
	{"managed", 70_000, 70_000, growth.KindCudaSegment, "", "managed"},
	{"async", 1, 1, growth.KindCudaSegment, "", "async"},
	{"async_ptsz", 512, 512, growth.KindCudaSegment, "", "async"},
	{"pool", 513, 513, growth.KindCudaSegment, "", "pool"},
	{"pool_ptsz", 5 * mib, 5 * mib, growth.KindCudaSegment, "", "pool"},
	{"create", 2 * mib, 2 * mib, growth.KindCudaSegment, "0", "created"},
	{"create_host", 4 * mib, 4 * mib, growth.KindPinned, "", "created_host"},
	{"segment", 20 * mib, 20 * mib, growth.KindCudaSegment, "0", "created"},
	{"lent", 2 * mib, 2 * mib, growth.KindCudaSegment, "0", "created"},
	{"import", 6 * mib, 6 * mib, growth.KindCudaSegment, "0", "created"},
	{"hostalloc", 5000, 5000, growth.KindPinned, "", "pinned"},
	{"allochost", 4096, 4096, growth.KindPinned, "", "pinned"},
	{"register", 9000, 9000, "", "", "registered"},
}

func gpuAPINamed(name string) gpuAPI {
	return gpuAPIs[slices.IndexFunc(gpuAPIs, func(a gpuAPI) bool { return a.name == name })]
}

// site is the name of its allocation site.
func (a gpuAPI) site() string {
	return callerOf(growth.Holding{Kind: a.kind, GPU: a.gpu}, "hold_"+a.name)
}

// An expectation is the memory that must be held and have been allocated after the given orders.
type expectation struct {
	held, allocated, library amounts
	device, pinned           int64 // bytes
}

func newExpectation() *expectation {
	return &expectation{held: make(amounts), allocated: make(amounts), library: make(amounts)}
}

// add takes objects of an API in, or out, of which so many have been allocated.
func (r *expectation) add(a gpuAPI, objects, allocated int64) {
	r.library.add(a.library, objects, objects*a.counts)
	if a.kind == growth.KindCudaSegment {
		r.device += objects * a.counts
	} else {
		r.pinned += objects * a.counts
	}
	if a.kind != "" {
		r.held.add(a.site(), objects, objects*a.counts)
		r.allocated.add(a.site(), allocated, allocated*a.counts)
	}
}

// libraryKinds are the library's kinds that are memory: its other kinds are addresses, and memory
// of others.
var libraryKinds = []string{
	"device", "pitch", "managed", "async", "pool", "created",
	"created_host", "pinned", "registered",
}

// mustHoldExpected compares a snapshot, a sample and the library's own counts with the expectation.
func mustHoldExpected(t *testing.T, g gpuProgram, s *tracer.Session, after string, r *expectation) {
	t.Helper()
	reported := g.totals("totals")
	for kind := range reported {
		if !slices.Contains(libraryKinds, kind) {
			delete(reported, kind)
		}
	}

	mustAmount(t, after+": the library itself", reported, r.library)
	held, allocated := bySite(snapshot(t, s))
	mustAmount(t, after+": held", held, r.held)
	mustAmount(t, after+": allocated", allocated, r.allocated)
	if sample := s.Sample().Processes[0]; sample.CudaDriver != r.device || sample.Pinned != r.pinned {
		t.Errorf("%s: %d bytes on GPUs, %d pinned, want %d and %d", after, sample.CudaDriver,
			sample.Pinned, r.device, r.pinned)
	}
}

// Each allocating call of CUDA's driver counts for its caller as in the library. A failing call
// counts nothing and changes nothing.
func testKernelGPUDriverCallCounts(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, mode probe.Mode) {
		t.Parallel()
		g, s := openOn(t, startCUDA(t, libcuda(t)), tracer.Options{
			Interval: 1, Mode: mode, Sources: []string{"cuda", "mapping"},
		})
		mustCountDriverCalls(t, g, s)
	})
}

// mustCountDriverCalls has testdata/cuda.c call all functions, and compares after each.
func mustCountDriverCalls(t *testing.T, g gpuProgram, s *tracer.Session) {
	t.Helper()
	expected := newExpectation()
	for _, turn := range []struct {
		api, order         string // %s of an order is the API, %d the size; empty: each API
		objects, allocated int64
	}{
		{"", "hold %s 7 %d", 7, 7},
		{"", "fail %s 3", 0, 0},
		{"", "refuse %s 4 %d", 0, 0},
		{"", "keep %s 3", 0, 0},
		{"", "free %s 2", -2, 0},
		{"", "elsewhere %s 1", -1, 0},
		{"", "churn %s 50 %d", 0, 50},
		{"", "threads 4 %s 25 %d", 100, 100},
		{"", "free %s 100", -100, 0},
		{"malloc", "wrong 10", 0, 0},
		// memory lives on for the handles that there are of it; four segments are there before
		{"segment", "hold %s 6 %d", 6, 6},
		{"segment", "retain 4", 0, 0},
		{"segment", "free %s 10", -6, 0},
		{"segment", "release 3", -3, 0},
		{"segment", "release 1", -1, 0},
		{"segment", "hold %s 3 %d", 3, 3},
	} {
		for _, a := range gpuAPIs {
			if turn.api != "" && turn.api != a.name {
				continue
			}

			g.Do(strings.NewReplacer("%s", a.name, "%d", fmt.Sprint(a.size)).Replace(turn.order))
			expected.add(a, turn.objects, turn.allocated)
		}
		mustHoldExpected(t, g, s, turn.order, expected)
	}
	mustLoseNothing(t, s)
}

// The library hands out freed addresses again at once, for other calls.
func testGPUReusedAddressBelongs(t *testing.T) {
	t.Parallel()
	g, s := openOn(t, startCUDA(t, libcuda(t)), exact)

	expected := newExpectation()
	for _, pair := range [][2]string{
		{"malloc", "malloc"},
		{"malloc", "async"},
		{"async", "managed"},
		{"managed", "pool_ptsz"},
		{"create", "segment"},
	} {
		from, to := gpuAPINamed(pair[0]), gpuAPINamed(pair[1])
		from.size, from.counts, to.counts = 4*mib, 4*mib, 4*mib
		g.Do(fmt.Sprintf("hold %s 9 %d", from.name, from.size))
		if said := g.Do(fmt.Sprintf("reuse %s %s 9", from.name, to.name)); from.name != "create" &&
			said[0] != "reused 9" {
			t.Fatalf("%q: the test is wrong", said)
		}

		expected.add(from, 0, 9)
		expected.add(to, 9, 9)
		mustHoldExpected(t, g, s, fmt.Sprint(pair), expected)
	}
	mustLoseNothing(t, s)
}

func testGPUCreatedMemoryGPU(t *testing.T) {
	t.Parallel()
	g, s := openOn(t, startCUDA(t, libcuda(t)), exact)

	g.Do("hold create 1 2097152", "device 3", "hold segment 2 4194304", "hold create_host 1 2097152",
		"device 7", "hold lent 1 2097152", "free create 1")
	mustAmount(t, "by GPU", heldBySite(snapshot(t, s)), amounts{
		"cuda-segment 3 hold_segment": {2, 8 * mib},
		"cuda-segment 7 hold_lent":    {1, 2 * mib},
		"pinned hold_create_host":     {1, 2 * mib},
	})
}

// One call may undo many mappings, each of which is all that keeps its memory.
func testGPUOneUnmapMany(t *testing.T) {
	t.Parallel()
	g, s := openOn(t, startCUDA(t, libcuda(t)), exact)

	g.Do("hold lent 3 2097152", "span 9 4194304")
	for _, turn := range []struct {
		order string
		left  int64
	}{{"unspan 0 4194304", 8}, {"unspan 20971520 16777216", 4}, {"unspan 4194304 16777216", 0}} {
		g.Do(turn.order)
		want := amounts{"cuda-segment 0 hold_lent": {3, 6 * mib}}
		if turn.left > 0 {
			want.add("cuda-segment 0 span_here", turn.left, turn.left*4*mib)
		}

		mustAmount(t, turn.order, heldBySite(snapshot(t, s)), want)
	}
	if reported := g.totals("totals"); reported["created"] != [2]int64{3, 6 * mib} {
		t.Errorf("the library has %v: the test is wrong", reported)
	}
	mustLoseNothing(t, s)
}

// pythonAPIs are the APIs of cuda.c that cuda.py has, too.
var pythonAPIs = []string{
	"malloc", "pitch", "managed", "async", "pool", "create", "hostalloc",
	"allochost",
}

// mustLeadThrough wants a stack to lead from the driver through the Python functions one and its
// caller to the start of the program.
func mustLeadThrough(t *testing.T, h growth.Holding, caller string) {
	t.Helper()
	var python []string
	for _, f := range h.Stack.Frames {
		if f.Python {
			python = append(python, f.Function[strings.LastIndexByte(f.Function, '.')+1:])
		}
	}

	whole := strings.Join(python, " ")
	if !strings.HasPrefix(whole, "one "+caller+" order_hold ") || h.Stack.Truncated != "" {
		t.Errorf("%s: the stack of what is held is %v %s", caller, functions(h.Stack),
			h.Stack.Truncated)
	}
	if leaf := h.Stack.Frames[0]; leaf.Python || !strings.HasPrefix(leaf.Function, "cuMem") {
		t.Errorf("%s: the stack begins at %+v", caller, leaf)
	}
}

func testGPUPythonFramesBelow(t *testing.T) {
	t.Parallel()
	g, s := openOn(t, startPythonProgram(t, "cuda.py", libcuda(t)), exact)

	want, got := make(amounts), make(amounts)
	for _, name := range pythonAPIs {
		a := gpuAPINamed(name)
		g.Do(fmt.Sprintf("hold %s 7 %d", name, a.size),
			fmt.Sprintf("threads 4 %s 25 %d", name, a.size), "free "+name+" 3")
		want.add(a.site(), 104, 104*a.counts)
	}

	for _, h := range onDevices(snapshot(t, s)) {
		if h.InuseObjects > 0 {
			caller := siteIn(h.Stack, "hold_")
			got.add(callerOf(h, caller), int64(h.InuseObjects), h.InuseBytes)
			mustLeadThrough(t, h, caller)
		}
	}

	mustAmount(t, "held", got, want)
	mustLoseNothing(t, s)
}

// lossOf returns the count of the losses of a kind.
func lossOf(t testing.TB, s *tracer.Session, kind growth.LossKind) (n uint64) {
	t.Helper()
	_, losses := counters(t, s)
	for _, l := range losses {
		if l.Kind == kind {
			n += l.Count
		}
	}
	return n
}

// A program may call any function of the driver's names with any arguments.
func testGPUHostileArgumentsDo(t *testing.T) {
	t.Parallel()
	target := start(t, tracertest.Build(t, "wild.c", "-DPROGRAM"),
		tracertest.BuildLibrary(t, "wild.c", "libcuda.so.1"))
	g := gpuProgram{target, t}
	s := open(t, tracer.Options{PID: g.PID(), Interval: 1})

	if said := sourceOf(t, s, "cuda"); !said.Attached ||
		!strings.Contains(strings.Join(said.Details, "\n"), "cuMemAllocAsync is not in this driver") {
		t.Errorf("%+v", said)
	}

	g.Do("unreadable 5")
	mustAmount(t, "held", heldBySite(snapshot(t, s)), amounts{})
	if n := lossOf(t, s, growth.LossOutPointer); n != 5 {
		t.Errorf("%d results could not be read, want 5", n)
	}

	g.Do("properties 3")
	if got := sumOfKind(snapshot(t, s), growth.KindCudaSegment); got != [2]int64{3, 3 * 2 * mib} {
		t.Errorf("%d are held, want 3 on a GPU that is not known", got)
	}

	g.Do("twice 4")
	got, n := sumOfKind(snapshot(t, s), growth.KindCudaSegment), lossOf(t, s, growth.LossMissedFree)
	if got != [2]int64{4, 3*2*mib + 100} || n != 3 {
		t.Errorf("%d are held, and %d handed out twice, want 4 and 3", got, n)
	}

	for _, orders := range []string{"huge 1", "map 50", "huge 20"} {
		g.Do(orders)
		for _, h := range onDevices(balanced(t, s)) {
			if h.InuseBytes < 0 || h.AllocBytes < 0 || h.InuseObjects < 0 || h.Variance < 0 {
				t.Errorf("%s: %s holds %d bytes, has allocated %g", orders, siteIn(h.Stack, "h"),
					h.InuseBytes, h.AllocBytes)
			}
		}
		if sample := s.Sample().Processes[0]; sample.CudaDriver <= 0 || sample.Pinned <= 0 {
			t.Errorf("%s: %d bytes on GPUs, %d pinned", orders, sample.CudaDriver, sample.Pinned)
		}
	}
}
