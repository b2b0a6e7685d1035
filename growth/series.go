package growth

// A Series is one size over time, such as the resident memory of a process. X is in seconds, or in training steps where the
// file has no times; Y is in bytes. Both have the same length.
type Series struct {
	X, Y []float64
}

// A Setting is what is known besides the series. All X are in the series' own unit; the zero value knows nothing.
type Setting struct {
	// Age of the process at the series' first sample.
	Age float64
	// Limit in bytes that Y cannot pass; 0: unknown.
	Limit float64
	// Start of the process on the X axis where the series reaches further back, to an earlier process; nil: unknown.
	Start *float64
	// EpochEnd is when the first pass over the data ended, or is due to end; nil: unknown.
	EpochEnd *float64
	// Cycle is the period of epochs or validations, the longer of them; 0: unknown.
	Cycle float64
	// Tolerable is growth in bytes per X that the user calls harmless; 0: none is.
	Tolerable float64
}
