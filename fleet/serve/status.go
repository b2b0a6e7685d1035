package serve

import (
	"math"
	"time"

	"github.com/allocscope/allocscope/export/metrics"
	"github.com/allocscope/allocscope/export/push"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/verdict"
)

// StatusSchema is the version of a Status.
const StatusSchema = "allocscope-agent-status/1"

// A Status is the state of the agent, in JSON: sizes in bytes. Unknown values are left out.
type Status struct {
	Schema  string `json:"schema"`
	Version string `json:"version"`
	// Node is the name of the host.
	Node string `json:"node"`
	// Unhealthy is why the agent does not do its work; empty: it does.
	Unhealthy string `json:"unhealthy,omitempty"`
	// Watched is the number of processes that the rules choose, Ignored of those beyond the bound.
	Watched int `json:"watched"`
	Ignored int `json:"ignored"`
	// Traces since the start of the agent, by outcome.
	Traces map[metrics.TraceOutcome]uint64 `json:"traces"`
	// FolderBytes is the size of the kept folders of traces.
	FolderBytes int64           `json:"folder_bytes"`
	Push        *push.Stats     `json:"push,omitempty"`
	Processes   []ProcessStatus `json:"processes"`
}

// A ProcessStatus is a watched process.
type ProcessStatus struct {
	JobID string      `json:"job_id,omitempty"`
	Rank  *int        `json:"rank,omitempty"`
	Role  growth.Role `json:"role"`
	Count int         `json:"count"`
	// PID and command line, shortened. No metric has them.
	PID     int    `json:"pid"`
	Command string `json:"command"`
	RSS     *int64 `json:"rss_bytes,omitempty"`
	// Limit is the one that is met first, as summary.json names it; empty: none is known.
	Limit    string `json:"limit,omitempty"`
	Headroom *int64 `json:"headroom_bytes,omitempty"`
	// Verdict on RSS; empty: none yet.
	Verdict verdict.Class `json:"verdict,omitempty"`
	// PerMin is the growth of RSS with its 95% confidence interval.
	PerMin     *float64 `json:"rate_bytes_per_min,omitempty"`
	PerMinLow  *float64 `json:"rate_low_bytes_per_min,omitempty"`
	PerMinHigh *float64 `json:"rate_high_bytes_per_min,omitempty"`
	// ToLimitS is the time until the limit at this rate; nil: never, or unknown.
	ToLimitS *float64 `json:"to_limit_s,omitempty"`
	// TracedAt is when the last trace ended; nil: there was none. TraceVerdict is its verdict.
	TracedAt     *time.Time    `json:"traced_at,omitempty"`
	TraceVerdict verdict.Class `json:"trace_verdict,omitempty"`
}

func statusOf(source Source) *Status {
	state := source.State()
	s := &Status{
		Schema: StatusSchema, Version: state.Version, Node: state.Node,
		Watched: state.Watched, Ignored: state.Ignored,
		Traces: state.Traces, FolderBytes: state.FolderBytes,
		Push: state.Push, Processes: make([]ProcessStatus, 0, len(state.Processes)),
	}
	if err := source.Ready(); err != nil {
		s.Unhealthy = err.Error()
	}
	if state.Traces == nil {
		s.Traces = map[metrics.TraceOutcome]uint64{}
	}
	for i := range state.Processes {
		s.Processes = append(s.Processes, statusOfProcess(&state.Processes[i]))
	}
	return s
}

func statusOfProcess(p *metrics.Process) ProcessStatus {
	s := ProcessStatus{
		JobID: p.Job, Role: p.Role, Count: p.Count, Verdict: p.Verdict,
		PID: p.PID, Command: growth.Printable(p.Command),
		RSS: knownSize(p.RSS), Limit: p.Headroom.Of,
		PerMin:     knownRate(p.Growth * time.Minute.Seconds()),
		PerMinLow:  knownRate(p.GrowthLow * time.Minute.Seconds()),
		PerMinHigh: knownRate(p.GrowthHigh * time.Minute.Seconds()),
		ToLimitS:   knownRate(p.ToLimit),
	}
	if p.Rank != growth.Unknown {
		s.Rank = &p.Rank
	}
	if p.Headroom.Of != "" {
		s.Headroom = knownSize(p.Headroom.Left)
	}
	if p.Trace != nil {
		s.TracedAt, s.TraceVerdict = &p.Trace.At, p.Trace.Verdict
	}
	return s
}

func knownSize(bytes int64) *int64 {
	if bytes == growth.Unknown {
		return nil
	}
	return &bytes
}

// knownRate returns nil for numbers that JSON does not have: NaN and infinity.
func knownRate(x float64) *float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return nil
	}
	return &x
}
