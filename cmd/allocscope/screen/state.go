// Package screen is the screen that `allocscope trace` shows on a terminal while it runs. It draws
// a State as text, and turns keys into calls of Actions.
package screen

import (
	"time"

	"github.com/allocscope/allocscope/export/chart"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/words"
)

// State is the state of a trace at one moment. It is not changed after it was shown. Texts may hold
// anything: they come from the traced process.
type State struct {
	// Command and PID of the process that the trace is about.
	Command string
	PID     int
	// Processes of its tree, and how many of them are traced.
	Processes, Traced int
	// Elapsed is the time since tracing started, Duration the length of the whole trace; 0: until
	// Ctrl-C. UntilSettled: it ends when the verdict is settled, and then at the latest.
	Elapsed, Duration time.Duration
	UntilSettled      bool
	// Extension is by how much a key makes the trace longer; 0: it has no end.
	Extension time.Duration
	// RSS of the process in bytes, and its curve so far; RSS is negative where it is unknown.
	RSS   int64
	Curve chart.Curve

	// GPU is its memory on GPUs; nil: it has none, or that is unknown.
	GPU *GPU

	// Verdict at JudgedAt, which is provisional; nil: it is due at JudgedAt.
	Verdict  *summary.Verdict
	JudgedAt time.Duration
	// Suspect is the code with most of the growth, in words; empty: unknown.
	Suspect string
	// Keeper is who keeps its memory; nil: unknown.
	Keeper *summary.Keeper
	// Objects are how the process's objects grow by type; nil: unknown.
	Objects *summary.Objects
	// Diagnosis is the largest part of the growth with its cause, in words; empty: unknown.
	Diagnosis string
	// Headroom is the bytes until the Limit (growth.LimitMachine and others), which is empty where
	// none is known.
	Headroom int64
	Limit    string

	// Since is the baseline, from which growth counts; Warm: it is the judged end of the warm-up.
	Since time.Duration
	Warm  bool
	// Stacks that grew most or are largest, in any order.
	Stacks []Stack
	// Breakdown of the RSS from Since to the latest snapshot; Resident has the counts of the
	// kernel.
	Breakdown words.Breakdown
	Resident  summary.Resident

	// Steps of training a second over the last minute; negative: no steps were seen.
	Steps float64
	// Events a second since the last State.
	Events float64
	// CPU of allocscope itself as a share of one core since the last State, and its RSS in bytes.
	CPU    float64
	OwnRSS int64
	// Overhead of tracing so far; nil: unknown.
	Overhead *summary.Overhead
	// Drops are the losses so far, and DropReason their most frequent reason.
	Drops      uint64
	DropReason string
	// Marks are the latest ones, oldest first, and MarkCount is the number of all.
	Marks     []summary.Mark
	MarkCount int
}

// Stack is the growth and the size of one stack's memory.
type Stack struct {
	Component string
	// Where it is, in fewer and fewer words.
	Where []string
	// BytesPerMin of growth since State.Since; nil where no time has passed.
	BytesPerMin *int64
	// Bytes and Objects that are alive.
	Bytes   int64
	Objects float64
}

// rate in bytes a minute; 0: unknown.
func (s *Stack) rate() int64 {
	if s.BytesPerMin == nil {
		return 0
	}
	return *s.BytesPerMin
}
