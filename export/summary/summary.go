// Package summary is the content of summary.json: types, and how they are made of the findings of a
// trace.
package summary

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/allocscope/allocscope/export/units"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/advice"
	"github.com/allocscope/allocscope/growth/claim"
)

// Schema is the version of the form of summary.json. It changes when a field goes or changes its
// meaning; fields may be added at any time.
const Schema = "allocscope/1"

// A Summary is the content of summary.json, for programs.
//
// Sizes are whole bytes, in fields whose names end in _bytes, or hold _bytes_ before the unit of a
// rate. In lists and maps of sizes alone, the name is "bytes". Times are seconds with decimals, in
// fields whose names end in _s. An unknown value is absent, never 0. An empty list or map is there,
// unless its comment says otherwise.
type Summary struct {
	// Schema is set by Write.
	Schema string `json:"schema"`
	// Version of allocscope.
	Version string `json:"version"`
	// CommandLine of allocscope, the program's name first.
	CommandLine []string `json:"command_line"`
	// Started is when the trace began, in the form of RFC 3339. All other times count from it.
	Started time.Time `json:"started"`
	// DurationS is the length of the trace in seconds, with the traces that it continues.
	DurationS float64 `json:"duration_s"`
	// Ended is why the trace ended, one of the constants Ended….
	Ended string `json:"ended"`
	// RanOnS is how many seconds after a file with EndedRunning the trace took its last sample. The
	// reader of the folder sets it; 0: unknown.
	RanOnS float64 `json:"-"`
	// OOMKills are the processes of the tree that the kernel has killed for want of memory, by its
	// log; absent: there are none, or the log cannot be read.
	OOMKills []OOMKill `json:"oom_kills,omitempty"`
	// TargetEnded: the process was ended after the trace, as by allocscope demo; absent: it was
	// not.
	TargetEnded bool `json:"target_ended,omitempty"`
	// Launched: allocscope run has started the process, so that the trace has its heap from the first
	// allocation on; absent: it was running.
	Launched bool `json:"launched,omitempty"`
	// Verdict on the main process. Its keys are at the top level of the file.
	Verdict
	// Notes are facts that a reader needs before the numbers, in the order in which allocscope
	// logged them.
	Notes []Note `json:"notes"`
	// Process is the main process of the trace.
	Process Process `json:"process"`
	// Asked is the PID that the user named; absent where that is the main process.
	Asked int `json:"asked_pid,omitempty"`
	// Target identifies the process that the user named, so that a later trace can continue this
	// one; absent in folders of older versions.
	Target *Target `json:"target,omitempty"`
	// ContinuedFrom is the trace that this one continues; absent where it continues none.
	ContinuedFrom *Continued `json:"continued_from,omitempty"`
	// Gaps are the times between continued traces, in which nothing was sampled; absent where there
	// are none.
	Gaps []Gap `json:"gaps,omitempty"`
	// Processes of the tree that are no workers, in the order of their appearance. Workers are in
	// Groups, by role.
	Processes []TreeProcess `json:"processes"`
	Groups    []Group       `json:"groups"`
	// Outlier is the rank that grows unlike the others; absent if there is none.
	Outlier *Outlier `json:"outlier,omitempty"`
	// Related are processes outside the tree that grew much, the largest growth first; absent if there
	// are none.
	Related []Related `json:"related,omitempty"`
	// Together is when memory runs out by all that grows in it; absent where the main process is most
	// of that.
	Together *Together `json:"together,omitempty"`
	// Outside is memory that no process of the tree holds, and that fills the job's memory; absent:
	// there is none.
	Outside *Outside `json:"outside,omitempty"`
	// Container is the memory of the cgroup of the job; absent: it is in none that is known.
	Container *Container `json:"container,omitempty"`
	// Limit that will be met first; absent if none is known.
	Limit *Limit `json:"limit,omitempty"`
	// Steps of training since the baseline; absent where none were seen.
	Steps *Steps `json:"steps,omitempty"`
	// Marks that were set during the trace.
	Marks []Mark `json:"marks"`
	// Suspects are the components that accumulate, the largest first.
	Suspects []Suspect `json:"suspects"`
	// Kernel release, as uname -r prints it, and Architecture, as Go names it: "amd64" or "arm64".
	Kernel       string `json:"kernel"`
	Architecture string `json:"architecture"`
	// Software of the main process, by version; absent where nothing of it is known, and in folders of
	// older versions.
	Software growth.Software `json:"software,omitzero"`
	// IntervalBytes is the mean number of bytes between samples at the end; 1: every allocation.
	IntervalBytes uint64 `json:"interval_bytes"`
	// Sources of events, attached or not.
	Sources []Source `json:"sources"`
	// BaselineS is the time of the baseline snapshot, at the end of the warm-up as far as it is
	// known. Growth counts from there.
	BaselineS *float64 `json:"baseline_s,omitempty"`
	// RSS is the resident memory of the main process.
	RSS RSS `json:"rss"`
	// Live is the memory that was allocated and not freed at the end.
	Live Live `json:"live"`
	// Mappings made since tracing started, at the end.
	Mappings Mappings `json:"mappings"`
	// SnapshotsS are the times of the snapshots, in seconds.
	SnapshotsS []float64 `json:"snapshots_s"`
	// SnapshotsInSpikes: fewer than two snapshots lie outside spikes of RSS, so that the growth of
	// stacks, rows and profiles may be memory of a spike; absent: two or more do, and these are
	// compared.
	SnapshotsInSpikes bool `json:"snapshots_in_spikes,omitempty"`
	// SpikeMemory is the memory alive in spikes of RSS only; absent without spikes.
	SpikeMemory *SpikeMemory `json:"spike_memory,omitempty"`
	// Accumulating are the stacks that hold more at the end than at the baseline, the largest
	// first, as many as the user asked for.
	Accumulating []Accumulation `json:"accumulating"`
	// Breakdown of the RSS of each process at the baseline and the end, Residents with the kernel's
	// own counts, the Diagnoses of the growth, and the Advice that follows.
	Breakdown []BreakdownRow  `json:"breakdown"`
	Residents []Resident      `json:"residents"`
	Diagnoses []Diagnosis     `json:"diagnoses"`
	Advice    []advice.Advice `json:"advice"`
	// Objects of the main process by type, and how they grow; absent where they are unknown.
	Objects *Objects `json:"objects,omitempty"`
	// Keepers are who keeps the objects of suspects and of types that grow; absent where none were
	// searched for.
	Keepers []Keeper `json:"keepers,omitempty"`
	// GPUMemory is the memory on GPUs of each traced process that has any.
	GPUMemory []GPUMemory `json:"gpu_memory"`
	// GPUs of the machine, or their instances, as NVML reports them.
	GPUs []GPU `json:"gpus"`
	// Events that were counted in the kernel.
	Events growth.Events `json:"events"`
	// Overhead of tracing; absent where it was not measured.
	Overhead *Overhead `json:"overhead,omitempty"`
	// Losses are events and stacks that are missing in all these numbers.
	Losses growth.Losses `json:"losses"`
	// Files of the trace: a name such as "growth" or "timeline" maps to the file in the folder of
	// this summary.
	Files map[string]string `json:"files"`
	// MarksDropped is the number of marks that were too many; absent: none were.
	MarksDropped int `json:"marks_dropped,omitempty"`
	// Stopped: the process was stopped when the trace ended; absent: it was not.
	Stopped bool `json:"stopped,omitempty"`
	// Condition of the process during the trace; absent: it ran, and its main thread lived.
	Condition *Condition `json:"condition,omitempty"`
	// NextSteps are what to do next, the first step first. Write sets them.
	NextSteps []Step `json:"next_steps"`
	// Text is the result for people, as the terminal prints it.
	Text ResultText `json:"text"`
}

