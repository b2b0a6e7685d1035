package overhead

import "time"

// A HeapMode is how source heap is watched.
type HeapMode string

// The heap modes, the costliest first.
const (
	HeapFull   HeapMode = "full"    // every call is probed
	HeapBursts HeapMode = "windows" // calls are probed now and then, and what stays is followed from outside
	HeapOff    HeapMode = "off"     // not even that is affordable, or nobody asked for it
)

// An Overhead is what tracing costs, and what has been done to keep that within bounds.
type Overhead struct {
	// Limit is the largest share of the traced processes' CPU time that it may take; 0: there is none.
	Limit float64
	// Elapsed since counting began.
	Elapsed time.Duration
	// Traced is the CPU time of the traced processes since counting began, without that of the probes. InProbes is what
	// those took of it, by calibrated prices, and Own the time of allocscope itself since it has started up.
	Traced, InProbes, Own time.Duration
	Mode                  HeapMode
	// Interval is the mean number of bytes between samples in force.
	Interval uint64
	// Windows that there were, and how long they were Open together.
	Bursts int
	Open   time.Duration
	// StepBefore is the median time of a step of training before heap was probed, and StepSince the mean over all that came
	// later, of which those with probes and those without count by their medians; 0: too few steps were seen.
	StepBefore, StepSince time.Duration
	// StepBetween is the median of the later ones without probes, those between windows; 0: too few were seen.
	StepBetween time.Duration
	// Changes in what is watched, in the order of time.
	Changes []Change
}

// quiet is the part of a core that processes count as using when they use less.
const minCoreShare = 0.2

// Share of the traced processes' CPU time that tracing took, ours included. What hardly runs counts as if it took a fifth of a
// core: nobody waits for it.
func (o Overhead) Share() float64 {
	of := max(float64(o.Traced), minCoreShare*float64(o.Elapsed))
	if of <= 0 {
		return 0
	}
	return float64(o.InProbes+o.Own) / of
}

// An Change is what has been changed, why and when since the start of the trace.
type Change struct {
	At   time.Duration
	Mode HeapMode
	Text string
}
