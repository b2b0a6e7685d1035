package tracer_test

import (
	"errors"
	"fmt"
	"math"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/probe"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// TestKernelHeap compares the live heap with the memory of programs of known behaviour, on every
// kernel.
func TestKernelHeap(t *testing.T) {
	t.Run("leak is exact beside a hundredfold churn", testKernelHeapLeakExactHundredfold)
	t.Run("every allocator function counts as its manual page says",
		testKernelHeapAllocatorFunctionCounts)
	t.Run("preloaded allocator replaces the C library's", testKernelHeapPreloadedAllocatorReplaces)
	t.Run("static program", testKernelHeapStaticProgram)
}

// TestHeap compares the live heap with the memory of programs of known behaviour.
func TestHeap(t *testing.T) {
	t.Run("sampled leak is within its confidence bound", testHeapSampledLeakWithin)
	t.Run("the C library's functions beside a preloaded allocator", testHeapCLibraryFunctions)
	t.Run("every function of a linked allocator counts once", testHeapFunctionLinkedAllocator)
	t.Run("every function of a preloaded allocator counts once", testHeapFunctionPreloadedAllocator)
	t.Run("operator new throws through the probes", testHeapOperatorNewThrows)
	t.Run("call that is left by longjmp hides few calls below it", testHeapLeftCall)
	t.Run("stripped static program has a heap of unknown site", testHeapStrippedStaticProgram)
	t.Run("32-bit program's mappings come from /proc", testHeap32BitProgram)
}

func testKernelHeapAllocatorFunctionCounts(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, mode probe.Mode) {
		// 1000 by the program; the C library frees its caches of a thread that ends.
		if n := mustCountSemantics(t, "", mode).FreesUntracked; n < 1000 || n > 1010 {
			t.Errorf("%d frees of older memory, want 1000", n)
		}
	})
}

// The C library's own functions call the preloaded ones. Their allocations count under their own
// names.
func testHeapCLibraryFunctions(t *testing.T) {
	mustCountSemantics(t, tracertest.Build(t, "preload.c", "-shared", "-fPIC"), probe.Automatic)
}

// mustCountSemantics compares with the memory of testdata/semantics.c, which calls every function.
func mustCountSemantics(t *testing.T, preload string, mode probe.Mode) growth.Events {
	t.Helper()
	command := preloading(preload, exec.Command(tracertest.Build(t, "semantics.c", "-pthread")))
	target, s := openOn(t, startCommand(t, command),
		tracer.Options{Interval: 1, Mode: mode, Sources: heapAlone})
	return mustHoldSemantics(t, target, s)
}

func mustHoldSemantics(t *testing.T, target *tracertest.Target, s *tracer.Session) growth.Events {
	t.Helper()
	truth := target.Do("go")
	got := held(snapshot(t, s))
	if len(truth) < 15 {
		t.Fatalf("the target reports %q: the test is wrong", truth)
	}

	mustHold(t, got, truth)
	return mustLoseNothing(t, s)
}

func testKernelHeapLeakExactHundredfold(t *testing.T) {
	t.Parallel()
	objects, size := 4000, 96
	if testing.Short() { // emulated, say
		objects = 400
	}

	for _, flags := range [][]string{
		{"-pthread", "-fno-omit-frame-pointer"},
		{"-pthread", "-fomit-frame-pointer"},
	} {
		for _, threads := range []int{1, 8} {
			t.Run(fmt.Sprint(flags[1], " ", threads), func(t *testing.T) {
				target := start(t, tracertest.Build(t, "leak.c", flags...), fmt.Sprint(threads),
					fmt.Sprint(objects/threads), fmt.Sprint(size), "100")
				options := tracer.Options{PID: target.PID(), Interval: 1, Sources: heapAlone}
				s := mustLeak(t, target, options, int64(objects), int64(size))
				if events := mustLoseNothing(t, s); events.Allocations < uint64(objects*101) {
					t.Errorf("%d allocations seen of %d", events.Allocations, objects*101)
				}
			})
		}
	}
}

// The estimate of n objects of s bytes, each taken with probability p, has the standard deviation s
// sqrt(n (1-p)/p).
func testHeapSampledLeakWithin(t *testing.T) {
	t.Parallel()
	var off []float64
	for range 4 {
		target, s := openOn(t, start(t, tracertest.Build(t, "leak.c", "-pthread"), "1",
			fmt.Sprint(sampledObjects), fmt.Sprint(sampledSize), "0"),
			tracer.Options{Interval: sampledInterval, Sources: heapAlone})
		off = append(off, leakErrors(t, target, s, "go", 5)...)
		target.Hangup()
	}
	mustBeUnbiased(t, off)
}

// These many objects leak in a round, of which samples are taken: 256 MiB.
const sampledObjects, sampledSize, sampledInterval = 4096, 64 << 10, 512 << 10

