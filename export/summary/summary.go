package summary

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/allocscope/allocscope/export/profile"
	"github.com/allocscope/allocscope/export/units"

	"github.com/allocscope/allocscope/growth"
)

// SummarySchema is the version of the form of summary.json. It changes when a field changes its meaning or goes; new fields
// may come at any time.
const Schema = "allocscope/1"

// A Summary is the content of summary.json, for programs.
//
// Sizes are whole bytes and their names end in _bytes (or hold _bytes_ before a rate's unit); inside lists and maps that hold
// sizes alone the name is "bytes". Times are seconds with decimals and their names end in _s. A value that is not known is
// absent, never 0; a list or map without entries is empty, never absent, unless its comment says otherwise.
type Summary struct {
	// Schema is SummarySchema; Write sets it.
	Schema string `json:"schema"`
	// Version of allocscope.
	Version string `json:"version"`
	// CommandLine with which allocscope was called, the program's name first.
	CommandLine []string `json:"command_line"`
	// Started is when the trace began, RFC 3339. All other times count from it.
	Started time.Time `json:"started"`
	// DurationS is how long the trace took, in seconds.
	DurationS float64 `json:"duration_s"`
	// Ended says why the trace ended: one of the constants Ended….
	Ended string `json:"ended"`
	// Verdict of the process: its keys are at the top level of the file.
	Verdict
	// Process that the trace is about, with all sources.
	Process Process `json:"process"`
	// Asked is the PID that was asked for, where another is traced.
	Asked int `json:"asked_pid,omitempty"`
	// Processes of the tree that are no workers, in the order in which they appeared, and the others in Groups.
	Processes []TreeProcess `json:"processes"`
	Groups    []Group       `json:"groups"`
	// Limit that is met first; absent if none is known.
	Limit *Limit `json:"limit,omitempty"`
	// Steps of training since the boundary; absent where none were seen.
	Steps *Steps `json:"steps,omitempty"`
	// Marks that were set while it ran.
	Marks []Mark `json:"marks"`
	// Culprits are the code that accumulates, by whose memory it is, largest first.
	Suspects []Suspect `json:"suspects"`
	// Kernel release, as uname -r prints it, and Architecture, as Go names it: "amd64" or "arm64".
	Kernel       string `json:"kernel"`
	Architecture string `json:"architecture"`
	// IntervalBytes is the mean number of bytes between samples at the end; 1 means that every allocation was taken.
	IntervalBytes uint64 `json:"interval_bytes"`
	// Sources of events, attached or not.
	Sources []Source `json:"sources"`
	// BoundaryS is the moment from where on growth is counted: the end of the warm-up, as far as it is known.
	BaselineS *float64 `json:"baseline_s,omitempty"`
	// RSS is the resident memory of the process.
	RSS RSS `json:"rss"`
	// Live is what was alive at the end.
	Live Live `json:"live"`
	// Mappings made since the attach, at the end.
	Mappings Mappings `json:"mappings"`
	// SnapshotsS are the moments of the snapshots, in seconds.
	SnapshotsS []float64 `json:"snapshots_s"`
	// Accumulating are the stacks that hold more at the end than at the boundary, largest first, as many as were asked for.
	Accumulating []Accumulation `json:"accumulating"`
	// Ledger accounts for the resident memory of each process at the boundary and the end, Residents are what the kernel counted
	// of them then, and Advice is what that speaks for.
	Breakdown []BreakdownRow `json:"breakdown"`
	Residents []Resident     `json:"residents"`
	Advice    []Advice       `json:"advice"`
	// Devices are the traced processes with memory on a GPU, and what became of it there.
	GPUMemory []GPUMemory `json:"gpu_memory"`
	// GPUs of the machine, or their instances, as NVML tells.
	GPUs []GPU `json:"gpus"`
	// Released is memory that was given back to the kernel since the attach; absent if none was or nobody looked.
	Released []Release `json:"released,omitempty"`
	// Events that were counted in the kernel.
	Events Events `json:"events"`
	// Overhead is what tracing has cost; absent in files of before that was measured.
	Overhead *Overhead `json:"overhead,omitempty"`
	// Losses are the events and stacks that are missing from all these numbers.
	Losses []Loss `json:"losses"`
	// Files of the trace: what is in it ("growth", "timeline") to the file's name in the folder of this summary.
	Files map[string]string `json:"files"`
	// Warnings for people, a sentence each.
	Warnings []string `json:"warnings"`
}

// Why a trace ended.
const (
	EndedDuration  = "duration"
	EndedInterrupt = "interrupt"
	EndedExit      = "target-exited"
)

// A Process is the process that was traced.
type Process struct {
	PID int `json:"pid"`
	// Command is the short name, as in /proc/PID/comm.
	Command string `json:"command"`
	// Executable is the path of the program; absent if it could not be read.
	Executable string `json:"executable,omitempty"`
	// Arguments of the program, its name first; absent if they could not be read.
	Arguments []string `json:"arguments,omitempty"`
}