// A Condition describes the process during the trace, beside its memory.
type Condition struct {
	// Halt is why it did not run when it was sampled last: growth.HaltStopped or growth.HaltFrozen;
	// absent: it ran.
	Halt growth.Halt `json:"halt,omitempty"`
	// StoppedS and FrozenS are how long it was halted, in seconds; absent: it was not.
	StoppedS float64 `json:"stopped_s,omitempty"`
	FrozenS  float64 `json:"frozen_s,omitempty"`
	// RemainingThreads live, and the main thread has ended; absent: it lives.
	RemainingThreads int64 `json:"remaining_threads,omitempty"`
}

// ConditionOf returns the condition of a process; nil: it ran, and its main thread lived.
func ConditionOf(p *growth.ProcessHistory) *Condition {
	if p == nil {
		return nil
	}
	c := Condition{
		Halt: p.Condition.Halt, StoppedS: Seconds(p.Stopped), FrozenS: Seconds(p.Frozen),
		RemainingThreads: p.Condition.Remaining,
	}
	if c == (Condition{}) {
		return nil
	}
	return &c
}

// ResultText is the result of a trace for people, a sentence or an entry each. Empty entries are
// absent.
type ResultText struct {
	// Verdict is its name, such as "LEAK SUSPECTED". Subject is the process.
	Verdict string `json:"verdict"`
	Subject string `json:"subject"`
	// Who grows, Where the call sites are, HowFast it grows, HowSure that is, what to DoNext, and
	// what to Note about the numbers.
	Who     []string `json:"who,omitempty"`
	Where   []string `json:"where,omitempty"`
	HowFast []string `json:"how_fast,omitempty"`
	HowSure []string `json:"how_sure,omitempty"`
	DoNext  []string `json:"do_next,omitempty"`
	Note    []string `json:"note,omitempty"`
}

