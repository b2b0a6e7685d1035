// Package metrics presents the agent's state as metrics of Prometheus.
package metrics

import (
	"time"

	"github.com/allocscope/allocscope/export/push"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/verdict"
)

// A State is all that is known at one moment.
type State struct {
	Version string
	// Node is the name of the host, the label of all metrics.
	Node      string
	Processes []Process
	// Watched is the number of watched processes, Ignored of those that match the rules
	// beyond the bound.
	Watched, Ignored int
	// Traces since the start of the agent, by how they ended.
	Traces map[TraceOutcome]uint64
	// OOMKills is how many watched processes the kernel has killed for want of memory, since the
	// start of the agent.
	OOMKills uint64
	// FolderBytes is the size of the kept folders of traces.
	FolderBytes int64
	// Push is nil where no profiles are pushed.
	Push *push.Stats
}

// A TraceOutcome is how a trace of the agent ended.
type TraceOutcome string

// The outcomes.
const (
	TraceDone    TraceOutcome = "done"
	TraceFailed  TraceOutcome = "failed"
	TraceRefused TraceOutcome = "refused" // by the budget: too soon after the last one
)

// A Process is the watched processes with one job ID, rank and role; nearly always it is one. Sizes
// of several are sums, in bytes; Unknown where they cannot be read.
type Process struct {
	Job   string
	Rank  int // growth.Unknown: it is no rank
	Role  growth.Role
	Count int
	// PID and Command of one of them. No metric has them.
	PID     int
	Command string

	RSS, Anonymous, File, Shmem, Swap int64
	// Headroom of the one that is nearest to its limit.
	Headroom growth.Headroom
	// Verdict on RSS: the most severe one. Growth is its rate in bytes a second with the 95%
	// interval; NaN where there is none yet.
	Verdict                       verdict.Class
	Growth, GrowthLow, GrowthHigh float64
	// ToLimit is the time until the limit is met, in seconds; +Inf: never at this rate, NaN:
	// unknown.
	ToLimit float64
	// Trace is the last trace; nil: there was none.
	Trace *Trace
}

// A Trace is the result of the last trace of a process.
type Trace struct {
	// At is when it ended, and Duration its length.
	At       time.Time
	Duration time.Duration
	Verdict  verdict.Class
	// Rows of RSS at its end, in bytes. They sum to RSS.
	Rows map[growth.Kind]int64
	// Components are the growth of the largest ten by name, and of "other", in bytes a second.
	Components map[string]float64
	// Slowdown of the process by the probes, and OwnShare of a core that allocscope itself took, 1
	// being all; NaN where unknown.
	Slowdown, OwnShare float64
	Losses             map[growth.LossKind]uint64
}
