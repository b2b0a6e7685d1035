package fleet

import (
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/verdict"
)

// An Event is an action or a finding of the agent.
type Event struct {
	Kind EventKind
	// PID, Identity and Command are of the process that it is about; PID 0: none.
	PID      int
	Identity growth.Identity
	Command  string
	// RSS of the process in bytes; growth.Unknown where it is not known.
	RSS int64
	// Used bytes of the Limit that it meets first, which Headroom names.
	Used, Limit int64
	Headroom    growth.Headroom
	// Verdict on its RSS, and Before, the class that it had.
	Verdict verdict.Verdict
	Before  verdict.Class
	// Folder of the trace, and Result, its result in one line.
	Folder, Result string
	// Wait is the time until a trace is allowed again.
	Wait time.Duration
	// Line that a trace has logged.
	Line string
	// OOM is the kernel's report of a process that it has killed for want of memory; nil: it has not,
	// or its log cannot be read.
	OOM *growth.OOMKill
	// Err is why something did not work.
	Err error
}

// An EventKind is the kind of an event.
type EventKind string

// The kinds of events.
const (
	EventAppeared     EventKind = "appeared"      // a process is watched from now on
	EventExecuted     EventKind = "executed"      // it executes another program now
	EventEnded        EventKind = "ended"         // it has exited
	EventReplaced     EventKind = "replaced"      // another process is watched in its place
	EventTurned       EventKind = "turned"        // its verdict is a leak, or is none any more
	EventNearLimit    EventKind = "near-limit"    // it grows, and meets its limit soon
	EventFull         EventKind = "full"          // its limit is nearly used up
	EventTraceStarted EventKind = "trace-started" //
	EventTraceLine    EventKind = "trace-line"    // the trace has logged Line
	EventTraceDone    EventKind = "trace-done"    //
	EventTraceFailed  EventKind = "trace-failed"  //
	EventTraceRefused EventKind = "trace-refused" // too soon, for another Wait
	EventTraceStuck   EventKind = "trace-stuck"   // the trace does not end
	EventFolderGone   EventKind = "folder-gone"   // Folder was removed, to keep few
	EventStateDamaged EventKind = "state-damaged" // Folder is where it is now
	EventRestored     EventKind = "restored"      // the history of a process goes on after a restart
	EventCrowded      EventKind = "crowded"       // more processes match than are watched
	EventError        EventKind = "error"         // the agent goes on without
)