// Why a trace ended.
const (
	EndedDuration  = "duration"
	EndedInterrupt = "interrupt"
	EndedExit      = "target-exited"
	// EndedSettled: with --until-settled, the verdict has settled.
	EndedSettled = "settled"
	// EndedOutOfMemory: the kernel has killed the process for want of memory.
	EndedOutOfMemory = "out-of-memory"
	// EndedRunning: the file was written while the trace ran, which goes on, or was killed.
	EndedRunning = "running"
)

// A Note is a fact that was known when a trace started, or soon after. It has the field of its
// code.
type Note struct {
	// Code is one of the constants Note….
	Code string `json:"code"`
	// Selection of NoteProcess.
	Selection growth.Selection `json:"selection,omitzero"`
	// Plan of NoteSampling.
	Plan Plan `json:"plan,omitzero"`
	// Allocator of NoteAllocator.
	Allocator Allocator `json:"allocator,omitzero"`
}

// Codes of notes.
const (
	NoteProcess     = "process"      // which process is traced, and why
	NoteSampling    = "sampling"     // how it is sampled, and until when
	NoteAllocator   = "allocator"    // data that its malloc keeps from being measured
	NoteLimitHidden = "limit-hidden" // a limit of its container may be unknown
)

// HasNote reports whether a note of a code is among the notes.
func (s *Summary) HasNote(code string) bool {
	return slices.ContainsFunc(s.Notes, func(n Note) bool { return n.Code == code })
}

// ProcessNote is which process is traced, and why.
func ProcessNote(s growth.Selection) Note {
	s.Command, s.Traced = units.Command(s.Command), units.Command(s.Traced)
	return Note{Code: NoteProcess, Selection: s}
}

// A Plan is how a trace samples, and when it ends.
type Plan struct {
	// IntervalBytes is the mean number of bytes between samples; absent: allocscope's choice.
	IntervalBytes uint64 `json:"interval_bytes,omitempty"`
	// Limit is the largest share of the job's time that tracing may take; absent: there is none.
	Limit float64 `json:"limit_share,omitempty"`
	// DurationS is absent where the trace goes on until Ctrl-C.
	DurationS float64 `json:"duration_s,omitempty"`
	// UntilSettledS is the longest trace, where it goes on until the verdict is settled; absent: it
	// does not.
	UntilSettledS float64 `json:"until_settled_s,omitempty"`
	// NoHeap: source heap is not wanted.
	NoHeap bool `json:"no_heap,omitempty"`
}

// An Allocator is the malloc of a traced process.
type Allocator struct {
	PID int `json:"pid"`
	// Name is absent if it is not known. File is the name of its file, without folders.
	Name string `json:"name,omitempty"`
	File string `json:"file"`
	// Limit of the findings in its heap where that is probed in bursts.
	Limit growth.HeapLimit `json:"limit"`
}