// A Source is one sort of events.
type Source struct {
	// Name: "heap", "mapping", ….
	Name string `json:"name"`
	// PID of the process that it watches; absent: all.
	PID int `json:"pid,omitempty"`
	// State is one of the constants Source….
	State string `json:"state"`
	// Reason why the source is not attached; absent if it is.
	Reason string `json:"reason,omitempty"`
}

// States of a source.
const (
	SourceAttached = "attached"
	SourceFailed   = "failed"
	SourceOff      = "off" // nobody asked for it
)

// RSS is the resident memory of the process, shared pages counted whole.
type RSS struct {
	// StartBytes at the start of the trace. BoundaryBytes and EndBytes at BoundaryS and at the end are those of Residents, whose
	// difference the rows of the ledger sum to.
	StartBytes    *int64 `json:"start_bytes,omitempty"`
	BaselineBytes *int64 `json:"baseline_bytes,omitempty"`
	EndBytes      *int64 `json:"end_bytes,omitempty"`
	// GrowthBytesPerMin since the boundary, negative if it shrank; absent without a boundary.
	GrowthBytesPerMin *int64 `json:"growth_bytes_per_min,omitempty"`
}

// Live is what was alive at one moment, estimated from the samples.
type Live struct {
	// Objects of all kinds.
	Objects int64 `json:"objects"`
	// Bytes by kind; for mappings those that have been touched. Kinds that hold nothing are absent.
	Bytes map[growth.Kind]int64 `json:"bytes"`
}

// Mappings is growth.MappingTotals, which explains the fields.
type Mappings struct {
	ReservedBytes   int64 `json:"reserved_bytes"`
	TouchedBytes    int64 `json:"touched_bytes"`
	AllocatorBytes  int64 `json:"allocator_bytes"`
	UnknownBytes    int64 `json:"unknown_bytes"`
	VanishedBytes   int64 `json:"vanished_bytes"`
	UnmeasuredBytes int64 `json:"unmeasured_bytes"`
	ReleasedBytes   int64 `json:"released_bytes"`
	UnmappedBytes   int64 `json:"unmapped_bytes"`
}

// An Accumulation is what one stack holds more than before, in one kind of memory.
type Accumulation struct {
	// Rank among all that grew, 1 being the largest.
	Rank int `json:"rank"`
	// Function that called the allocator, and the Module it is in; absent if that is not known.
	Function string `json:"function"`
	Module   string `json:"module,omitempty"`
	// Kind of memory: one of growth.Kind.
	Kind growth.Kind `json:"kind"`
	// Objects and Bytes that came on top.
	Objects int64 `json:"objects"`
	Bytes   int64 `json:"bytes"`
	// BytesPerMin is Bytes by the time since the boundary; absent if that time is 0.
	BytesPerMin *int64 `json:"bytes_per_min,omitempty"`
	// Share of the growth of all stacks that grew, from 0 to 1.
	Share float64 `json:"share"`
	// Trend is one of growth.Trend…; absent if it was not judged.
	Trend growth.Trend `json:"trend,omitempty"`
	// Doubt is why Trend is undecided, one of growth.Doubt…, and LongerS about how many more seconds of watching would tell; absent
	// where it is not, and where watching longer tells nothing. Blind is why objects cannot be followed, where that is the doubt.
	UndecidedReason growth.Doubt `json:"undecided_reason,omitempty"`
	LongerS         *float64     `json:"longer_s,omitempty"`
	Untrackable     string       `json:"untrackable,omitempty"`
	// Owner is who would have to release it.
	Component string `json:"component"`
	// RateLow and RateHigh are the 95 % interval of BytesPerMin; absent where that is.
	RateLow  *int64 `json:"rate_low,omitempty"`
	RateHigh *int64 `json:"rate_high,omitempty"`
	// AgeS is the mean age of the bytes that are alive at the end, in seconds; absent where it is not known.
	AgeS *float64 `json:"age_s,omitempty"`
	// HistoryBytes are what was alive at each moment of Summary.SnapshotsS.
	HistoryBytes []int64 `json:"history_bytes"`
	// Stack in words, leaf first, without the allocator's own frames: see StackText.
	Stack []string `json:"stack"`
}

// A Release is memory that one stack gave back to the kernel.
type Release struct {
	// Call that gave it back: "madvise", "munmap" or "brk".
	Call  string   `json:"call"`
	Bytes int64    `json:"bytes"`
	Stack []string `json:"stack"`
}

// Events are counts since the attach.
type Events struct {
	// Allocations and Frees that were seen, sampled or not.
	Allocations uint64 `json:"allocations"`
	Frees       uint64 `json:"frees"`
	// FreesUntracked are the Frees of what was not sampled or was allocated before the attach.
	FreesUntracked uint64 `json:"frees_untracked"`
	// Samples are the Allocations that were taken.
	Samples uint64 `json:"samples"`
	// Failed allocations: those that returned no memory.
	Failed uint64 `json:"failed"`
	// Stacks that were taken; losses say how many of them are cut, and why.
	Stacks uint64 `json:"stacks"`
	// MappingCalls are system calls that changed the address space.
	MappingCalls uint64 `json:"mapping_calls"`
}

