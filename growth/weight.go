package growth

import "math"

// Weight is the number of objects that a sampled one of size bytes stands for: 1/p with p = 1 - exp(-size/interval),
// interval being the mean number of bytes between samples. An interval of 0 or 1 takes every allocation.
//
// It is the convention of Go's own heap profile, runtime/pprof scaleHeapSample.
func Weight(size, interval uint64) float64 {
	if interval <= 1 {
		return 1
	}
	if size == 0 {
		return 0
	}
	return -1 / math.Expm1(-float64(size)/float64(interval))
}
