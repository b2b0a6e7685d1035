// Package conclude turns the record of a trace into its result: the process that it is about, the
// verdicts, the growth between two snapshots, the causes and the advice. It is pure: the end of a
// trace, its checks and the screen call it, and the same record gives the same result.
package conclude

import (
	"slices"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/census"
	"github.com/allocscope/allocscope/growth/component"
	"github.com/allocscope/allocscope/growth/judge"
	"github.com/allocscope/allocscope/growth/keeper"
	"github.com/allocscope/allocscope/growth/verdict"
)

// A Trace is the record of a trace so far. Where it continues an earlier trace, its history begins
// with the earlier one.
type Trace struct {
	Options
	// PID of the process that the user named.
	PID int
	// Began is when tracing began: 0, unless an earlier trace is continued.
	Began   time.Duration
	History *growth.History
	// Snapshots in order, while the traced processes lived. Exit is the memory left when the last
	// one exited; nil: one lives.
	Snapshots []*growth.Snapshot
	Exit      *growth.Snapshot
	// HasEnded: the processes have ended, or are to end with the trace.
	HasEnded bool
	// Surroundings of the tree; zero before the end of the trace.
	growth.Surroundings
	// Checks of RSS and of GPU memory so far; nil: the trace is judged once.
	Checks, GPUChecks *verdict.Rechecks
	// Censuses in the order of time, and the latest answers on Keepers, of all processes.
	Censuses []*census.Result
	Keepers  []keeper.Search
}

// Options are the user's knowledge of the job, and the strictness of the judgement.
type Options struct {
	Criteria verdict.Criteria
	// Limit of the memory of the process tree, in bytes; 0: none is given.
	Limit int64
	// Warmup and Tolerable as in judge.Case.
	Warmup     time.Duration
	Tolerable  float64
	Components *component.Rules
}

// caseOf returns the data that a judgement of a process takes into account.
func (t *Trace) caseOf(process *growth.ProcessHistory) judge.Case {
	c := judge.Case{
		Process: process, Headroom: growth.Unknown,
		GPUHeadroom: growth.GPUHeadroom(t.History.GPUs, process.PID), Marks: t.History.Marks,
		Snapshots: t.Snapshots, Warmup: t.Warmup, Tolerable: t.Tolerable,
		Criteria: t.Criteria, Components: t.Components, Censuses: t.CensusesOf(process),
	}

	if first := t.Headroom(process); first.Of != "" {
		c.Headroom = first.Left
	}
	return c
}

// Headroom is the memory left, at the last sample, until a process meets its first limit; nil: no
// process was traced.
func (t *Trace) Headroom(process *growth.ProcessHistory) (first growth.Headroom) {
	if n := len(t.History.Rows); n > 0 {
		last := t.History.Rows[n-1]
		first = last.System.Headroom().Nearest(growth.GivenHeadroom(t.Limit, last.Tree))
	}

	if process != nil {
		first = first.Nearest(process.Headroom)
	}
	return first
}

// lastElapsed is the time of the last sample.
func (t *Trace) lastElapsed() time.Duration {
	if len(t.History.Rows) == 0 {
		return 0
	}
	return t.History.Rows[len(t.History.Rows)-1].Elapsed
}

// ownRows are the samples of this trace, without the samples of the traces that it continues.
func (t *Trace) ownRows() []growth.Row {
	rows := t.History.Rows
	i := slices.IndexFunc(rows, func(row growth.Row) bool { return row.Elapsed >= t.Began })
	if i < 0 {
		return nil
	}
	return rows[i:]
}

// cacheAt is the page cache of the container at the sample nearest to a time; Unknown before the
// first sample.
func (t *Trace) cacheAt(at time.Duration) int64 {
	cache, nearest := int64(growth.Unknown), time.Duration(-1)
	for _, row := range t.History.Rows {
		if distance := (row.Elapsed - at).Abs(); nearest < 0 || distance < nearest {
			cache, nearest = row.System.CgroupCache, distance
		}
	}
	return cache
}

// KeepersOf returns who keeps the growing memory of a process, by the latest answers; nil has none.
func (t *Trace) KeepersOf(p *growth.ProcessHistory) (own []keeper.Search) {
	for _, s := range t.Keepers {
		if p != nil && p.Had(s.PID, s.Elapsed) {
			own = append(own, s)
		}
	}
	return own
}

// CensusesOf returns the censuses of a process, in order; nil has none.
func (t *Trace) CensusesOf(p *growth.ProcessHistory) (own []*census.Result) {
	for _, c := range t.Censuses {
		if p != nil && p.Had(c.PID, c.Elapsed) {
			own = append(own, c)
		}
	}
	return own
}
