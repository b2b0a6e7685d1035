package summary

import (
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/verdict"
)

// A TreeProcess is a process of the traced tree.
type TreeProcess struct {
	PID    int `json:"pid"`
	Parent int `json:"parent_pid"`
	// Role is one of growth.Role…. Rank is the number of a distributed rank.
	Role    growth.Role `json:"role"`
	Rank    *int        `json:"rank,omitempty"`
	Command string      `json:"command"`
	// StartTicks is Target.StartTicks of this process; absent in folders of older versions.
	StartTicks int64 `json:"start_ticks,omitempty"`
	// Traced: with all sources. Other processes are only in the timeline.
	Traced bool `json:"traced"`
	// FirstS and LastS are when it was first and last seen.
	FirstS float64 `json:"first_s"`
	LastS  float64 `json:"last_s"`
	// StartBytes and EndBytes are its RSS then.
	StartBytes *int64 `json:"start_bytes,omitempty"`
	EndBytes   *int64 `json:"end_bytes,omitempty"`
	// Verdict on its RSS, and the rate with its 95% interval; absent if it was not traced.
	Verdict         verdict.Class `json:"verdict,omitempty"`
	RateBytesPerMin *float64      `json:"rate_bytes_per_min,omitempty"`
	RateLow         *float64      `json:"rate_low_bytes_per_min,omitempty"`
	RateHigh        *float64      `json:"rate_high_bytes_per_min,omitempty"`
	// Identity is which process of which job it is; absent if it was not traced, and in folders of
	// older versions.
	Identity *Identity `json:"identity,omitempty"`
}

// SetVerdict sets the verdict on the process, and the fields that depend on it.
func (p *TreeProcess) SetVerdict(v verdict.Verdict) {
	of := VerdictOf(v, AxisSeconds)
	p.Verdict = of.Class
	p.RateBytesPerMin, p.RateLow, p.RateHigh = of.Rate, of.RateLow, of.RateHigh
}

// A Related process belongs to the same job as the main process, but not to its tree.
type Related struct {
	PID     int    `json:"pid"`
	Command string `json:"command"`
	// GrowthBytes is the growth of its private memory over the trace.
	GrowthBytes int64 `json:"growth_bytes"`
}

// A Group is the workers of one role at the end of the trace.
type Group struct {
	Role      growth.Role `json:"role"`
	Processes int         `json:"processes"`
	// EachBytes is the median of their RSS, with shared pages counted for each.
	EachBytes *int64 `json:"rss_each_bytes,omitempty"`
	// PrivateBytes of all workers is the memory that no other process shares. PSSBytes adds their
	// part of shared memory.
	PrivateBytes *int64 `json:"private_bytes,omitempty"`
	PSSBytes     *int64 `json:"pss_bytes,omitempty"`
	// Verdict on PrivateBytes over the trace, and its rate.
	Verdict         verdict.Class `json:"verdict,omitempty"`
	RateBytesPerMin *float64      `json:"rate_bytes_per_min,omitempty"`
}

// A Limit is the memory limit that ends the growth.
type Limit struct {
	// Of is growth.LimitCgroup or another of these names.
	Of string `json:"of"`
	// Bytes is the limit; absent for the machine's limit.
	Bytes int64 `json:"bytes,omitempty"`
	// HeadroomBytes is the memory left below it at the end of the trace.
	HeadroomBytes int64 `json:"headroom_bytes"`
}

// Steps of training.
type Steps struct {
	Count  int64   `json:"count"`
	PerMin float64 `json:"per_min"`
	// GrowthBytesPerStep is the verdict's rate by step; absent if either is unknown.
	GrowthBytesPerStep *int64 `json:"growth_bytes_per_step,omitempty"`
}

// StepsPerMin is the rate of training steps; 0: unknown, or forged.
func (s *Summary) StepsPerMin() float64 {
	if s.Steps != nil && s.Steps.PerMin > 1e-6 && s.Steps.PerMin < 1e9 {
		return s.Steps.PerMin
	}
	return 0
}

// A Mark is a time that the program or its user has named.
type Mark struct {
	AtS  float64 `json:"at_s"`
	Text string  `json:"text"`
}
