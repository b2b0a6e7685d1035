// Package overhead measures the CPU time that tracing takes, and keeps it within a limit. Meter
// reads the counters, package controller decides, and Runner opens and closes the probes.
package overhead

import (
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/overhead/controller"
	"github.com/allocscope/allocscope/tracer/overhead/duty"
)

// Limits of the overhead.
type Limits struct {
	// Limit is the largest share of the elapsed time that the probes may take from any thread; 0:
	// there is none. allocscope itself may take this share of the CPU time of the traced processes,
	// or OwnFloor, a share of one core, if that is more.
	Limit, OwnFloor float64
}

// Overhead is the cost of tracing, and how it was kept within the limit.
type Overhead struct {
	Limits
	// Elapsed is the time since counting began.
	Elapsed time.Duration
	// Traced is the CPU time of the traced processes since counting began, without the probes.
	// InProbes is the CPU time of the probes, by their calibrated costs, and Busiest the part of it
	// in the thread in which they took most.
	Traced, InProbes, Busiest time.Duration
	OwnCPU
	// Objects is the CPU time of reading objects and of walks of malloc's heaps.
	Objects time.Duration
	// Waited is the time that the thread which waited most for allocscope has waited. SeesWaits is
	// set where it was counted.
	Waited    time.Duration
	SeesWaits bool
	// InShim is the time that the preloaded library took, besides its probes, from the thread in
	// which it took most: by the allocations that its samples represent and a calibrated cost. 0:
	// there is none.
	InShim time.Duration
	Mode   growth.HeapMode
	// Interval is the sampling interval in force, in bytes.
	Interval uint64
	// Bursts is the number of bursts, and Open how long probes were open in all modes.
	Bursts int
	Open   time.Duration
	// StepBefore is the median time of the steps of training before the heap was probed. StepSince
	// is the mean time of all later ones: steps with and without probes count by their medians. 0:
	// too few steps were seen.
	StepBefore, StepSince time.Duration
	// StepBetween is the median time of the steps between bursts; 0: too few were seen.
	StepBetween time.Duration
	// Changes of mode or sampling interval, in the order of time. LeftOut is how many more there were.
	Changes []Change
	LeftOut int
}

// Slowdown returns the share of the elapsed time that the probes took from the thread that they slow
// down most, the share that the thread which waited most has waited, and the share of the preloaded
// library. Each adds up spans of time, in each of which that may be another thread: no thread was
// slowed down more.
func (o Overhead) Slowdown() float64 { return float64(o.slowed()) / float64(max(1, o.Elapsed)) }

func (o Overhead) slowed() time.Duration { return o.Busiest + o.Waited + o.InShim }

// OwnLimit returns the CPU time that allocscope itself may have taken so far; 0: there is no limit.
func (o Overhead) OwnLimit() time.Duration {
	return time.Duration(max(o.Limit*float64(o.Traced), o.OwnFloor*float64(o.Elapsed)))
}

// recurring is the CPU time of allocscope itself that the limit is for: while it traces, but for
// the time in advance of its tasks.
func (o Overhead) recurring() time.Duration { return max(0, o.Own-duty.Advance()) }

// OwnExcess returns the CPU time that allocscope itself has taken beyond its limit while it traced;
// 0: there is none.
func (o Overhead) OwnExcess() time.Duration {
	if limit := o.OwnLimit(); limit > 0 {
		return max(0, o.recurring()-limit)
	}
	return 0
}

// Use returns how much of its limit allocscope itself uses, in cores. The tasks also pay for the
// start beyond StartTime, and for reading objects beyond its time in advance.
func (o Overhead) Use() duty.Use {
	elapsed := float64(max(1, o.Elapsed))
	used := o.recurring() + max(0, o.Start-duty.StartTime) + max(0, o.Objects-duty.MemoryAdvance())
	return duty.Use{Limit: float64(o.OwnLimit()) / elapsed, Used: float64(used) / elapsed}
}

// Change is a change of the mode or of a sampling interval.
type Change = controller.Change
