// Package live is the screen that `allocscope trace` shows on a terminal while it runs: a State goes in, text comes out, and keys come
// back as calls of Actions.
package live

import (
	"time"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/words"
)

// A State is where a trace stands at one moment. Who has handed it over changes it no more. Texts may hold anything: they come from the
// traced process.
type State struct {
	// Command and PID of the process that the trace is about.
	Command string
	PID     int
	// Processes of its tree, and how many of them are traced.
	Processes, Traced int
	// Elapsed since the start of the trace; Duration that was asked for, 0: until it is interrupted.
	Elapsed, Duration time.Duration
	// RSS of the process in bytes, and its course so far; RSS is negative where it is not known.
	RSS   int64
	Trail Trail

	// Device is its memory on GPUs; nil: it has none, or nobody looks.
	Device *Device

	// Verdict at JudgedAt, which is provisional; nil: there was no look yet, and the first is due at JudgedAt.
	Verdict  *summary.Verdict
	JudgedAt time.Duration
	// Blame is whose code most of the growth is, in words; empty where nobody is known.
	Blame string
	// Room in bytes until the Limit ("machine", "cgroup") is met; Limit is empty where none is known.
	Room  int64
	Limit string

	// Since is the moment from which growth counts; Warm: it is the end of the warm-up as far as judged.
	Since time.Duration
	Warm  bool
	// Stacks that grew or hold most, in any order.
	Stacks []Stack
	// Book of the process's ledger from Since to the latest snapshot, Resident what the kernel counts of it.
	Book     words.Breakdown
	Resident summary.Resident

	// Steps of training a second over the last minute; negative: none are seen.
	Steps float64
	// Events seen a second since the last State.
	Events float64
	// CPU of allocscope itself as a share of one core since the last State, and its RSS in bytes.
	CPU    float64
	OwnRSS int64
	// Overhead is what tracing has cost so far; nil: nobody has asked.
	Overhead *summary.Overhead
	// Drops are losses so far, and DropReason what most of them are.
	Drops      uint64
	DropReason string
	// Marks are the latest ones, oldest first, and MarkCount how many there have been.
	Marks     []summary.Mark
	MarkCount int
}

// A Stack is what one stack has gained and what it holds.
type Stack struct {
	Owner string
	// Where it is, in ever fewer words.
	Where []string
	// BytesPerMin gained since State.Since; nil where no time has passed.
	BytesPerMin *int64
	// Bytes and Objects that are alive.
	Bytes   int64
	Objects float64
}

// rate in bytes a minute; 0 where none is known.
func (s *Stack) rate() int64 {
	if s.BytesPerMin == nil {
		return 0
	}
	return *s.BytesPerMin
}