// leakErrors lets a program leak so often. It returns how far the estimate of each round is off, in
// standard deviations.
func leakErrors(
	t *testing.T, target *tracertest.Target, s *tracer.Session, order string, rounds int,
) (off []float64) {
	t.Helper()
	p := 1 - math.Exp(-float64(sampledSize)/sampledInterval)
	deviation := sampledSize * math.Sqrt(sampledObjects*(1-p)/p)
	var before int64
	for range rounds {
		target.Do(order)
		now := held(snapshot(t, s))["leak_here"][1]
		off = append(off, (float64(now-before)-sampledObjects*sampledSize)/deviation)
		before = now
	}
	mustLoseNothing(t, s)
	return off
}

// mustBeUnbiased checks estimates that are off by so many standard deviations.
func mustBeUnbiased(t *testing.T, off []float64) {
	t.Helper()
	var inside99 int
	var sum float64
	for round, deviations := range off {
		sum += deviations
		if math.Abs(deviations) < 2.576 {
			inside99++
		}
		if math.Abs(deviations) > 4.5 {
			t.Errorf("round %d: off by %.1f standard deviations", round, deviations)
		}
	}

	rounds := float64(len(off))
	t.Logf("%d of %v rounds inside the 99 %% bound; mean error %.2f standard deviations of one round",
		inside99, rounds, sum/rounds)
	if inside99 < len(off)-3 { // by chance once in 30,000 runs of this test
		t.Errorf("%d of %v rounds inside the 99 %% bound", inside99, rounds)
	}
	if math.Abs(sum/math.Sqrt(rounds)) > 4.5 {
		t.Errorf("biased: mean error %.2f standard deviations", sum/rounds)
	}
}

// A return that is never seen must not make the calls below its frame parts of that call.
func testHeapLeftCall(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, mode probe.Mode) {
		target := start(t, tracertest.Build(t, "jumps.c", "-rdynamic"))
		s := open(t, tracer.Options{
			PID: target.PID(), Interval: 1, Mode: mode, Sources: heapAlone,
		})

		truth := target.Do("go")
		var objects, bytes int64
		scan(t, truth[0], "nested %d %d", &objects, &bytes)

		const fewCalls = 8
		size := bytes / objects
		holds := held(snapshot(t, s))["nested"]
		if holds[0] < objects-fewCalls || holds[0] > objects || holds[1] != holds[0]*size {
			t.Errorf("nested holds %d, want %d (objects, bytes), or %d objects fewer", holds,
				[2]int64{objects, bytes}, fewCalls)
		}

		_, losses := counters(t, s)
		isReturn := func(l growth.Loss) bool { return l.Kind == growth.LossMissedReturn }
		i := slices.IndexFunc(losses, isReturn)
		if i < 0 || losses[i].Count != 1 || losses[i].PID != target.PID() {
			t.Errorf("lost %+v, want one return of PID %d", losses, target.PID())
		}
	})
}

// bare builds a program without a C library.
var bare = []string{
	"-nostdlib", "-static", "-ffreestanding", "-fno-stack-protector",
	"-fno-omit-frame-pointer",
}

const leaks, leakSize, leakChurn = 5000, 100, 10

// leakArguments are the arguments of testdata/leak.c for one thread.
var leakArguments = []string{"1", fmt.Sprint(leaks), fmt.Sprint(leakSize), fmt.Sprint(leakChurn)}

func mustCountLeak(t *testing.T, target *tracertest.Target,
	options tracer.Options,
) *tracer.Session {
	t.Helper()
	return mustLeak(t, target, options, leaks, leakSize)
}

// mustLeak traces a target of testdata/leak.c. It wants exactly its leak, and nothing of its churn.
func mustLeak(t *testing.T, target *tracertest.Target, options tracer.Options,
	objects, size int64,
) *tracer.Session {
	t.Helper()
	s := open(t, options)
	order(target, "go")
	got := held(snapshot(t, s))
	mustHoldIn(t, got, "leak_here", objects, objects*size)
	if churn, ok := got["churn_here"]; ok {
		t.Errorf("churn_here holds %d, want nothing", churn)
	}
	return s
}

func testKernelHeapPreloadedAllocatorReplaces(t *testing.T) {
	t.Parallel()
	preload := tracertest.Build(t, "preload.c", "-shared", "-fPIC")
	eachMode(t, func(t *testing.T, mode probe.Mode) {
		program := tracertest.Build(t, "leak.c", "-pthread")
		target := startCommand(t, preloading(preload, exec.Command(program, leakArguments...)))
		s := mustCountLeak(t, target, tracer.Options{
			PID: target.PID(), Interval: 1, Mode: mode, Sources: heapAlone,
		})
		const calls = leaks * (1 + leakChurn)
		// The C library allocates a little for the thread.
		if n := mustLoseNothing(t, s).Allocations; n < calls || n > calls+10 {
			t.Errorf("%d allocations seen, want %d: each once", n, calls)
		}
		mustProbeIn(t, s, preload, "malloc", "calloc", "realloc", "free")
		mustProbeIn(t, s, "libc.so.6", "posix_memalign", "reallocarray", "aligned_alloc")
	})
}