// A Loss is how often something was missed for one reason.
type Loss struct {
	Reason string `json:"reason"`
	Count  uint64 `json:"count"`
}

// Write writes the summary as indented JSON. The error is that of w, not wrapped, or that a number is not finite.
func (s *Summary) Write(w io.Writer) error {
	out := *s
	out.Schema = Schema
	out.CommandLine = list(out.CommandLine)
	out.Phases = list(out.Phases)
	out.Sources = list(out.Sources)
	out.Processes = list(out.Processes)
	out.Groups = list(out.Groups)
	out.Marks = list(out.Marks)
	out.Suspects = list(out.Suspects)
	out.SnapshotsS = list(out.SnapshotsS)
	out.Accumulating = list(out.Accumulating)
	out.Breakdown = list(out.Breakdown)
	out.Residents = list(out.Residents)
	out.Advice = list(out.Advice)
	out.GPUMemory = withLists(out.GPUMemory)
	out.GPUs = list(out.GPUs)
	out.Losses = list(out.Losses)
	out.Overhead = out.Overhead.withLists()
	out.Warnings = list(out.Warnings)
	out.Files = table(out.Files)
	out.Live.Bytes = table(out.Live.Bytes)
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(out)
}

// list is a slice that JSON writes as [], not as null.
func list[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

// table is a map that JSON writes as {}, not as null.
func table[K comparable, V any](m map[K]V) map[K]V {
	if m == nil {
		return map[K]V{}
	}
	return m
}

// Bounds on a summary, which may be forged: the largest real ones have some 4 MB and 20,000 objects.
const (
	maxSummaryBytes = 32 << 20 // bytes
	maxJSONObjects  = 200_000  // each takes some hundred bytes in memory, however short it is
)

// ReadSummary reads what Summary.Write wrote. Another schema, more than 32 MiB or 200,000 objects, and anything that follows are
// errors; fields that it does not know are passed over.
func Read(r io.Reader) (*Summary, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxSummaryBytes+1))
	switch {
	case err != nil:
		return nil, err
	case len(data) > maxSummaryBytes:
		return nil, fmt.Errorf("it has more than %d bytes", maxSummaryBytes)
	case bytes.Count(data, []byte("{"))+bytes.Count(data, []byte("null")) > maxJSONObjects:
		return nil, fmt.Errorf("it has more than %d objects", maxJSONObjects)
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	var s Summary
	if err = decoder.Decode(&s); err == nil {
		err = endOf(decoder)
	}
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return nil, errors.New("it is cut short")
	case err != nil:
		return nil, err
	case s.Schema != Schema:
		return nil, fmt.Errorf("its schema is %q, not %q", s.Schema, Schema)
	}
	return &s, nil
}

// endOf wants nothing but white space to follow.
func endOf(decoder *json.Decoder) error {
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows its end")
	}
	return nil
}

// Seconds is a time as the summary gives it, in milliseconds' steps.
func Seconds(d time.Duration) float64 { return d.Round(time.Millisecond).Seconds() }

// LiveOf sums holdings.
func LiveOf(holdings []growth.Holding) Live {
	live := Live{Bytes: make(map[growth.Kind]int64)}
	var objects float64
	for _, h := range holdings {
		objects += h.InuseObjects
		live.Bytes[h.Kind] += h.InuseBytes
	}
	for kind, bytes := range live.Bytes {
		if bytes == 0 {
			delete(live.Bytes, kind)
		}
	}
	live.Objects = units.Round(objects)
	return live
}

// MappingsOf is the totals in the form of the summary.
func MappingsOf(t growth.MappingTotals) Mappings {
	return Mappings{
		ReservedBytes:   t.Reserved,
		TouchedBytes:    t.Touched,
		AllocatorBytes:  t.Allocator,
		UnknownBytes:    t.Unknown,
		VanishedBytes:   t.Vanished,
		UnmeasuredBytes: t.Unmeasured,
		ReleasedBytes:   t.Released,
		UnmappedBytes:   t.Unmapped,
	}
}

// BytesPerMin is a rate in whole bytes, for the pointers of a Summary; nil if no time passed.
func BytesPerMin(bytes int64, elapsed time.Duration) *int64 {
	if elapsed <= 0 {
		return nil
	}
	rate := int64(math.Round(float64(bytes) / elapsed.Minutes()))
	return &rate
}

// Releases are those that gave most memory back, no more than limit of them; nil if nothing was.
func Releases(releases []growth.Release, limit int) []Release {
	sorted := slices.Clone(releases)
	slices.SortFunc(sorted, func(a, b growth.Release) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Stack.ID, b.Stack.ID), cmp.Compare(a.Call, b.Call))
	})
	var top []Release
	for _, r := range sorted[:min(limit, len(sorted))] {
		top = append(top, Release{Call: r.Call, Bytes: r.Bytes, Stack: profile.StackText(r.Stack)})
	}
	return top
}

// Known is a pointer to a value; nil where it is growth.Unknown.
func Known(value int64) *int64 {
	if value == growth.Unknown {
		return nil
	}
	return &value
}
