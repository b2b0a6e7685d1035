package tracer_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/source"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// bare builds a program without a C library.
var bare = []string{"-nostdlib", "-static", "-ffreestanding", "-fno-stack-protector", "-fno-omit-frame-pointer"}

// source gives what a session says of one of its sources.
func sourceOf(t testing.TB, s *tracer.Session, name string) source.Status {
	t.Helper()
	for _, source := range s.Sources() {
		if source.Name == name {
			return source
		}
	}
	t.Fatalf("no source %s in %+v", name, s.Sources())
	return source.Status{}
}

const leaks, leakSize, leakChurn = 5000, 100, 10

// mustCountLeak traces a target built of testdata/leak.c that leaks in one thread.
func mustCountLeak(t *testing.T, target *tracertest.Target, options tracer.Options) *tracer.Session {
	t.Helper()
	s := open(t, options)
	target.Say("go")
	target.Await("done")
	got := held(snapshot(t, s))
	if want := [2]int64{leaks, leaks * leakSize}; got["leak_here"] != want {
		t.Errorf("leak_here holds %d, want %d (objects, bytes); all: %v", got["leak_here"], want, got)
	}
	if churn, ok := got["churn_here"]; ok {
		t.Errorf("churn_here holds %d, want nothing", churn)
	}
	return s
}

func TestThePreloadedAllocatorIsTheOneThatIsCounted(t *testing.T) {
	t.Parallel()
	preload := tracertest.Build(t, "preload.c", "-shared", "-fPIC")
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			command := exec.Command(tracertest.Build(t, "leak.c", "-pthread"), "1", fmt.Sprint(leaks), fmt.Sprint(leakSize), fmt.Sprint(leakChurn))
			command.Env = append(os.Environ(), "LD_PRELOAD="+preload)
			target := tracertest.StartCommand(t, command)
			target.Await("ready")
			s := mustCountLeak(t, target, tracer.Options{PID: target.PID(), Interval: 1, Mode: mode})
			const calls = leaks * (1 + leakChurn)
			// The C library allocates a little for the thread.
			if n := mustLoseNothing(t, s).Allocations; n < calls || n > calls+10 {
				t.Errorf("%d allocations seen, want %d: each once", n, calls)
			}
			mustProbeIn(t, s, preload, "malloc", "calloc", "realloc", "free")
			mustProbeIn(t, s, "libc.so.6", "posix_memalign", "reallocarray", "aligned_alloc")
		})
	}
}

// mustProbeIn fails unless the functions are probed in that file and in no other.
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

// The C library's own functions call the preloaded ones; what they are asked for counts, under their own names.
func TestEveryAllocatorFunctionIsCountedBesideAPreloadedAllocator(t *testing.T) {
	command := exec.Command(tracertest.Build(t, "semantics.c", "-pthread"))
	command.Env = append(os.Environ(), "LD_PRELOAD="+tracertest.Build(t, "preload.c", "-shared", "-fPIC"))
	target := tracertest.StartCommand(t, command)
	target.Await("ready")
	s := open(t, tracer.Options{PID: target.PID(), Interval: 1})
	target.Say("go")
	truth := target.Await("done")
	got := held(snapshot(t, s))
	if len(truth) < 15 {
		t.Fatalf("the target tells %q: the test is wrong", truth)
	}
	mustHold(t, got, truth)
	mustLoseNothing(t, s)
}

func TestAStaticProgramIsCountedAsAnyOther(t *testing.T) {
	t.Parallel()
	for _, flag := range []string{"-static", "-static-pie"} {
		t.Run(flag, func(t *testing.T) {
			program := tracertest.Build(t, "leak.c", "-pthread", flag)
			target := tracertest.Start(t, program, "1", fmt.Sprint(leaks), fmt.Sprint(leakSize), fmt.Sprint(leakChurn))
			target.Await("ready")
			s := mustCountLeak(t, target, tracer.Options{PID: target.PID(), Interval: 1})
			mustProbeIn(t, s, program, "malloc", "free")
			mustLoseNothing(t, s)
		})
	}
}