// mustProbeIn wants the functions to be probed in that file and in no other.
func mustProbeIn(t *testing.T, s *tracer.Session, file string, functions ...string) {
	t.Helper()
	for _, function := range functions {
		var places []string
		for _, detail := range sourceOf(t, s, "heap").Details {
			if place, ok := strings.CutPrefix(detail, function+" in "); ok {
				places = append(places, place)
			}
		}
		if len(places) != 1 || !strings.Contains(places[0], file+" at file offset ") {
			t.Errorf("%s is probed in %q, want %s alone", function, places, file)
		}
	}
}

func testKernelHeapStaticProgram(t *testing.T) {
	t.Parallel()
	for _, flag := range []string{"-static", "-static-pie"} {
		t.Run(flag, func(t *testing.T) {
			program := tracertest.Build(t, "leak.c", "-pthread", flag)
			target := start(t, program, leakArguments...)
			s := mustCountLeak(t, target,
				tracer.Options{PID: target.PID(), Interval: 1, Sources: heapAlone})
			mustProbeIn(t, s, program, "malloc", "free")
			mustLoseNothing(t, s)
		})
	}
}

// Only malloc's calls of the kernel can be seen of a stripped program. The scan recognises it by
// its content.
func testHeapStrippedStaticProgram(t *testing.T) {
	program := tracertest.Build(t, "leak.c", "-pthread", "-static", "-Wl,--strip-all")
	target, s := openOn(t, start(t, program, "1", "20", fmt.Sprint(1<<20), "0"), exact)

	if heap := sourceOf(t, s, "heap"); heap.Attached ||
		!strings.Contains(heap.Reason, "no malloc symbol") {
		t.Errorf("heap: %+v", heap)
	}

	order(target, "go")
	taken := snapshot(t, s)
	// a page more for each object
	if totals := taken.Mappings; totals.Unknown != 0 || totals.Allocator < 20*(1<<20+4096) {
		t.Errorf("%+v, want at least 20 MiB of the allocator's", totals)
	}

	var heap int64
	for _, h := range taken.Holdings {
		switch {
		case h.Kind == growth.KindHeap && h.Stack.Root == unknownSite:
			heap += h.ResidentBytes
		case h.Kind == growth.KindHeap:
			t.Errorf("%s holds %d bytes of heap", caller(h.Stack, program), h.ResidentBytes)
		}
	}

	if heap < 20*4096 { // one page of each is written
		t.Errorf("%d bytes of heap are resident, want at least 20 pages", heap)
	}
}

func testHeap32BitProgram(t *testing.T) {
	target := start(t, tracertest.Build(t, "bare.c", append(bare, "-m32")...))
	s := open(t, tracer.Options{PID: target.PID()})

	if heap := sourceOf(t, s, "heap"); !errors.Is(heap.Err, probe.Err32Bit) {
		t.Errorf("%+v", heap)
	}
	if mapping := sourceOf(t, s, "mapping"); mapping.Gap != growth.Gap32BitCalls {
		t.Errorf("%+v", mapping)
	}

	truth := reported(t, target.Do("go"))
	taken := snapshot(t, s)
	const unseen = "[mapped without a system call being seen]"
	got, held := measured(taken, unseen), truth.holds[mapper{"map_here", growth.KindMmap}]
	want := space{
		holds:    map[mapper]mappedBy{{unseen, growth.KindMmap}: {1, held.touched, 0}},
		reserved: truth.reserved,
	}

	want.allocator, want.heap = truth.allocator, truth.heap
	mustBe(t, got, want)
	// The break comes from the maps in any case.
	if all := truth.reserved + truth.allocator; taken.Mappings.Unknown != truth.reserved ||
		taken.Mappings.Reserved != all {
		t.Errorf("%+v; want %d bytes, %d of them without a call", taken.Mappings, all,
			truth.reserved)
	}
}

// An allocator is one other than glibc's, as Debian packages it: libraries to link with or to
// preload.
type allocator struct {
	name, define, link, library string
	static                      string // to link with instead; empty: there is none
}

var allocators = []allocator{
	{"jemalloc", "-DJEMALLOC", "-ljemalloc", "libjemalloc.so.2", "-l:libjemalloc.a"},
	{
		"tcmalloc", "-DTCMALLOC", "-ltcmalloc_minimal", "libtcmalloc_minimal.so.4",
		"-l:libtcmalloc_minimal.a",
	},
	{"mimalloc", "-DMIMALLOC", "-lmimalloc", "libmimalloc.so.2", ""},
}

