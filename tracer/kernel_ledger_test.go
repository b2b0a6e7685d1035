package tracer_test

import (
	"runtime"
	"testing"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/doctor"
)

// The first kernels that count what is resident for each CPU, not for each thread, and that add up what CPUs have counted
// when they are asked.
const (
	countsByCPU   = 6<<8 | 2
	countsExactly = 6<<8 | 17
)

// countSlack bounds how far the kernel's count of a process's resident memory is off the pages, in bytes. It leaves out what
// threads have counted in their last 64 page faults, of up to 16 pages each, or what CPUs have in batches.
func countSlack(r growth.Resident) int64 {
	const page, counters = 4096, 3 // private, of files, shared
	kernel, cpus := runningKernel(), int64(runtime.NumCPU())
	switch {
	case kernel < countsByCPU:
		return r.Threads * 64 * 16 * page
	case kernel < countsExactly:
		return counters * cpus * max(32, 2*cpus) * page
	}
	return 32 * page // of the kernel's own for it
}

func TestKernelTellsHowItsPagesAreFound(t *testing.T) {
	for _, check := range doctor.Check(0) {
		if check.Name != "ledger" {
			continue
		}
		if mayMiss := check.Remedy != ""; mayMiss != (runningKernel() < tellsZeroPages) {
			t.Errorf("%+v", check)
		}
		return
	}
	t.Error("there is no check of the page map")
}

// A ledger of each kind of reading: pages, the signatures in them, page faults and what a fork shares.
func TestKernelLedgerSumsToRSS(t *testing.T) {
	target := startLedger(t)
	do(t, target, "map_beyond")
	s := open(t, tracer.Options{PID: target.PID(), Interval: 1, Children: true})
	var facts []fact
	for _, order := range []string{"map_beyond", "heap_small", "heap_fragment", "map_touched", "file_read " + dataFile(t, 8<<20), "hold_inherited"} {
		facts = append(facts, do(t, target, order)...)
		mustTell(t, balanced(t, s), target.PID(), facts)
	}
	child := startChild(t, target, "fork", "done")
	awaitMember(t, s, child)
	copied := do(t, target, "child write_inherited")
	after := balanced(t, s)
	mustTell(t, after, target.PID(), facts)
	mustTell(t, after, child, copied)
	mustBeCopiesByTheKernel(t, after, child)
	var unmeasured int64
	if runningKernel() < tellsZeroPages { // and so reads the page map
		unmeasured = 128 << 30
	}
	if after.Mappings.Unmeasured != unmeasured {
		t.Errorf("%d bytes have not been looked at, want %d", after.Mappings.Unmeasured, unmeasured)
	}
	for _, r := range after.Residents {
		t.Logf("PID %d: RSS %d, by its pages %d, unexplained %d", r.PID, r.RSS, rollup(t, r.PID)["Rss"], rowsOf(after, r.PID)[growth.KindUnexplained])
	}
}
