package tracer_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer"
)

// TestBreakdownScale breaks down large, awkward and restless processes.
func TestBreakdownScale(t *testing.T) {
	t.Run("sixty thousand mappings", testBreakdownScaleSixtyThousandMappings)
	t.Run("process that maps and unmaps all the time", testBreakdownScaleProcessMapsUnmaps)
	t.Run("process that ends during the snapshot", testBreakdownScaleProcessEndsDuring)
	t.Run("rows of a sampled scan are within their error", testBreakdownScaleRowsSampledScan)
	t.Run("memory from before tracing started outlives sampled scans",
		testBreakdownScaleMemoryTracingStarted)
	t.Run("memory from before tracing started that was freed lazily",
		testBreakdownScaleMemoryFreedLazily)
	t.Run("first toucher outlives a sampled scan", testBreakdownScaleFirstToucherOutlives)
}

// TestBreakdownPinned compares the pinned rows with the pinned bytes of a driver that counts
// itself.
func TestBreakdownPinned(t *testing.T) {
	t.Parallel()
	t.Run("pinned memory is a row by its caller", testBreakdownPinnedPinnedMemoryRow)
	t.Run("registered memory leaves the heap", testBreakdownPinnedRegisteredMemoryLeaves)
	t.Run("overlapping registrations count once", testBreakdownPinnedOverlappingRegistrationsCount)
	t.Run("sampled scan keeps pinned memory resident", testBreakdownPinnedSampledScanKeeps)
}

func testBreakdownScaleSixtyThousandMappings(t *testing.T) {
	s, target := scaleOf(t, "mappings 60000", "top", "reserve 1000")
	rows := rowsOf(balanced(t, s), target.PID())
	mustBeNear(t, "mappings", rows[growth.KindMmap], 60_001*4096)
}

func testBreakdownScaleProcessMapsUnmaps(t *testing.T) {
	s, target := scaleOf(t, "resident 64", "storm")
	for range 30 {
		rows := addedUp(t, snapshot(t, s), target.PID())
		if off := rows[growth.KindUnexplained]; off > 4<<20 || off < -4<<20 {
			t.Errorf("%d bytes unexplained: %v", off, rows)
		}
	}
	order(target, "calm")
}

func testBreakdownScaleProcessEndsDuring(t *testing.T) {
	t.Parallel()
	for range 3 {
		target := startScale(t, "mappings 20000", "workers 5")
		s := open(t, tracer.Options{PID: target.PID(), Children: true, Interval: 1})

		followUntilTraced(t, s, target.PID())
		snapshot(t, s)
		go target.Process.Kill()
		for s.IsTraced(target.PID()) {
			got := snapshot(t, s)
			for _, r := range got.Residents {
				addedUp(t, got, r.PID)
			}
		}
	}
}

// Rows are estimates then, each with its variance. All rows of all scans together are unbiased. A
// larger share has the page groups of a smaller one too, so that the scans of a process count as one.
func testBreakdownScaleRowsSampledScan(t *testing.T) {
	t.Parallel()
	shares := []float64{0.3, 0.5}
	var sum, rows float64
	for range 3 {
		target, s := openOn(t, startLarge(t), exact)

		facts := do(t, target, "all")
		full := scanShareOf(t, s, target.PID(), 1)
		mustReport(t, full, target.PID(), facts)
		if r := residentOf(t, full, target.PID()); r.Scanned != 1 {
			t.Errorf("%v of all pages were scanned", r.Scanned)
		}

		rows += float64(len(facts))
		for _, share := range shares {
			got := scanShareOf(t, s, target.PID(), share)
			if r := residentOf(t, got, target.PID()); math.Abs(r.Scanned-share) > 0.15 {
				t.Errorf("%v of all pages were scanned, want %v", r.Scanned, share)
			}
			unexplained, _ := rowOf(got, target.PID(), fact{"", growth.KindUnexplained, 0})
			mustBeNear(t, fmt.Sprintf("known at a share of %v", share),
				residentOf(t, got, target.PID()).RSS-unexplained, residentOf(t, got, target.PID()).RSS)
			for _, f := range facts {
				sum += deviationsOff(t, share, f, got, full, target.PID()) / float64(len(shares))
			}
		}
	}

	if off := sum / math.Sqrt(rows); math.Abs(off) > 4.5 {
		t.Errorf("all rows together are off by %.1f standard deviations", off)
	}
}

