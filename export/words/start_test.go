package words

import (
	"testing"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
)

func TestStartNotes(t *testing.T) {
	plan := func(p summary.Plan) summary.Note {
		return summary.Note{Code: summary.NoteSampling, Plan: p}
	}
	asked := func(command string) summary.Note {
		return summary.ProcessNote(growth.Selection{
			Reason: growth.SelectionAsked, PID: 7, Traced: command,
		})
	}
	allocator := func(name, file string, limit growth.HeapLimit) summary.Note {
		return summary.Note{Code: summary.NoteAllocator, Allocator: summary.Allocator{
			PID: 7, Name: name, File: file, Limit: limit,
		}}
	}

	for want, note := range map[string]summary.Note{
		"Tracing PID 7 (python3 train.py).": asked("python3 train.py"),
		"Tracing PID 7 (?[2J).":             asked("\x1b[2J"),
		"Sampling 1 allocation per 512 KiB, slowing the job by 3% at most. " +
			"Result in 5m; Ctrl-C stops early and writes it.": plan(summary.Plan{
			IntervalBytes: 512 << 10, Limit: 0.03, DurationS: 300,
		}),
		"Sampling allocations, slowing the job by 0.5% at most. " +
			"Ctrl-C stops and writes the result.": plan(summary.Plan{Limit: 0.005}),
		"Recording every allocation, however much that slows the job. " +
			"Ctrl-C stops and writes the result.": plan(summary.Plan{IntervalBytes: 1}),
		"Tracing without source heap, slowing the job by 3% at most. " +
			"Ctrl-C stops and writes the result.": plan(summary.Plan{Limit: 0.03, NoHeap: true}),
		"malloc of PID 7 is tcmalloc (libtcmalloc.so.4). Where the budget allows bursts only, call " +
			"sites of the heap stay undecided: --overhead off records every call and names them, " +
			"and slows the job more.": allocator("tcmalloc", "libtcmalloc.so.4",
			growth.HeapUnchecked),
		"malloc of PID 7 is mimalloc (libmimalloc.so.2). Where the budget allows bursts only, call " +
			"sites of the heap may stay unnamed for long: --overhead off records every call and names " +
			"them, and slows the job more.": allocator("mimalloc", "libmimalloc.so.2",
			growth.HeapFreedLooksAlive),
		"malloc of PID 7 is mimalloc (libmimalloc.so.3). Where the budget allows bursts only, call " +
			"sites of the heap stay undecided, as its version is not known (jemalloc 5.3 and 5.4, and " +
			"mimalloc 2.0 are): --overhead off records every call and names them, and slows the job " +
			"more.": allocator("mimalloc", "libmimalloc.so.3", growth.HeapUnknownVersion),
		"malloc of PID 7 is an unknown one (libx.so). Where the budget allows bursts only, free " +
			"memory inside it is not measured, and growth by fragmentation stays undecided: " +
			"--overhead off measures it, and slows the job more.": allocator("", "libx.so",
			growth.HeapFreeUnmeasured),
	} {
		mustBe(t, Note(note), want)
	}
}

func TestHeadroom(t *testing.T) {
	for of, want := range map[string]string{
		growth.LimitMachine:      "3.00 GiB of headroom in the machine",
		growth.LimitCgroup:       "3.00 GiB of headroom in the cgroup",
		growth.LimitHigh:         "3.00 GiB of headroom below the cgroup's memory.high",
		growth.LimitAddressSpace: "3.00 GiB of headroom below the process's RLIMIT_AS",
		growth.LimitGiven:        "3.00 GiB of headroom below the limit given by --limit",
	} {
		mustBe(t, Headroom(summary.Limit{Of: of, HeadroomBytes: 3 << 30}), want, of)
	}
}
