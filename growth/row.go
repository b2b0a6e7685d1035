package growth

// A Row is one moment of a trace in sums.
type Row struct {
	// Sample of the traced processes together; all Unknown while there is none.
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
		&s.DeviceUsed, &s.CudaAllocated, &s.CudaReserved, &s.CudaDriver, &s.Pinned,
	}
}

// UnknownSample is a sample of which nothing is known.
func UnknownSample() Sample {
	var s Sample
	for _, counter := range s.counters() {
		*counter = Unknown
	}
	return s
}

// sumSamples adds samples; what is unknown of one is unknown of all, and so is everything of none.
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
	}
	return sum
}

func sumKnown(a, b int64) int64 {
	if a == Unknown || b == Unknown {
		return Unknown
	}
	return a + b
}