// deviationsOff returns the difference of a row from the row of the full scan in standard
// deviations. Where few page groups were drawn, a row and its variance are both too low by the same
// factor. So the variance of the row as it should be is compared.
func deviationsOff(t *testing.T, share float64, f fact, got, full *growth.Snapshot,
	pid int,
) float64 {
	t.Helper()
	want, exact := rowOf(full, pid, f)
	row, variance := rowOf(got, pid, f)
	reported := math.Sqrt(variance)
	deviation := reported * math.Sqrt(max(1, float64(want)/float64(max(row, 1))))
	t.Logf("at a share of %v %s of %s: %+.2f %%, a standard deviation is %.2f %%", share, f.kind,
		f.name, 100*float64(row-want)/float64(want), 100*deviation/float64(want))
	switch off := float64(row - want); {
	case exact != 0:
		t.Errorf("%s of %s: a variance of %v where all was scanned", f.kind, f.name, exact)
	case reported < 0.01*float64(want) || reported > 0.6*float64(want):
		t.Errorf("%s of %s: a deviation of %.0f bytes of %d", f.kind, f.name, reported, want)
	case math.Abs(off) > 4.5*deviation:
		t.Errorf("at a share of %v %s of %s: %d ± %.0f bytes, want %d", share, f.kind, f.name, row,
			deviation, want)
	}
	return float64(row-want) / deviation
}

// Memory that a scan left out is not forgotten, and memory that it found gone is.
func testBreakdownScaleMemoryTracingStarted(t *testing.T) {
	const size = 192 << 20
	target := startLarge(t)
	do(t, target, "dense")
	do(t, target, "all")
	s := open(t, tracer.Options{PID: target.PID(), Interval: 1})

	before := rowsOf(scanShareOf(t, s, target.PID(), 1), target.PID())[growth.KindBeforeTracing]
	for _, share := range []float64{0.3, 0.1, 0.5} {
		got := rowsOf(scanShareOf(t, s, target.PID(), share), target.PID())
		if math.Abs(float64(got[growth.KindBeforeTracing]-before)) > 0.02*float64(before) {
			t.Errorf("at a share of %v %d bytes are from before tracing started, want %d", share,
				got[growth.KindBeforeTracing], before)
		}
	}

	mustBeNear(t, "from before tracing started",
		rowsOf(scanShareOf(t, s, target.PID(), 1), target.PID())[growth.KindBeforeTracing], before)
	do(t, target, "discard")
	scanShareOf(t, s, target.PID(), 0.3)
	mustBeNear(t, "from before tracing started",
		rowsOf(scanShareOf(t, s, target.PID(), 1), target.PID())[growth.KindBeforeTracing], before-size/2)
}

// Memory given back by MADV_FREE stays until the kernel needs it, and so it is from before tracing
// still.
func testBreakdownScaleMemoryFreedLazily(t *testing.T) {
	target := startLarge(t)
	do(t, target, "dense")
	s := open(t, tracer.Options{PID: target.PID(), Interval: 1})

	before := balanced(t, s)
	do(t, target, "lazy")
	after := balanced(t, s)
	reclaimed := residentOf(t, before, target.PID()).RSS - residentOf(t, after, target.PID()).RSS
	mustBeNear(t, "from before tracing started", rowsOf(after, target.PID())[growth.KindBeforeTracing],
		rowsOf(before, target.PID())[growth.KindBeforeTracing]-reclaimed)
	if after.Mappings.Released != 192<<20 {
		t.Errorf("%d bytes released, want %d", after.Mappings.Released, 192<<20)
	}
}

// Pages that a scan left out may be there all the same.
func testBreakdownScaleFirstToucherOutlives(t *testing.T) {
	target := startLarge(t)
	do(t, target, "reserve")
	do(t, target, "all")
	s := open(t, tracer.Options{PID: target.PID(), Interval: 1})

	facts := do(t, target, "first")
	const touched = 192 << 20 / page
	before := len(faultsOf(t, s, target.PID()))
	scanShareOf(t, s, target.PID(), 0.3)
	if after := len(faultsOf(t, s, target.PID())); before < touched || after < touched {
		t.Errorf("%d faults are known after a scan, %d before, want %d", after, before, touched)
	}
	mustReport(t, scanShareOf(t, s, target.PID(), 1), target.PID(), facts)
}

// pinnedBy are the resident bytes of pinned memory by who pinned it.
func pinnedBy(snapshot *growth.Snapshot, pid int) amounts {
	rows := make(amounts)
	for _, h := range holdingsOf(snapshot, pid) {
		if h.Kind == growth.KindPinned && h.ResidentBytes != 0 {
			name := h.Stack.Root
			if len(h.Stack.Frames) > 1 {
				name = h.Stack.Frames[1].Function
			}
			rows.add(name, 0, h.ResidentBytes)
		}
	}
	return rows
}

const page = 4096

// pages is so many bytes in whole pages.
func pages(bytes int64) int64 { return (bytes + page - 1) / page * page }

