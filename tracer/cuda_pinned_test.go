package tracer_test

import (
	"fmt"
	"testing"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer"
)

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

// residentHeapOf is what the heap has in memory of what a function has allocated.
func residentHeapOf(snapshot *growth.Snapshot, function string) (bytes int64) {
	for _, h := range snapshot.Holdings {
		if h.Kind == growth.KindHeap && isNamed(h.Stack, function) {
			bytes += h.ResidentBytes
		}
	}
	return bytes
}

const page = 4096

// pages is so many bytes in whole pages.
func pages(bytes int64) int64 { return (bytes + page - 1) / page * page }

// The driver writes to what it pins, so that all of it is resident; the kernel counts the pages.
func TestPinnedMemoryIsARowOfTheLedgerByWhoPinnedIt(t *testing.T) {
	t.Parallel()
	for _, sources := range [][]string{nil, {"cuda"}, {"cuda", "mapping"}} {
		g := startCUDA(t, libcuda(t))
		s := open(t, tracer.Options{PID: g.PID(), Interval: 1, Sources: sources})
		before := rollup(t, g.PID())["Anonymous"]
		rows := rowsOf(balanced(t, s), g.PID())
		g.do("hold hostalloc 3 20000000", "hold allochost 2 10000001", "hold hostalloc 100 5000", "free hostalloc 1")
		want := amounts{"hold_hostalloc": {0, 2*pages(20_000_000) + 100*pages(5000)}, "hold_allochost": {0, 2 * pages(10_000_001)}}
		taken := balanced(t, s)
		mustAmount(t, "resident", pinnedBy(taken, g.PID()), want)
		all := want["hold_hostalloc"][1] + want["hold_allochost"][1]
		mustBeNear(t, "what the kernel counts more", rollup(t, g.PID())["Anonymous"]-before, all)
		for kind, bytes := range rowsOf(taken, g.PID()) { // it is no other row's
			if more := bytes - rows[kind]; kind != growth.KindPinned && more > 1<<20 {
				t.Errorf("%v: %s has grown by %d bytes\n%s", sources, kind, more, ledgerText(taken, g.PID()))
			}
		}
		if told := g.totals("totals")["pinned"]; told != [2]int64{104, 2*20_000_000 + 2*10_000_001 + 100*5000} {
			t.Errorf("%d: the test is wrong", told)
		}
		g.do("free hostalloc 102", "free allochost 2")
		mustAmount(t, "after all is freed", pinnedBy(balanced(t, s), g.PID()), amounts{})
		mustLoseNothing(t, s)
	}
}

// Others have allocated it: it is pinned as long as it is registered, and the heap's before and after.
func TestRegisteredMemoryIsPinnedAndNotTheHeaps(t *testing.T) {
	t.Parallel()
	const size, objects = 300_000, 40
	g := startCUDA(t, libcuda(t))
	s := open(t, tracer.Options{PID: g.PID(), Interval: 1})
	g.do("hold register 40 300000")
	before := pinnedBy(balanced(t, s), g.PID())["hold_register"][1]
	if before > objects*2*page { // nobody has written to it, but malloc to its headers
		t.Errorf("%d bytes of memory that was not touched are resident", before)
	}
	g.do("touch register 40")
	taken := balanced(t, s)
	mustAmount(t, "resident", pinnedBy(taken, g.PID()), amounts{"hold_register": {0, objects * pages(size)}})
	if heap := residentHeapOf(taken, "hold_register"); heap > objects*page {
		t.Errorf("%d bytes of it are still the heap's\n%s", heap, ledgerText(taken, g.PID()))
	}
	g.do("free register 10")
	mustAmount(t, "after ten have gone", pinnedBy(balanced(t, s), g.PID()), amounts{"hold_register": {0, (objects - 10) * pages(size)}})
	mustLoseNothing(t, s)
}

// What two registrations share counts once, and what is registered no more is the heap's again.
func TestRegistrationsThatOverlapCountEachPageOnce(t *testing.T) {
	t.Parallel()
	const size = 8_000_001
	g := startCUDA(t, libcuda(t))
	s := open(t, tracer.Options{PID: g.PID(), Interval: 1})
	g.do("overlap 8000001")
	taken := balanced(t, s)
	if row := pinnedBy(taken, g.PID())["overlap_here"][1]; row < size || row > size+2*page {
		t.Errorf("%d bytes are pinned, want %d\n%s", row, size, ledgerText(taken, g.PID()))
	}
	if sample := s.Sample().Processes[0]; sample.Pinned != size/4*3+size-size/4 {
		t.Errorf("%d bytes are registered", sample.Pinned)
	}
	g.do("overlap")
	mustAmount(t, "after it is given back", pinnedBy(balanced(t, s), g.PID()), amounts{})
	mustLoseNothing(t, s)
}

// Of large mappings a share is looked at, and of most of what is pinned there nothing: that it is pinned says that it is resident.
func TestOfAShareOfThePagesPinnedMemoryIsAllResident(t *testing.T) {
	t.Parallel()
	g := startCUDA(t, libcuda(t))
	s := open(t, tracer.Options{PID: g.PID(), Interval: 1})
	g.do("hold hostalloc 1 560000000", "hold register 20 3000000", "touch register 20", "hold allochost 3 20000000")
	want := amounts{
		"hold_hostalloc": {0, pages(560_000_000)}, "hold_register": {0, 20 * pages(3_000_000)}, "hold_allochost": {0, 3 * pages(20_000_000)},
	}
	for _, share := range []float64{1, 0.3, 0.1, 0.03} {
		got := lookAt(t, s, g.PID(), share)
		mustAmount(t, fmt.Sprint("a share of ", share), pinnedBy(got, g.PID()), want)
		mustBeNear(t, "unexplained", rowsOf(got, g.PID())[growth.KindUnexplained], 0)
		if r := residentOf(t, got, g.PID()); share < 1 && r.Scanned > 0.5 {
			t.Errorf("%.2f of all pages were looked at, asked for %.2f", r.Scanned, share)
		}
	}
}
