package words

import (
	"testing"
	"time"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
)

func TestStartNotes(t *testing.T) {
	for want, note := range map[string]summary.Note{
		"Tracing PID 7 (python3 train.py).": TracedProcess(7, "python3 train.py"),
		"Tracing PID 7 (?[2J).":             TracedProcess(7, "\x1b[2J"),
		"Sampling 1 allocation per 512 KiB, slowing the job by 3% at most. " +
			"Result in 5m; Ctrl-C stops early and writes it.": Plan{
			Interval: 512 << 10, Limit: 0.03, Duration: 5 * time.Minute,
		}.Note(),
		"Sampling allocations, slowing the job by 0.5% at most. " +
			"Ctrl-C stops and writes the result.": Plan{Limit: 0.005}.Note(),
		"Recording every allocation, however much that slows the job. " +
			"Ctrl-C stops and writes the result.": Plan{Interval: 1}.Note(),
		"Tracing without source heap, slowing the job by 3% at most. " +
			"Ctrl-C stops and writes the result.": Plan{Limit: 0.03, NoHeap: true}.Note(),
		"malloc of PID 7 is tcmalloc (libtcmalloc.so.4). Where the budget allows bursts only, call " +
			"sites of the heap stay undecided: --overhead off records every call and names them, " +
			"and slows the job more.": Allocator{
			PID: 7, Name: "tcmalloc", Path: "/usr/lib/libtcmalloc.so.4",
		}.Note(),
		"malloc of PID 7 is mimalloc (libmimalloc.so.2). Where the budget allows bursts only, call " +
			"sites of the heap may stay unnamed for long: --overhead off records every call and names " +
			"them, and slows the job more.": Allocator{
			7, "mimalloc", "/lib/libmimalloc.so.2", growth.HeapFreedLooksAlive,
		}.Note(),
		"malloc of PID 7 is jemalloc (libjemalloc.so.2). Where the budget allows bursts only, free " +
			"memory inside it is not measured, and growth by fragmentation stays undecided: " +
			"--overhead off measures it, and slows the job more.": Allocator{
			7, "jemalloc", "/usr/lib/libjemalloc.so.2", growth.HeapFreeUnmeasured,
		}.Note(),
	} {
		if note.Text != want {
			t.Errorf("%q, want %q", note.Text, want)
		}
		if note.Code == "" {
			t.Errorf("%q has no code", note.Text)
		}
	}

	for limit := range growth.HeapLimitCount {
		a := Allocator{Limit: limit}
		needs, has := a.NeedsNote(), heapLimits[limit] != ""
		if want := limit != growth.HeapUnlimited; needs != want || has != want {
			t.Errorf("%+v needs a note: %t, and has one: %t", a, needs, has)
		}
	}
}