// The driver writes to the memory that it pins, so that all of it is resident. The kernel counts
// the pages.
func testBreakdownPinnedPinnedMemoryRow(t *testing.T) {
	t.Parallel()
	for _, sources := range [][]string{nil, {"cuda"}} {
		g, s := openOn(t, startCUDA(t, libcuda(t)), tracer.Options{Interval: 1, Sources: sources})

		before := rollup(t, g.PID())["Anonymous"]
		rows := rowsOf(balanced(t, s), g.PID())
		g.Do("hold hostalloc 3 20000000", "hold allochost 2 10000001", "hold hostalloc 100 5000",
			"free hostalloc 1")
		want := amounts{
			"hold_hostalloc": {0, 2*pages(20_000_000) + 100*pages(5000)},
			"hold_allochost": {0, 2 * pages(10_000_001)},
		}

		taken := balanced(t, s)
		mustAmount(t, "resident", pinnedBy(taken, g.PID()), want)
		all := want["hold_hostalloc"][1] + want["hold_allochost"][1]
		mustBeNear(t, "what the kernel counts more", rollup(t, g.PID())["Anonymous"]-before, all)
		for kind, bytes := range rowsOf(taken, g.PID()) { // it is no other row's
			if more := bytes - rows[kind]; kind != growth.KindPinned && more > 1<<20 {
				t.Errorf("%v: %s has grown by %d bytes\n%s", sources, kind, more,
					breakdownText(taken, g.PID()))
			}
		}

		reported := g.totals("totals")["pinned"]
		if reported != [2]int64{104, 2*20_000_000 + 2*10_000_001 + 100*5000} {
			t.Errorf("%d: the test is wrong", reported)
		}

		g.Do("free hostalloc 102", "free allochost 2")
		mustAmount(t, "after all is freed", pinnedBy(balanced(t, s), g.PID()), amounts{})
		mustLoseNothing(t, s)
	}
}

// The heap has allocated it. It is pinned as long as it is registered, and the heap's before and
// after.
func testBreakdownPinnedRegisteredMemoryLeaves(t *testing.T) {
	t.Parallel()
	const size, objects = 300_000, 40
	g, s := openOn(t, startCUDA(t, libcuda(t)), exact)

	g.Do("hold register 40 300000")
	before := pinnedBy(balanced(t, s), g.PID())["hold_register"][1]
	if before > objects*2*page { // only malloc has written, to its headers
		t.Errorf("%d bytes of memory that was not touched are resident", before)
	}

	g.Do("touch register 40")
	taken := balanced(t, s)
	mustAmount(t, "resident", pinnedBy(taken, g.PID()),
		amounts{"hold_register": {0, objects * pages(size)}})
	if heap, _ := rowOf(taken, g.PID(), fact{"hold_register", growth.KindHeap, 0}); heap > objects*page {
		t.Errorf("%d bytes of it are still the heap's\n%s", heap, breakdownText(taken, g.PID()))
	}

	g.Do("free register 10")
	mustAmount(t, "after ten have gone", pinnedBy(balanced(t, s), g.PID()),
		amounts{"hold_register": {0, (objects - 10) * pages(size)}})
	mustLoseNothing(t, s)
}

// Pages of two registrations count once, and pages that are no longer registered are the heap's
// again.
func testBreakdownPinnedOverlappingRegistrationsCount(t *testing.T) {
	t.Parallel()
	const size = 8_000_001
	g, s := openOn(t, startCUDA(t, libcuda(t)), exact)

	g.Do("overlap 8000001")
	taken := balanced(t, s)
	if row := pinnedBy(taken, g.PID())["overlap_here"][1]; row < size || row > size+2*page {
		t.Errorf("%d bytes are pinned, want %d\n%s", row, size, breakdownText(taken, g.PID()))
	}

	if sample := s.Sample().Processes[0]; sample.Pinned != size/4*3+size-size/4 {
		t.Errorf("%d bytes are registered", sample.Pinned)
	}

	g.Do("overlap")
	mustAmount(t, "after it is given back", pinnedBy(balanced(t, s), g.PID()), amounts{})
	mustLoseNothing(t, s)
}

// Most of the pinned memory is in large mappings, of which a share is scanned. Pinned pages are
// resident, scanned or not.
func testBreakdownPinnedSampledScanKeeps(t *testing.T) {
	t.Parallel()
	g, s := openOn(t, startCUDA(t, libcuda(t)), exact)

	g.Do("hold hostalloc 1 560000000", "hold register 20 3000000", "touch register 20",
		"hold allochost 3 20000000")
	want := amounts{
		"hold_hostalloc": {0, pages(560_000_000)},
		"hold_register":  {0, 20 * pages(3_000_000)},
		"hold_allochost": {0, 3 * pages(20_000_000)},
	}

	for _, share := range []float64{1, 0.3, 0.1, 0.03} {
		got := scanShareOf(t, s, g.PID(), share)
		mustAmount(t, fmt.Sprint("a share of ", share), pinnedBy(got, g.PID()), want)
		mustBeNear(t, "unexplained", rowsOf(got, g.PID())[growth.KindUnexplained], 0)
		if r := residentOf(t, got, g.PID()); share < 1 && r.Scanned > 0.5 {
			t.Errorf("%.2f of all pages were scanned, asked for %.2f", r.Scanned, share)
		}
	}
}
