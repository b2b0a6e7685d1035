// Package overhead measures the CPU time that tracing takes, and keeps it within a limit. Meter
// reads the counters, package controller decides, and Runner opens and closes the probes.
package overhead

import (
	"time"

	"github.com/allocscope/allocscope/tracer/overhead/controller"
)

// HeapMode is how the heap is probed.
type HeapMode = controller.Mode

// The heap modes, the most expensive first.
const (
	HeapFull   = controller.Full   // every call is probed
	HeapBursts = controller.Bursts // calls are probed in bursts, and their objects tracked between
	HeapOff    = controller.Off    // even bursts cost too much, or source heap is off
)

// Overhead is what tracing costs, and how it was kept within the limit.
type Overhead struct {
	// Limit is the largest share of the traced processes' CPU time that tracing may take; 0:
	// there is none.
	Limit float64
	// Elapsed is the time since counting began.
	Elapsed time.Duration
	// Traced is the CPU time of the traced processes since counting began, without the probes.
	// InProbes is that of the probes, by their calibrated costs. Own is that of allocscope since
	// it has started up.
	Traced, InProbes, Own time.Duration
	Mode                  HeapMode
	// Interval is the sampling interval in force, in bytes.
	Interval uint64
	// Bursts is the number of bursts, and Open how long probes were open in all modes.
	Bursts int
	Open   time.Duration
	// StepBefore is the median time of the steps of training before the heap was probed.
	// StepSince is the mean time of all later ones: those with and without probes count by their
	// medians. 0: too few steps were seen.
	StepBefore, StepSince time.Duration
	// StepBetween is the median time of the steps between bursts; 0: too few were seen.
	StepBetween time.Duration
	// Changes of mode or sampling interval, in the order of time.
	Changes []Change
}

// Share returns the share of the traced processes' CPU time that tracing took, allocscope
// included. The processes count as using at least controller.MinTracedCores.
func (o Overhead) Share() float64 {
	work := max(float64(o.Traced), controller.MinTracedCores*float64(o.Elapsed))
	if work <= 0 {
		return 0
	}
	return float64(o.InProbes+o.Own) / work
}

// Change is a change of the mode or of a sampling interval.
type Change = controller.Change