func testHeapFunctionLinkedAllocator(t *testing.T) {
	t.Parallel()
	programs := map[string][]string{
		"glibc":       {"allocators.c"},
		"musl":        {"allocators.c", musl},
		"musl static": {"allocators.c", musl, "-static"},
		"static":      {"operators.cc", "-static"},
	}

	for _, a := range allocators {
		programs[a.name] = []string{"allocators.c", a.define, a.link}
		if a.static != "" {
			programs[a.name+" linked in"] = []string{
				"allocators.c", a.define, a.static, "-lstdc++", "-lm",
				"-pthread",
			}
			programs[a.name+" linked in, operators"] = []string{"operators.cc", a.static, "-lm", "-pthread"}
		}
	}

	for name, build := range programs {
		t.Run(name, func(t *testing.T) {
			mustCountAllocators(t, exec.Command(buildAllocators(t, build[0], build[1:]...)),
				tracer.Options{})
		})
	}
}

func testHeapFunctionPreloadedAllocator(t *testing.T) {
	t.Parallel()
	for _, a := range allocators {
		for _, source := range []string{"allocators.c", "operators.cc"} {
			t.Run(a.name+" "+source, func(t *testing.T) {
				command := exec.Command(buildAllocators(t, source))
				mustCountAllocators(t, preloading(a.library, command), tracer.Options{})
			})
		}
	}
}

func testHeapOperatorNewThrows(t *testing.T) {
	t.Parallel()
	program := buildAllocators(t, "operators.cc")
	// mimalloc ends the process itself
	for _, library := range []string{"", "libjemalloc.so.2", "libtcmalloc_minimal.so.4"} {
		for _, mode := range modes {
			t.Run(library+" "+mode.String(), func(t *testing.T) {
				command := preloading(library, exec.Command(program, "throw"))
				mustCountAllocators(t, command, tracer.Options{Mode: mode})
			})
		}
	}
}

// musl is gcc for programs with that C library.
const musl = "-specs=/usr/lib/x86_64-linux-musl/musl-gcc.specs"

// buildAllocators keeps the compiler from leaving calls of the allocator out.
func buildAllocators(t *testing.T, source string, flags ...string) string {
	t.Helper()
	return tracertest.Build(t, source, append([]string{"-fno-builtin"}, flags...)...)
}

// mustCountAllocators runs a program made of allocators.h and compares.
func mustCountAllocators(t *testing.T, command *exec.Cmd, options tracer.Options) {
	t.Helper()
	target := startCommand(t, command)
	options.PID, options.Interval, options.Sources = target.PID(), 1, heapAlone
	s := open(t, options)

	truth := target.Do("go")
	if len(truth) < 10 {
		t.Fatalf("the target reports %q: the test is wrong", truth)
	}

	calls := truth[len(truth)-1]
	got, allocated := heldByCases(snapshot(t, s))
	mustHold(t, got, truth[:len(truth)-1])
	events := mustLoseNoCall(t, s)
	if said := fmt.Sprintf("calls %d %d", events.Allocations, events.Frees); said != calls ||
		events.FreesUntracked != 0 {
		t.Errorf("%s, and %d frees untracked; the target made %s", said, events.FreesUntracked,
			calls)
	}
	if seen := fmt.Sprintf("calls %.0f", allocated+float64(events.Failed)); !strings.HasPrefix(calls,
		seen+" ") {
		t.Errorf("%s are in the profile or have failed; the target made %s", seen, calls)
	}
}

// mustLoseNoCall fails if anything was lost except frames above the program's own: Debian's musl
// has no unwind information.
func mustLoseNoCall(t *testing.T, s *tracer.Session) growth.Events {
	t.Helper()
	events, losses := counters(t, s)
	for _, l := range losses {
		if !strings.Contains(l.Cause.String(), "without unwind information") {
			t.Errorf("lost: %+v", l)
		}
	}
	return events
}

// heldByCases returns the memory of the functions case_..., whatever lies between them and the
// probe, and how many objects all stacks have allocated.
func heldByCases(taken *growth.Snapshot) (held amounts, allocated float64) {
	held = make(amounts)
	for _, h := range taken.Holdings {
		if h.Kind != growth.KindHeap {
			continue
		}

		allocated += h.AllocObjects
		for _, f := range h.Stack.Frames {
			if strings.HasPrefix(f.Function, "case_") && h.InuseObjects > 0 {
				held.add(f.Function, int64(h.InuseObjects), h.InuseBytes)
				break
			}
		}
	}
	return held, allocated
}
