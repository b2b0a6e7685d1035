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

// walkCPUShare is the share of a core that the walks of a process's heaps may take: 0.6 s in five
// minutes.
const walkCPUShare = 0.002

// chunkHeaderBytes is the size of the header that malloc writes when it makes a chunk: where its page
// is younger than the trace, the chunk is too.
const chunkHeaderBytes = 16

// WalkHeaps walks malloc's heaps, right after a scan of their pages. It returns nil where that has
// cost too much lately, where not all pages were scanned, and where the chunks do not add up: they
// may change faster than they can be read.
func (t *Tracker) WalkHeaps(
	scan *Scan, allocator liveness.ProcessAllocator, at time.Duration,
) *growth.HeapWalk {
	if scan.Share < 1 || !t.walks.Allowed(time.Now()) {
		return nil
	}

	// Free memory from before tracing started is in rows of its own.
	sums := scan.runs.PrefixSums()
	resident := func(start, end uint64) uint64 {
		bytes := sums.BytesIn(start, end)
		return uint64(bytes.Resident[mem.SinceTracing])
	}

	var chunks glibc.HeapChunks
	var err error
	t.walks.Spend(process.MeasureCPUTime(func() {
		chunks, err = allocator.WalkHeaps(t.process, resident)
	}))
	if err != nil {
		return nil
	}

	if t.older == nil {
		chunks.Large = slices.DeleteFunc(chunks.Large, func(chunk mem.Span) bool {
			return resident(chunk.Start, chunk.Start+chunkHeaderBytes) > 0
		})
	}
	t.keepOlder(chunks.Large, at)
	return &growth.HeapWalk{At: at, FreeResident: int64(chunks.FreeResident)}
}
