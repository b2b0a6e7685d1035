// Package fleet is the agent: it finds the processes of jobs on a node, watches their memory,
// decides when to trace one, and keeps and pushes the results of the traces.
package fleet

import (
	"time"

	"github.com/allocscope/allocscope/export/push"
)

// Options of an agent.
type Options struct {
	Version string
	Rules   []Rule
	// Directory for folders of traces and the state that survives a restart.
	Directory string
	// Keep is the number of folders that are kept, and KeepBytes their size.
	Keep      int
	KeepBytes int64
	// Duration of a trace. TraceEvery is the least time between two traces of one process.
	Duration, TraceEvery time.Duration
	// Overhead is --overhead of the traces; empty: its default.
	Overhead string
	// TracesPerDay bounds the traces of all processes in 24 hours.
	TracesPerDay int
	// NearLimit is the used share of the limit that a process meets first from which it is traced; 0:
	// it is not traced for that.
	NearLimit float64
	// MinRSS is the RSS from which a process is watched, in bytes.
	MinRSS int64
	// Push is where profiles go; nil: nowhere.
	Push *push.Options
	// Report is called with each event, from any goroutine; nil: they are dropped.
	Report func(Event)
	// Speed is how many times faster than a real trainer the processes live. It is 1 but in tests.
	Speed float64
}

// period is a period of a real trainer, for processes that live faster.
func (o *Options) period(d time.Duration) time.Duration {
	return max(100*time.Millisecond, time.Duration(float64(d)/o.Speed))
}

// Bounds of an agent.
const (
	// MaxWatched bounds the processes that are watched. Each holds two file descriptors or more.
	MaxWatched = 128
	// MaxRules bounds the rules.
	MaxRules = 64
)

// A Rule chooses processes to watch. All its conditions must hold; empty ones do.
type Rule struct {
	// Job is the job ID of processes whose environment has none.
	Job string `yaml:"job_id"`
	// Command is a text of the command line.
	Command string `yaml:"command"`
	// User is a name or a UID.
	User string `yaml:"user"`
	// Cgroup is a text of the cgroup's path.
	Cgroup string `yaml:"cgroup"`
	// Environment has variables and their values; "*" is any value.
	Environment map[string]string `yaml:"environment"`
	// Labels of the profiles.
	Labels map[string]string `yaml:"labels"`
}