// A Process is the main process of a trace.
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
	// PID of the process that it probes; absent: all.
	PID int `json:"pid,omitempty"`
	// State is one of the constants Source….
	State string `json:"state"`
	// SourceFailure is why the source is not attached, or not to all its functions, and Errno the name
	// of the system error, such as "EPERM"; absent: there was none. Gap is the data that it misses
	// though it is attached; absent: none.
	growth.SourceFailure
	Errno string           `json:"errno,omitempty"`
	Gap   growth.SourceGap `json:"gap,omitempty"`
	// Producers are the files that sample the heap themselves, whose probes are used instead of
	// malloc's; absent: malloc's are used, or the trace has preloaded the library.
	Producers []string `json:"producers,omitempty"`
}

// States of a source.
const (
	SourceAttached = "attached"
	SourceFailed   = "failed"
	SourceOff      = "off" // not requested
)

// RSS is the resident memory of the main process, with shared pages counted whole.
type RSS struct {
	// StartBytes at the start of the trace. BaselineBytes and EndBytes are from Residents; the rows
	// of the breakdown sum to their difference.
	StartBytes    *int64 `json:"start_bytes,omitempty"`
	BaselineBytes *int64 `json:"baseline_bytes,omitempty"`
	EndBytes      *int64 `json:"end_bytes,omitempty"`
	// PeakBytes is the highest RSS as the kernel counts (VmHWM), where no sample is near it; else
	// absent. PeakBefore: it was as high before the trace; absent: it was so during the trace.
	PeakBytes  *int64 `json:"peak_bytes,omitempty"`
	PeakBefore bool   `json:"peak_before,omitempty"`
	// GrowthBytesPerMin since the baseline, negative if it shrank; absent without a baseline.
	GrowthBytesPerMin *int64 `json:"growth_bytes_per_min,omitempty"`
}

// Live is the memory that was allocated and not freed at one time, estimated from the samples.
type Live struct {
	// Objects of all kinds.
	Objects int64 `json:"objects"`
	// Bytes by kind, of mappings those that were touched. Kinds without any are absent.
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

// An Accumulation is the growth of one stack in one kind of memory.
type Accumulation struct {
	// Rank by size; 1 is the largest.
	Rank int `json:"rank"`
	// Function that called the allocator, and the Module that it is in; absent if unknown.
	Function string `json:"function"`
	Module   string `json:"module,omitempty"`
	// Kind of memory, one of growth.Kind.
	Kind growth.Kind `json:"kind"`
	// Objects and Bytes that were added.
	Objects int64 `json:"objects"`
	Bytes   int64 `json:"bytes"`
	// BytesPerMin is Bytes by the time since the baseline; absent if that is 0.
	BytesPerMin *int64 `json:"bytes_per_min,omitempty"`
	// Share of the growth of all stacks that grew, from 0 to 1.
	Share float64 `json:"share"`
	// Trend is one of growth.Trend…; absent if it was not judged.
	Trend growth.Trend `json:"trend,omitempty"`
	// UndecidedReason is why Trend is undecided, one of growth.Undecided…. LongerS is about how
	// many seconds more would decide it; absent where more time does not help. Untrackable is why
	// objects cannot be tracked, where that is the reason.
	UndecidedReason growth.UndecidedReason `json:"undecided_reason,omitempty"`
	LongerS         *float64               `json:"longer_s,omitempty"`
	Untrackable     string                 `json:"untrackable,omitempty"`
	// Component whose memory it is: a Python package or a library.
	Component string `json:"component"`
	// RateLow and RateHigh are the 95% interval of BytesPerMin; absent where that is, and where losses
	// keep an exact count from being one.
	RateLow  *int64 `json:"rate_low_bytes_per_min,omitempty"`
	RateHigh *int64 `json:"rate_high_bytes_per_min,omitempty"`
	// AgeS is the mean age of the live bytes at the end, in seconds; absent if unknown.
	AgeS *float64 `json:"age_s,omitempty"`
	// HistoryBytes are the live bytes at each time of Summary.SnapshotsS.
	HistoryBytes []int64 `json:"history_bytes"`
	// Stack, leaf first, without the allocator's own frames, as profile.StackText writes it.
	Stack []string `json:"stack"`
	// StackIDs are the IDs of the stacks with this text, the first 64; absent where it has none.
	StackIDs []string `json:"stack_ids,omitempty"`
}

// Missing are the data that the trace has lost, or left out on purpose, for package claim.
func (s *Summary) Missing() growth.Losses {
	return claim.With(s.Losses, s.Overhead != nil && s.Overhead.InBursts(), s.IntervalBytes)
}

// Write writes the summary as indented JSON. The error comes from w, unwrapped, or says that a
// number is not finite.
func (s *Summary) Write(w io.Writer) error {
	out := *s
	out.Schema = Schema
	out.CommandLine = list(out.CommandLine)
	out.Phases = list(out.Phases)
	out.Sources = list(out.Sources)
	out.Processes = list(out.Processes)
	out.Notes = list(out.Notes)
	out.Groups = list(out.Groups)
	out.Marks = list(out.Marks)
	out.Suspects = list(out.Suspects)
	out.SnapshotsS = list(out.SnapshotsS)
	out.Accumulating = list(out.Accumulating)
	out.Breakdown = list(out.Breakdown)
	out.Residents = list(out.Residents)
	out.Diagnoses = list(out.Diagnoses)
	out.Advice = list(out.Advice)
	out.GPUMemory = withLists(out.GPUMemory)
	out.GPUs = list(out.GPUs)
	out.Losses = list(out.Losses)
	out.Overhead = out.Overhead.withLists()
	out.NextSteps = list(out.WhatNext())
	out.Files = table(out.Files)
	out.Live.Bytes = table(out.Live.Bytes)
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)

	return encoder.Encode(out)
}

