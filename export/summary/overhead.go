package summary

import (
	"math"
	"time"

	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/growth"
)

// Overhead is the cost of tracing, and the changes that kept it within its limit.
type Overhead struct {
	// Limit is the largest share of the elapsed time that the probes may take from any thread, 0.03
	// being 3%; absent: there is none.
	Limit float64 `json:"limit_share,omitempty"`
	// Slowdown is the share that they took from the thread that they slow down most, with the share
	// that a thread has waited for allocscope, and the share of the shim; absent: not measured.
	Slowdown *float64 `json:"slowdown_share,omitempty"`
	// WaitedS is the time in Slowdown that the thread which waited most has waited, while allocscope
	// read the memory of its process; absent: not measured, and not in Slowdown.
	WaitedS *float64 `json:"waited_s,omitempty"`
	// ShimS is the time in Slowdown of the shim's own work, in the thread in which it took most;
	// absent: not measured, or the programs were not started by `allocscope run`.
	ShimS *float64 `json:"shim_s,omitempty"`
	// InProbesS is the CPU time of the probes in all traced processes, by calibrated costs; absent:
	// not measured.
	InProbesS *float64 `json:"in_probes_s,omitempty"`
	// OwnS is the CPU time of allocscope itself between its start and the end of the trace,
	// OwnLimitS its limit, and TracedS the CPU time of the traced processes without the probes.
	// Absent: not measured.
	OwnS      float64 `json:"own_s,omitempty"`
	OwnLimitS float64 `json:"own_limit_s,omitempty"`
	// OwnExcessS is the part of OwnS beyond OwnLimitS and the time that tasks may take in advance.
	// Absent: none, or not measured.
	OwnExcessS float64 `json:"own_excess_s,omitempty"`
	TracedS    float64 `json:"traced_s,omitempty"`
	// StartS is the CPU time of the start, EndS of the end of the trace up to this file, and
	// SearchS of all censuses, searches for keepers and walks of malloc's heaps. SearchAtEndS is
	// the part of it that was spent when the trace had ended. They are no part of OwnS. Absent: not
	// measured, or there was none.
	StartS       float64 `json:"start_s,omitempty"`
	SearchS      float64 `json:"search_s,omitempty"`
	SearchAtEndS float64 `json:"search_at_end_s,omitempty"`
	EndS         float64 `json:"end_s,omitempty"`
	// LeftOutSnapshots would have cost too much of allocscope's own CPU time.
	LeftOutSnapshots int `json:"left_out_snapshots,omitempty"`
	// Mode of source heap at the end.
	Mode growth.HeapMode `json:"mode"`
	// Bursts in which the allocator was probed, and OpenS, their total length.
	Bursts int     `json:"bursts"`
	OpenS  float64 `json:"open_s"`
	// LagS is the age from which on objects count, where there were bursts; absent: there were
	// none.
	LagS float64 `json:"lag_s,omitempty"`
	// IntervalBytes is the mean number of bytes between samples at the end.
	IntervalBytes uint64 `json:"interval_bytes"`
	// StepBeforeS and StepSinceS are the time of a training step before the heap was probed, and
	// since; absent: too few were seen.
	StepBeforeS *float64 `json:"step_before_s,omitempty"`
	StepSinceS  *float64 `json:"step_since_s,omitempty"`
	// StepBetweenS is the time of the later steps without probes, between bursts; absent: too few
	// were seen.
	StepBetweenS *float64 `json:"step_between_s,omitempty"`
	// Changes of the probes, in the order of time: the first 1,000. LeftOutChanges came later.
	Changes        []OverheadChange `json:"changes"`
	LeftOutChanges int              `json:"left_out_changes,omitempty"`
}

// An OverheadChange is a change of the probes with its reason, and the mode of source heap since.
type OverheadChange struct {
	AtS  float64         `json:"at_s"`
	Mode growth.HeapMode `json:"mode"`
	growth.OverheadChange
}

// OverheadChangeOf converts a change. mode is the mode of source heap since.
func OverheadChangeOf(
	at time.Duration, mode growth.HeapMode, c growth.OverheadChange,
) OverheadChange {
	const most = 1e9 // of anything that is not forged
	for _, number := range []*float64{
		&c.Share, &c.Slowdown, &c.Limit, &c.Calls, &c.Length, &c.Spacing,
	} {
		if math.IsNaN(*number) {
			*number = 0
		}
		*number = min(*number, most)
	}
	c.Error = units.Name(c.Error)
	return OverheadChange{AtS: Seconds(at), Mode: mode, OverheadChange: c}
}

// InBursts reports whether the heap was sampled in bursts; false for nil.
func (o *Overhead) InBursts() bool { return o != nil && o.Bursts > 0 }

// withLists returns a copy without a list that JSON would write as null.
func (o *Overhead) withLists() *Overhead {
	if o == nil {
		return nil
	}
	out := *o
	out.Changes = list(o.Changes)
	return &out
}
