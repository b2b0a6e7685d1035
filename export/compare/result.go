// Package compare compares two traces, or two profiles: before and after a fix, or two runs.
package compare

import "time"

// Schema is the version of the form of `allocscope diff --json`. It changes when a field changes its meaning or goes; new fields may
// come at any time.
const Schema = "allocscope-diff/1"

// A Result is what differs between before and after. Sizes are whole bytes, or bytes by Unit.
type Result struct {
	Schema string `json:"schema"`
	// Outcome is one of the constants Outcome…, Name says it in a word or two, and Sentence the rest.
	Outcome  Outcome `json:"outcome"`
	Name     string  `json:"name"`
	Sentence string  `json:"sentence"`
	// SampleType that is compared.
	SampleType string `json:"sample_type"`
	// Unit of all that Change, Owners and Stacks hold: one of the constants Unit….
	Unit   string `json:"unit"`
	Before Side   `json:"before"`
	After  Side   `json:"after"`
	// RSS is the rate by the verdicts, of memory on GPUs where that is compared; nil: of profiles, or it is not known.
	RSS *Difference `json:"rss,omitempty"`
	// Total is the sum of all stacks.
	Total Difference `json:"total"`
	// Owners and Stacks, the largest change that is proven first, then the largest.
	Owners []OwnerRow `json:"owners"`
	Stacks []StackRow `json:"stacks"`
	// Notes say what limits the comparison, a sentence each.
	Notes []string `json:"notes"`
}

// The units.
const (
	UnitBytes   = "bytes"
	UnitPerMin  = "bytes/min"
	UnitPerStep = "bytes/step"
)

// A Side is one of the two that are compared. What is not known is absent.
type Side struct {
	// Name of the folder or file.
	Name string `json:"name"`
	// Time at which it began, and how long it took in seconds.
	Time      *time.Time `json:"time,omitempty"`
	DurationS float64    `json:"duration_s,omitempty"`
	// IntervalBytes is the mean number of bytes between samples; 1: every allocation was taken; absent: it is not known.
	IntervalBytes int64 `json:"interval_bytes,omitempty"`
	// GrowthS is the time in seconds from the boundary to the end, over which growth is counted: of folders.
	GrowthS float64 `json:"growth_s,omitempty"`
	// PID and Command of the process, Verdict of its resident memory, or of its memory on GPUs where that is compared, and Why: of folders.
	PID     int    `json:"pid,omitempty"`
	Command string `json:"command,omitempty"`
	Verdict string `json:"verdict,omitempty"`
	Why     string `json:"why,omitempty"`
	// StepsPerMin of training since the boundary: of folders.
	StepsPerMin float64 `json:"steps_per_min,omitempty"`
}

// An Estimate is a number of bytes with its 95 % interval.
type Estimate struct {
	Bytes int64 `json:"bytes"`
	Low   int64 `json:"low"`
	High  int64 `json:"high"`
}

// A Difference is one thing before and after.
type Difference struct {
	Before Estimate `json:"before"`
	After  Estimate `json:"after"`
	Change Estimate `json:"change"`
	// State is one of the constants State….
	State State `json:"state"`
}

// A State says what became of something.
type State string

// The states.
const (
	StateAppeared State = "appeared" // nothing is proven before
	StateVanished State = "vanished" // nothing is proven after
	StateGrew     State = "grew"
	StateShrank   State = "shrank"
	StateSame     State = "same" // no change is proven, or of two runs one below 5 %
)

// An OwnerRow is all memory of one owner.
type OwnerRow struct {
	Owner string `json:"owner"`
	Difference
}

// A StackRow is all stacks of one owner and kind that read alike.
type StackRow struct {
	Owner string `json:"owner"`
	// Kind of memory; absent where the profile does not say.
	Kind string `json:"kind,omitempty"`
	// Function that called the allocator, and the Module it is in; absent if that is not known.
	Function string `json:"function"`
	Module   string `json:"module,omitempty"`
	// Stack in words, leaf first, with the lines of the side that holds more.
	Stack []string `json:"stack"`
	Difference
}
