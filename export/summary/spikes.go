package summary

import (
	"github.com/allocscope/allocscope/growth/component"
	"github.com/allocscope/allocscope/growth/spike"
)

// SpikeMemory is the memory that is in RAM in spikes of the RSS of the main process only. It is of
// all spikes that fell back while the trace went on; Verdict.Spikes has the spikes of the judged
// segment.
type SpikeMemory struct {
	// Count of the spikes. PeakBytes is the highest sample above the level before.
	Count     int   `json:"count"`
	PeakBytes int64 `json:"peak_bytes"`
	// PeriodS is the median time from one to the next; absent where they come irregularly, or there
	// are fewer than three.
	PeriodS *float64 `json:"period_s,omitempty"`
	// ExtraSnapshots were taken in a possible spike, besides the ones in SnapshotsS.
	ExtraSnapshots int `json:"extra_snapshots"`
	// Captured is the highest spike in which there is a snapshot; absent if there is none.
	Captured *CapturedSpike `json:"captured,omitempty"`
}

// A CapturedSpike is the difference between a snapshot in a spike and those around it.
type CapturedSpike struct {
	// AtS is the time of the snapshot. BeforeS and AfterS are the times of the nearest ones
	// outside; AfterS is absent where the trace ended before.
	AtS     float64  `json:"at_s"`
	BeforeS float64  `json:"before_s"`
	AfterS  *float64 `json:"after_s,omitempty"`
	// Bytes of RSS above the level before, at AtS.
	Bytes int64 `json:"bytes"`
	// Stacks that hold memory then and neither before nor after, the largest first. Bytes are in
	// RAM, Share is of all of them; there is neither a rate nor a history.
	Stacks []Accumulation `json:"stacks"`
	// Suspect is the code that most of it has in common, without a rate; absent where no stack is
	// known. Share is of all that is in RAM in the spike only.
	Suspect *Suspect `json:"suspect,omitempty"`
}

// IsCaptured reports whether a snapshot lies in a spike.
func (s *SpikeMemory) IsCaptured() bool { return s != nil && s.Captured != nil }

// SpikeMemoryOf converts the spikes of a process, with so many stacks.
func SpikeMemoryOf(s spike.Spikes, rules *component.Rules, stacks int) *SpikeMemory {
	out := &SpikeMemory{Count: s.Count, PeakBytes: s.Peak, ExtraSnapshots: s.Extra}
	if s.Period > 0 {
		out.PeriodS = new(Seconds(s.Period))
	}

	c := s.Highest
	if c == nil {
		return out
	}

	contents := c.Contents()
	out.Captured = &CapturedSpike{
		AtS: Seconds(c.At.Elapsed), BeforeS: Seconds(c.Before.Elapsed), Bytes: c.Height,
		Stacks: Accumulating(contents, Period{Components: rules}, stacks),
	}
	if c.After != nil {
		out.Captured.AfterS = new(Seconds(c.After.Elapsed))
	}
	if suspects := spike.Suspects(contents, rules); len(suspects) > 0 {
		out.Captured.Suspect = new(SuspectOf(suspects[0]))
	}
	return out
}
