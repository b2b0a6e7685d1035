package residency

import (
	"slices"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/heap/glibc"
	"github.com/allocscope/allocscope/tracer/liveness"
	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/process"
)

// walkSpacing is how many times as long as at the last walk a trace is at the next one, unless CPU
// time has accrued for it before. A short trace of a large heap would not know what of it is free:
// so row walks has an advance for such walks, and there is a walk at the end.
const walkSpacing = 3

// chunkHeaderBytes is the size of the header that malloc writes when it makes a chunk: where its page
// is younger than the trace, the chunk is too.
const chunkHeaderBytes = 16

// WalkHeaps walks malloc's heaps, right after a scan of their pages, and returns the CPU time that it
// took. The walk is nil where that has cost too much lately, unless the trace ends, where not all
// pages were scanned, and where the chunks do not add up: they may change faster than they can be
// read.
func (t *Tracker) WalkHeaps(
	scan *Scan, allocator liveness.ProcessAllocator, at time.Duration, atEnd bool,
) (walk *growth.HeapWalk, cost time.Duration) {
	isDue := atEnd || t.walks.Allowed(time.Now()) && at >= t.nextWalk
	if scan.Share < 1 || !isDue {
		return nil, 0
	}

	// Free memory from before tracing started is in rows of its own.
	sums := scan.runs.PrefixSums()
	resident := func(start, end uint64) uint64 {
		bytes := sums.BytesIn(start, end)
		return uint64(bytes.Resident[mem.SinceTracing])
	}

	var chunks glibc.HeapChunks
	var err error
	cost = process.MeasureCPUTime(func() { chunks, err = allocator.WalkHeaps(t.process, resident) })
	t.walks.Spend(cost)
	t.nextWalk = min(walkSpacing*at, at+time.Duration(float64(cost)/t.walks.Share()))
	if err != nil {
		return nil, cost
	}

	if chunks.ByBins {
		return &growth.HeapWalk{At: at, FreeResident: int64(chunks.FreeResident)}, cost
	}
	if t.older == nil {
		chunks.Large = slices.DeleteFunc(chunks.Large, func(chunk mem.Span) bool {
			return resident(chunk.Start, chunk.Start+chunkHeaderBytes) > 0
		})
	}
	t.keepOlder(chunks.Large, at)
	return &growth.HeapWalk{At: at, FreeResident: int64(chunks.FreeResident)}, cost
}