// list returns a slice that JSON writes as [] and not as null.
func list[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

// table returns a map that JSON writes as {} and not as null.
func table[K comparable, V any](m map[K]V) map[K]V {
	if m == nil {
		return map[K]V{}
	}
	return m
}

// Bounds on a summary, which may be forged. The largest real ones have some 4 MB and 20,000
// objects.
const (
	maxSummaryBytes = 32 << 20 // bytes
	maxJSONObjects  = 200_000  // each takes some hundred bytes in memory
)

// Read reads a summary that Write wrote. Another schema, more than 32 MiB or 200,000 objects, and
// anything after its end are errors. Unknown fields are ignored.
func Read(r io.Reader) (*Summary, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxSummaryBytes+1))
	switch {
	case err != nil:
		return nil, err
	case len(data) > maxSummaryBytes:
		return nil, fmt.Errorf("larger than %d bytes", maxSummaryBytes)
	case bytes.Count(data, []byte("{"))+bytes.Count(data, []byte("null")) > maxJSONObjects:
		return nil, fmt.Errorf("more than %d objects", maxJSONObjects)
	}

	decoder := json.NewDecoder(bytes.NewReader(data))
	var s Summary
	if err = decoder.Decode(&s); err == nil {
		err = endOf(decoder)
	}

	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return nil, errors.New("the file is truncated")
	case err != nil:
		return nil, err
	case s.Schema != Schema:
		return nil, fmt.Errorf("schema is %q, not %q", s.Schema, Schema)
	}

	return &s, nil
}

// endOf accepts only white space after the summary.
func endOf(decoder *json.Decoder) error {
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("data after its end")
	}
	return nil
}

// Seconds is a time in seconds, rounded to a millisecond.
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

// MappingsOf converts the totals.
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

// BytesPerMin is a rate in whole bytes; nil if elapsed is 0.
func BytesPerMin(bytes int64, elapsed time.Duration) *int64 {
	if elapsed <= 0 {
		return nil
	}
	return new(int64(math.Round(float64(bytes) / elapsed.Minutes())))
}

// Known returns a pointer to a value; nil if it is growth.Unknown.
func Known(value int64) *int64 {
	if value == growth.Unknown {
		return nil
	}
	return &value
}
