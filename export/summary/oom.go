package summary

import (
	"time"

	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/growth"
)

// An OOMKill is the report of the kernel's OOM killer about one process that it has killed.
type OOMKill struct {
	// AtS is when, in seconds since the start of the trace.
	AtS float64 `json:"at_s"`
	// PID in the initial PID namespace, and Command, the short name.
	PID     int    `json:"pid"`
	Command string `json:"command"`
	// Memory of the process in RAM.
	AnonymousBytes int64 `json:"anonymous_bytes"`
	FileBytes      int64 `json:"file_bytes"`
	SharedBytes    int64 `json:"shared_bytes"`
	// OfMachine: the machine was out of memory; absent: a cgroup was.
	OfMachine bool `json:"of_machine,omitempty"`
	// Cgroup whose limit was met, with its memory and its limit; absent where the report lacks them.
	Cgroup     string `json:"cgroup,omitempty"`
	UsedBytes  *int64 `json:"used_bytes,omitempty"`
	LimitBytes *int64 `json:"limit_bytes,omitempty"`
	// Own is the cgroup of the process; absent where the report lacks it.
	Own string `json:"own_cgroup,omitempty"`
	// Largest are the processes with most RSS that could have been chosen, of so many Processes;
	// absent where the report lacks them.
	Largest   []OOMTask `json:"largest,omitempty"`
	Processes int       `json:"processes,omitempty"`
}

// An OOMTask is a process that the OOM killer could have chosen.
type OOMTask struct {
	PID      int    `json:"pid"`
	Command  string `json:"command"`
	RSSBytes int64  `json:"rss_bytes"`
}

// RSSBytes is the memory of the process in RAM.
func (k *OOMKill) RSSBytes() int64 { return k.AnonymousBytes + k.FileBytes + k.SharedBytes }

// OOMKillOf returns a kill in the form of the summary of a trace that began at a time, by the clock
// of the kernel's log.
func OOMKillOf(k growth.OOMKill, began time.Duration) OOMKill {
	out := OOMKill{
		AtS: Seconds(k.At - began), PID: k.PID, Command: units.Command(k.Command),
		AnonymousBytes: k.Anonymous, FileBytes: k.File, SharedBytes: k.Shared,
		OfMachine: k.OfMachine, Cgroup: k.Cgroup, Own: k.Own, Processes: k.Count,
	}
	if !k.OfMachine {
		out.UsedBytes, out.LimitBytes = Known(k.Used), Known(k.Limit)
	}
	for _, t := range k.Largest {
		out.Largest = append(out.Largest, OOMTask{t.PID, units.Command(t.Command), t.RSS})
	}
	return out
}
