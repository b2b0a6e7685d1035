package growth

import "slices"

// A Row is one moment of a trace in sums.
type Row struct {
	// Sample of the traced processes together; all Unknown while there is none. Of GPUs, that of the processes of which it is known.
	Sample
	Tree   Tree
	Around Around
	Price  Price
}

// A Price is what tracing has cost since the moment before. Unknown where that is not measured.
type Price struct {
	// Overhead is the share of the traced processes' CPU time, in millionths.
	Overhead int64
	// Probed is the share of the time for which the allocator was probed, in thousandths.
	Probed int64
}

// A Tree is all processes of the tree together. PSS and Private are sums of each process's latest reading, as a reading is
// costly; Unknown before each has been read once.
type Tree struct {
	Processes, RSS, PSS, Private int64
}

// counters of a sample that are summed, in bytes or counts.
func (s *Sample) counters() []*int64 {
	return []*int64{
		&s.RSS, &s.Virtual, &s.Swap, &s.Anonymous, &s.File, &s.Shared, &s.PSS, &s.Private,
		&s.Threads, &s.MinorFaults, &s.MajorFaults, &s.Steps, &s.Tensors, &s.TensorBytes,
	}
}

// deviceCounters are those that a process without a GPU does not have, in bytes.
func (s *Sample) deviceCounters() []*int64 {
	return []*int64{&s.DeviceUsed, &s.CudaAllocated, &s.CudaReserved, &s.CudaDriver, &s.Pinned}
}

// UnknownSample is a sample of which nothing is known.
func UnknownSample() Sample {
	var s Sample
	for _, counter := range slices.Concat(s.counters(), s.deviceCounters()) {
		*counter = Unknown
	}
	return s
}

// sumSamples adds samples; what is unknown of one is unknown of all, and so is everything of none. Of GPUs, what is known is added:
// most processes of a tree use none.
func sumSamples(samples []Sample) Sample {
	if len(samples) == 0 {
		return UnknownSample()
	}
	sum := samples[0]
	for _, s := range samples[1:] {
		to := sum.counters()
		for i, value := range s.counters() {
			*to[i] = sumKnown(*to[i], *value)
		}
		to = sum.deviceCounters()
		for i, value := range s.deviceCounters() {
			*to[i] = sumAnyKnown(*to[i], *value)
		}
	}
	return sum
}

// sumAnyKnown is Unknown only where neither is known.
func sumAnyKnown(a, b int64) int64 {
	switch {
	case a == Unknown:
		return b
	case b == Unknown:
		return a
	}
	return a + b
}

func sumKnown(a, b int64) int64 {
	if a == Unknown || b == Unknown {
		return Unknown
	}
	return a + b
}
