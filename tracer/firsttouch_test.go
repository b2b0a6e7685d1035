package tracer_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// TestFirstTouch divides memory that was mapped before tracing among the functions that have
// touched it, by sampled page faults.
func TestFirstTouch(t *testing.T) {
	t.Run("memory that was released and touched again", testFirstTouchReleased)
	t.Run("memory that was released, at a sampled scan", testFirstTouchSampledScan)
	t.Run("pages that became huge later", testFirstTouchCollapsed)
	t.Run("more pages than the kernel's map holds", testFirstTouchManyPages)
}

// startFirstTouch starts testdata/firsttouch.c. Each of its mappings has firstTouchBytes.
func startFirstTouch(t *testing.T, interval uint64) (
	target *tracertest.Target, program string, s *tracer.Session,
) {
	t.Helper()
	program = tracertest.Build(t, "firsttouch.c", "-fno-omit-frame-pointer")
	target = start(t, program)
	s = open(t, tracer.Options{
		PID: target.PID(), Interval: interval, Sources: []string{"mapping", "fault"},
	})
	return target, program, s
}

const firstTouchBytes = 128 << 20

// touchedBy are the resident bytes of the memory that was mapped before tracing, by function.
func touchedBy(snapshot *growth.Snapshot, program string) map[string]int64 {
	touched := make(map[string]int64)
	for _, h := range snapshot.Holdings {
		if h.Kind == growth.KindOlder && h.Stack.Root == "[older memory, touched now]" {
			touched[caller(h.Stack, program)] += h.ResidentBytes
		}
	}
	return touched
}

// mustTouch allows an error of a tenth.
func mustTouch(t *testing.T, got map[string]int64, function string, want int64) {
	t.Helper()
	if math.Abs(float64(got[function]-want)) > 0.1*firstTouchBytes {
		t.Errorf("%s has touched %d bytes, want %d, of %v", function, got[function], want, got)
	}
}

func testFirstTouchReleased(t *testing.T) {
	target, program, s := startFirstTouch(t, 64<<10)
	target.Do("early", "release", "late")

	got := touchedBy(balanced(t, s), program)
	mustTouch(t, got, "touch_early", 0)
	mustTouch(t, got, "touch_late", firstTouchBytes)
}

// Where not all pages are scanned, the faults of those that are gone must be forgotten all the
// same.
func testFirstTouchSampledScan(t *testing.T) {
	target, _, s := startFirstTouch(t, 64<<10)
	target.Do("small", "early")
	before := len(faultsOf(t, s, target.PID()))
	order(target, "release")

	setScanShare(t, s, target.PID(), 0.1)
	snapshot(t, s)
	period, pages := 17, firstTouchBytes/int(faultPage)
	if after := len(faultsOf(t, s, target.PID())); after > before-pages/period*9/10 {
		t.Errorf("%d faults are kept of %d, of which %d were of pages that are gone", after, before,
			pages/period)
	}
}

// Both functions have touched as many bytes, one by 512 times as many faults. In the end all of
// their pages are huge.
func testFirstTouchCollapsed(t *testing.T) {
	target, program, s := startFirstTouch(t, everyFault)
	target.Do("small", "huge", "collapse")
	if huge := rollup(t, target.PID())["AnonHugePages"]; huge < 2*firstTouchBytes {
		t.Skipf("the kernel made %d bytes of huge pages of %d", huge, 2*firstTouchBytes)
	}

	got := touchedBy(balanced(t, s), program)
	mustTouch(t, got, "touch_small", firstTouchBytes)
	mustTouch(t, got, "touch_huge", firstTouchBytes)
}

// testFirstTouchManyPages touches nearly three times as many pages as the kernel's map has room
// for. Each piece must be represented. Faults are thinned at random: an error of five standard
// deviations of independent draws with the largest weight that occurs.
func testFirstTouchManyPages(t *testing.T) {
	const pages, pieces = 30_000, 6
	target, _, s := traceFaults(t, everyFault)
	var truth []faultTruth
	for range pieces {
		truth = append(truth, reportedFaults(t, target.Do(fmt.Sprint("many ", pages)))...)
		s.Sample()
	}

	sums := make(map[uint64]float64)
	largest := 1.0
	for _, f := range faultsOf(t, s, target.PID()) {
		if by := touchedAt(truth, f.Page); by != nil {
			sums[by.start] += f.Weight
			largest = max(largest, f.Weight)
		}
	}
	for i, by := range truth {
		if off := math.Abs(sums[by.start] - pages); off > 5*math.Sqrt(pages*largest) {
			t.Errorf("faults of piece %d represent %v, want %d", i, sums[by.start], pages)
		}
	}
	mustLoseNothing(t, s)
}