func TestWithoutAMallocSymbolMappingsAloneAreMeasured(t *testing.T) {
	program := tracertest.Build(t, "bare.c", bare...)
	target := tracertest.Start(t, program)
	target.Await("ready")
	s := open(t, tracer.Options{PID: target.PID(), Interval: 1})
	heap, mappings := sourceOf(t, s, "heap"), sourceOf(t, s, "mapping")
	if heap.Attached || !strings.Contains(heap.Reason, "no malloc symbol") {
		t.Errorf("heap: %+v", heap)
	}
	if !mappings.Attached || mappings.Reason != "" {
		t.Errorf("mapping: %+v", mappings)
	}
	target.Say("go")
	truth := told(t, target.Await("done"))
	taken := snapshot(t, s)
	mustBe(t, measured(taken, program), truth)
	mustAddUp(t, taken.Mappings, truth)
	mustLoseNothing(t, s)
}

// Stripped: what malloc takes from the kernel is all that can be seen of it. It is known by what lies in it.
func TestOfAStrippedStaticProgramTheHeapIsSeenWithoutItsHolders(t *testing.T) {
	program := tracertest.Build(t, "leak.c", "-pthread", "-static", "-Wl,--strip-all")
	target := tracertest.Start(t, program, "1", "20", fmt.Sprint(1<<20), "0")
	target.Await("ready")
	s := open(t, tracer.Options{PID: target.PID(), Interval: 1})
	if heap := sourceOf(t, s, "heap"); heap.Attached || !strings.Contains(heap.Reason, "no malloc symbol") {
		t.Errorf("heap: %+v", heap)
	}
	target.Say("go")
	target.Await("done")
	taken := snapshot(t, s)
	if totals := taken.Mappings; totals.Unknown != 0 || totals.Allocator < 20*(1<<20+4096) { // a page more for each object
		t.Errorf("%+v, want at least 20 MiB of the allocator's", totals)
	}
	var heap int64
	for _, h := range taken.Holdings {
		switch {
		case h.Kind == growth.KindHeap && h.Stack.Root == unknownHolder:
			heap += h.ResidentBytes
		case h.Kind == growth.KindHeap:
			t.Errorf("%s holds %d bytes of heap", caller(h.Stack, program), h.ResidentBytes)
		}
	}
	if heap < 20*4096 { // one page of each is written
		t.Errorf("%d bytes of heap are resident, want at least 20 pages", heap)
	}
}

func TestOfA32BitProgramTheMappingsComeFromTheMaps(t *testing.T) {
	target := tracertest.Start(t, tracertest.Build(t, "bare.c", append(bare, "-m32")...))
	target.Await("ready")
	s := open(t, tracer.Options{PID: target.PID()})
	for _, name := range []string{"heap", "mapping"} {
		if said := sourceOf(t, s, name); !strings.Contains(said.Reason, "32-bit") {
			t.Errorf("source %s does not say that the program is a 32-bit one: %+v", name, said)
		}
	}
	target.Say("go")
	truth := told(t, target.Await("done"))
	taken := snapshot(t, s)
	const unseen = "[mapped without a system call being seen]"
	got, held := measured(taken, unseen), truth.holds[mapper{"map_here", growth.KindMmap}]
	want := space{holds: map[mapper]mappedBy{{unseen, growth.KindMmap}: {1, held.touched, 0}}, reserved: truth.reserved}
	want.allocator, want.heap = truth.allocator, truth.heap
	mustBe(t, got, want)
	if all := truth.reserved + truth.allocator; taken.Mappings.Unknown != all || taken.Mappings.Reserved != all {
		t.Errorf("%+v; want %d bytes without a call", taken.Mappings, all)
	}
}
