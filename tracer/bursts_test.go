package tracer_test

import (
	"fmt"
	"math"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/hostile"
	"github.com/allocscope/allocscope/tracer/source"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// TestBursts probes the heap in bursts. No case is parallel: a program that another test starts
// inherits the probes of the last burst until it executes, and an allocation that two bursts probe
// would count twice.
func TestBursts(t *testing.T) {
	t.Run("burst represents the time since the last", testBurstsBurstRepresentsTime)
	t.Run("frees between bursts are found from outside", testBurstsFreesBurstsFound)
	t.Run("objects of tcmalloc cannot be checked", testBurstsUntrackable)
	t.Run("unclassified heap is not free", testBurstsUnclassifiedHeapFree)
	t.Run("walks find what is free", testBurstsWalksFree)
	t.Run("large objects count exactly, within bursts and between", testBurstsLargeObjects)
	t.Run("call cut by the end of a burst", testBurstsCallCutEnd)
	t.Run("slow call cut by the end of a burst", testBurstsSlowCall)
	t.Run("reused address is a loss outside of bursts", testBurstsReusedAddressLoss)
	t.Run("fingerprints find replaced objects", testBurstsFingerprintsFindReplaced)
	t.Run("unprobed target leaves the others", testBurstsUnprobedTargetLeaves)
	t.Run("ended target keeps its objects", testBurstsEndedTargetKeeps)
	t.Run("new target counts from its own start", testBurstsNewTargetCounts)
	t.Run("snapshot within a burst leaves its tallies", testBurstsSnapshotWithinBurst)
	t.Run("deaths while every call is probed", testBurstsDeathsCallProbed)
	t.Run("detach forgets what was learnt", testBurstsDetachForgetsLearnt)
}

func checkLiveness(s *tracer.Session) {
	limit := tracer.Tracker(s).Limit
	limit.Spend(limit.Credit()) // repays the debt of the last check
	tracer.Probing(s).CheckLiveness()
}

func trackedObjects(s *tracer.Session) int { return len(tracer.Tracker(s).Objects) }

// lastFactor is how many times its own length the last probe period represents.
func lastFactor(s *tracer.Session) float64 {
	schedule := tracer.Schedule(s)
	return schedule.Extrapolation(len(schedule.Periods)-1, 0)
}

// misplaceHeap makes it impossible to attach to the allocator of a target.
func misplaceHeap(s *tracer.Session, pid int) {
	for _, target := range tracer.Targets(s) {
		for i := range target.Heap.Functions {
			if target.PID == pid {
				target.Heap.Functions[i].Path = hostile.HeldPath{}
			}
		}
	}
}

// startBursts runs a program that allocates on command, with preloaded libraries. It traces the
// program in bursts, of which none is open yet.
func startBursts(t *testing.T, preload ...string) (*tracertest.Target, *tracer.Session) {
	t.Helper()
	target, s := openOn(t, startBurstsProgram(t, preload...), exact)
	tracer.Schedule(s).Lag = time.Nanosecond
	closeHeap(t, s)
	return target, s
}

func startBurstsProgram(t *testing.T, preload ...string) *tracertest.Target {
	t.Helper()
	command := exec.Command(tracertest.Build(t, "bursts.c"))
	return startCommand(t, preloading(strings.Join(preload, ":"), command))
}

func inBurst(t *testing.T, target *tracertest.Target, s *tracer.Session, orders ...string) {
	t.Helper()
	openBurst(t, s)
	target.Do(orders...)
	closeHeap(t, s)
}

// mustEstimate wants the estimate for a function to be so many objects of that size, multiplied by
// the factor.
func mustEstimate(t *testing.T, s *growth.Snapshot, function string, objects, size int64,
	factor float64,
) {
	t.Helper()
	got := held(s)[function]
	want := factor * float64(objects)
	if math.Abs(float64(got[0])-want) > 2 ||
		math.Abs(float64(got[1])-want*float64(size)) > 0.5*float64(objects)+1 {
		t.Errorf("%s holds %d objects of %d bytes in all, want %.1f of %d each", function, got[0],
			got[1], want, size)
	}
}

func testBurstsBurstRepresentsTime(t *testing.T) {
	target, s := startBursts(t)
	target.Do("keep 700 100") // no probe is open
	time.Sleep(300 * time.Millisecond)
	inBurst(t, target, s, "keep 1000 100", "churn 5000 100")
	factor := lastFactor(s)
	if factor < 1.001 {
		t.Fatalf("the burst represents %.2f times its length", factor)
	}

	taken := snapshot(t, s)
	mustEstimate(t, taken, "kept_here", 1000, 100, factor)
	if churn, ok := held(taken)["churn_here"]; ok {
		t.Errorf("churn_here holds %d, want nothing", churn)
	}

	for _, h := range taken.Holdings {
		if h.Kind == growth.KindHeap && h.Stack.Frames[1].Function == "churn_here" &&
			math.Abs(h.AllocObjects-5000*factor) > 2 {
			t.Errorf("churn_here has allocated %.1f objects, want %.1f", h.AllocObjects,
				5000*factor)
		}
	}
	if taken.Heap.Bursts != 1 || math.Abs(taken.Heap.Extrapolation-factor) > 1e-9 {
		t.Errorf("%+v, factor %.2f", taken.Heap, factor)
	}
}

// sizes of objects, in bytes: small ones, those that malloc sorts into its bins, and large ones.
var sizes = []int{24, 100, 1000, 20_000, 300_000}

// ofEachSize are the orders to allocate so many objects of each size. The oldest are dropped first.
func ofEachSize(verb string, objects int) (orders []string) {
	for _, size := range sizes {
		orders = append(orders, fmt.Sprint(verb, " ", objects, " ", size))
	}
	return orders
}

func mustTrack(t *testing.T, s *tracer.Session, objects int) {
	t.Helper()
	if n := trackedObjects(s); n != objects {
		t.Errorf("%d objects are tracked, want %d", n, objects)
	}
}

func testBurstsFreesBurstsFound(t *testing.T) {
	target, s := startBursts(t)
	inBurst(t, target, s, slices.Concat(ofEachSize("keep", 150), ofEachSize("keep", 100),
		ofEachSize("keep", 150))...)
	checkLiveness(s)
	mustTrack(t, s, 400*len(sizes))

	target.Do(fmt.Sprint("drop ", 150*len(sizes)))
	checkLiveness(s)
	mustTrack(t, s, 250*len(sizes))

	inBurst(t, target, s, fmt.Sprint("drop ", 100*len(sizes))) // seen by the probe
	mustTrack(t, s, 150*len(sizes))

	deaths := 100 * len(sizes)
	got := evidenceOf(t, s, "kept_here")
	if counts := got.HazardRate.Mature(0); got.Bursts != 1 || counts.Deaths != deaths ||
		counts.ExposureSeconds <= 0 {
		t.Errorf("%+v, want 1 burst and %d deaths", got, deaths)
	}
}

// No object is checked where malloc's metadata cannot be read, and the result says so.
func testBurstsUntrackable(t *testing.T) {
	target, s := startBursts(t, "libtcmalloc_minimal.so.4")
	inBurst(t, target, s, "keep 400 100")
	target.Do("drop 150")
	checkLiveness(s)
	mustTrack(t, s, 400)
	if reason := snapshot(t, s).Heap.Untrackable; !strings.Contains(reason, "libtcmalloc") {
		t.Errorf("untrackable because of %q", reason)
	}
}

// Live objects that are too young, or were born while no probe was open, are not memory that the
// allocator retains.
func testBurstsUnclassifiedHeapFree(t *testing.T) {
	target, s := startBursts(t)
	tracer.Schedule(s).Lag = time.Hour
	inBurst(t, target, s, "keep 2000 10000")
	target.Do("keep 2000 10000")
	rows := rowsOf(balanced(t, s), target.PID())
	if rows[growth.KindRetained] != 0 {
		t.Errorf("%d bytes are retained, of rows %v", rows[growth.KindRetained], rows)
	}
	mustBeNear(t, "unclassified", rows[growth.KindUnclassified], 2*2000*10000)
}

// Memory that no probe has seen is found by the chunks themselves. The last block keeps the rest
// from being given back.
func testBurstsWalksFree(t *testing.T) {
	target, s := startBursts(t)
	target.Do("keep 3000 10000", "other 1 64", "drop 2000")

	var walk *growth.HeapWalk
	eventually(t, "the heap is walked", func() bool {
		walk = snapshot(t, s).Residents[0].Walk
		return walk != nil
	})
	mustBeNear(t, "free", walk.FreeResident, 2000*10000)
}

// An object of a burst does not represent the objects of the pause, which source mapping has seen.
// malloc rounds up to pages.
func testBurstsLargeObjects(t *testing.T) {
	const size = 33 << 20 // more than the program's M_MMAP_THRESHOLD
	order := fmt.Sprint("keep 1 ", size)
	target, s := startBursts(t)
	target.Do(order, order) // no probe is open
	time.Sleep(300 * time.Millisecond)
	inBurst(t, target, s, order)

	// The last call of a burst is not sampled, so that no probe sees its return.
	must(t, tracer.Probing(s).OpenHeap(true, 1<<30))
	target.Do("keep 1 64")
	closeHeap(t, s)
	target.Do(order, "drop 1", fmt.Sprint("churn 5 ", size))

	var objects float64
	var inuse, resident int64
	for _, h := range balanced(t, s).Holdings {
		if h.Kind == growth.KindHeap && len(h.Stack.Frames) > 0 {
			if leaf := growth.WithoutAllocator(h.Stack.Frames)[0].Function; leaf != "kept_here" {
				t.Errorf("%s holds %d bytes", leaf, h.InuseBytes)
				continue
			}
			objects += h.InuseObjects
			inuse += h.InuseBytes
			resident += h.ResidentBytes
		}
	}
	const page = 4096
	if objects != 3 || inuse < 3*size || inuse > 3*(size+page) ||
		resident < 3*size || resident > 3*(size+page) {
		t.Errorf("kept_here holds %v objects of %d bytes, %d resident, want 3 of %d each",
			objects, inuse, resident, size)
	}
}

func testBurstsCallCutEnd(t *testing.T) {
	target := start(t, tracertest.Build(t, "leak.c", "-pthread"), "4", "200000", "64", "2000")
	s := open(t, tracer.Options{PID: target.PID(), Interval: 1})
	tracer.Schedule(s).Lag = time.Nanosecond
	target.Say("go")
	for range 20 { // while calls are under way
		closeHeap(t, s)
		openBurst(t, s)
		before, _ := counters(t, s)
		eventually(t, "calls are seen", func() bool {
			now, _ := counters(t, s)
			return now.Allocations >= before.Allocations+10_000
		})
	}

	if n := lossOf(t, s, growth.LossMissedReturn); n != 0 {
		t.Errorf("lost: %d returns", n)
	}
	if got := held(snapshot(t, s)); got["leak_here"][0] == 0 {
		t.Errorf("nothing is seen any more: %v, %d tracked", got, trackedObjects(s))
	}
}

// A call that is under way at the end of a burst counts, even if it takes 100 ms. On a machine under load
// it may take longer than a burst waits.
func testBurstsSlowCall(t *testing.T) {
	const bursts = 10
	preload := tracertest.Build(t, "preload.c", "-shared", "-fPIC", "-DSLOW_US=100000")
	target, s := startBursts(t, preload)
	before := counted(t, s, bpf.CountSamples)
	for range bursts {
		openBurst(t, s)
		begun := counted(t, s, bpf.CountBegun)
		target.Say("keep 1 2000000")
		eventually(t, "the call begins", func() bool { return counted(t, s, bpf.CountBegun) > begun })
		closeHeap(t, s)
		target.Await("done")
	}
	if n := counted(t, s, bpf.CountSamples) - before; n < bursts/2 {
		t.Errorf("%d of %d calls count", n, bursts)
	}
	if begun, ended := counted(t, s, bpf.CountBegun), counted(t, s, bpf.CountEnded); ended < begun-bursts/2 || ended > begun {
		t.Errorf("%d calls have begun, %d ended", begun, ended)
	}
}

func testBurstsReusedAddressLoss(t *testing.T) {
	for _, in := range []struct {
		name            string
		burst, reported bool
	}{{"bursts", true, false}, {"all the time", false, true}} {
		target, s := startBursts(t)
		for range 2 {
			must(t, tracer.Probing(s).OpenHeap(in.burst, 1))
			target.Do("keep 300 1000")
			closeHeap(t, s)
			target.Do("drop 300")
		}

		if n := lossOf(t, s, growth.LossMissedFree); n > 0 != in.reported {
			t.Errorf("%s: lost: %d frees", in.name, n)
		}
	}
}

func evidenceOf(t *testing.T, s *tracer.Session, function string) growth.BurstEvidence {
	t.Helper()
	for _, h := range snapshot(t, s).Holdings {
		if h.Evidence != nil && h.Stack.Frames[1].Function == function {
			return *h.Evidence
		}
	}
	t.Fatalf("nothing of %s was seen in bursts", function)
	return growth.BurstEvidence{}
}

func testBurstsFingerprintsFindReplaced(t *testing.T) {
	target, s := startBursts(t)
	inBurst(t, target, s, "keep 400 1000")
	checkLiveness(s)
	if got := evidenceOf(t, s, "kept_here"); got.Fingerprinted != 400 || got.Unchanged != 400 ||
		got.Diversity < 0.99 {
		t.Errorf("%d of %d objects are as they were, and two differ with %.3f; "+
			"want all of 400, and 0.99", got.Unchanged, got.Fingerprinted, got.Diversity)
	}
	target.Do("drop 150", "other 150 1000")
	checkLiveness(s)
	got := evidenceOf(t, s, "kept_here")
	if got.Unchanged != 250 || got.Fingerprinted < 300 { // some are found dead
		t.Errorf("%d of %d objects are as they were after 150 of 400 were replaced", got.Unchanged,
			got.Fingerprinted)
	}
}

func heapOf(s *tracer.Session, pid int) source.Status {
	for _, source := range s.Sources() {
		if source.Name == "heap" && source.PID == pid {
			return source
		}
	}
	return source.Status{}
}

func testBurstsUnprobedTargetLeaves(t *testing.T) {
	target, s := startBursts(t)
	other := startBurstsProgram(t)
	mustAttach(t, s, other.PID())
	misplaceHeap(s, other.PID())
	inBurst(t, target, s, "keep 1000 100")
	mustEstimate(t, snapshot(t, s), "kept_here", 1000, 100, lastFactor(s))
	if source := heapOf(s, other.PID()); source.Attached ||
		!strings.Contains(source.Reason, "no such file or directory") {
		t.Errorf("%+v", source)
	}
}

func testBurstsEndedTargetKeeps(t *testing.T) {
	target, s := startBursts(t)
	other := startBurstsProgram(t)
	mustAttach(t, s, other.PID())
	inBurst(t, other, s, "keep 300 100")
	pid := other.PID()
	misplaceHeap(s, pid) // the error of an attach to an ending process depends on the moment
	other.Hangup()       // the session may have noticed the end or not
	inBurst(t, target, s)
	if source := heapOf(s, pid); !source.Attached {
		t.Errorf("%+v", source)
	}

	mustTrack(t, s, 300)
}

func testBurstsNewTargetCounts(t *testing.T) {
	target, s := startBursts(t)
	inBurst(t, target, s)
	time.Sleep(500 * time.Millisecond)
	other := startBurstsProgram(t)
	openBurst(t, s)
	mustAttach(t, s, other.PID()) // while it is open
	target.Do("keep 1000 100")
	other.Do("other 1000 100", "churn 100 100")
	closeHeap(t, s)
	taken := snapshot(t, s)
	mustEstimate(t, taken, "kept_here", 1000, 100, lastFactor(s))
	mustEstimate(t, taken, "other_here", 1000, 100, 1)
	for _, h := range taken.Holdings {
		if h.Kind == growth.KindHeap && h.Stack.PID == other.PID() &&
			h.Stack.Frames[1].Function == "churn_here" && h.AllocObjects != 100 {
			t.Errorf("churn_here has allocated %.1f objects, want 100", h.AllocObjects)
		}
	}
}

func testBurstsSnapshotWithinBurst(t *testing.T) {
	target, s := openOn(t, startBurstsProgram(t), tracer.Options{Interval: 1, MaxStacks: 4})
	tracer.Schedule(s).Lag = time.Nanosecond
	closeHeap(t, s)
	openBurst(t, s)
	// 6 of 8 tallies
	target.Do("keep 10 100", "keep 10 200", "keep 10 400", "keep 10 800", "keep 10 1600",
		"keep 10 3200")
	snapshot(t, s)
	closeHeap(t, s)
	objects := 0.0
	for _, h := range snapshot(t, s).Holdings {
		if h.Kind == growth.KindHeap {
			objects += h.AllocObjects
		}
	}

	if want := 60 * lastFactor(s); math.Abs(objects-want) > 0.01 || lastFactor(s) < 1.001 {
		t.Errorf("%.2f objects were allocated, want %.2f", objects, want)
	}
}

func testBurstsDeathsCallProbed(t *testing.T) {
	target, s := startBursts(t)
	inBurst(t, target, s, "keep 400 100")
	must(t, tracer.Probing(s).OpenHeap(false, 1))

	target.Do("drop 150")
	closeHeap(t, s)
	mustTrack(t, s, 250)

	if got := evidenceOf(t, s, "kept_here"); got.HazardRate != (growth.HazardRate{}) {
		t.Errorf("%+v", got)
	}
}

func testBurstsDetachForgetsLearnt(t *testing.T) {
	target, s := startBursts(t)
	other := startBurstsProgram(t)
	mustAttach(t, s, other.PID())
	inBurst(t, target, s, "keep 10 100")
	inBurst(t, other, s, "keep 300 100")
	checkLiveness(s)
	tracker := tracer.Tracker(s)
	if hazards, allocators := len(tracker.HazardRates), len(tracker.Allocators); hazards != 2 ||
		allocators != 2 {
		t.Errorf("%d hazard rates and %d allocators are known, want 2 and 2", hazards, allocators)
	}

	mustDetach(t, s, other.PID())
	if hazards, allocators := len(tracker.HazardRates), len(tracker.Allocators); hazards != 1 ||
		allocators != 1 || trackedObjects(s) != 10 {
		t.Errorf("%d hazard rates, %d allocators and %d objects are known, want 1, 1 and 10",
			hazards, allocators, trackedObjects(s))
	}
}
