package caching

import (
	"fmt"
	"testing"
	"time"

	"github.com/allocscope/allocscope/tracer/process"
)

// BenchmarkRead reports the CPU time of one reading by the number of blocks, half of which are
// allocated: of the first reading, and of a later one.
func BenchmarkRead(b *testing.B) {
	for _, blocks := range []int{100, 1_000, 10_000, 100_000, 300_000} {
		b.Run(fmt.Sprint(blocks), func(b *testing.B) {
			a := startAllocator(b, 206)
			process.KeepMemory(a.process)
			a.Do(fmt.Sprintf("fill %d 5000", blocks))

			milliseconds := func() float64 {
				return float64(process.MeasureCPUTime(func() { a.read() })) / float64(time.Millisecond)
			}
			first := milliseconds()
			later := 0.0
			for range b.N {
				later += milliseconds()
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(first, "ms-first")
			b.ReportMetric(later/float64(b.N), "ms-later")
		})
	}
}
