package compare

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"path"
	"slices"
	"strings"

	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/growth/verdict"

	pprof "github.com/google/pprof/profile"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/units"
)

// A Trace is the part of a trace's folder that is compared.
type Trace struct {
	// Name of the folder.
	Name    string
	Summary *summary.Summary
	// Growth, Warmup and Plateau are the profiles of these names.
	Growth, Warmup, Plateau *pprof.Profile
}

// Options select what is compared.
type Options struct {
	// Sample type; empty: resident_space, or another one that both have.
	Sample string
	// PerStep compares growth by training step, not by minute.
	PerStep bool
}

// ReadTrace reads the files of a folder. A missing or damaged file is an error.
func ReadTrace(dir *folder.Folder, name string) (*Trace, error) {
	t := &Trace{Name: name}
	err := dir.ReadFile(folder.SummaryFile, func(r io.Reader) (err error) {
		t.Summary, err = summary.Read(r)
		return err
	})
	for _, file := range []struct {
		name string
		to   **pprof.Profile
	}{
		{folder.GrowthFile, &t.Growth},
		{folder.WarmupFile, &t.Warmup},
		{folder.PlateauFile, &t.Plateau},
	} {
		if err == nil {
			err = dir.ReadFile(file.name, func(r io.Reader) (err error) {
				*file.to, err = ParseProfile(r)
				return err
			})
		}
	}

	if err != nil {
		return nil, err
	}

	return t, nil
}

// Traces compares the rates at which two traces grew between their baselines and their ends. It is
// an error if no time passed between these, if steps are asked for that were not counted, and if
// there is no common sample type.
func Traces(before, after *Trace, o Options) (*Result, error) {
	addMissingGPUTypes(before.Growth, before.Warmup, before.Plateau, after.Growth, after.Warmup,
		after.Plateau)
	sample, err := chooseType(o.Sample, before.Growth, before.Warmup, before.Plateau, after.Growth,
		after.Warmup, after.Plateau)
	if err != nil {
		return nil, err
	}

	out := &Result{
		Schema: Schema, SampleType: sample, Unit: UnitPerMin, Before: before.side(sample),
		After: after.side(sample), Notes: []string{},
	}
	if o.PerStep {
		out.Unit = UnitPerStep
	}

	n := make(names)

	c := comparison{
		before: growthSide(before, sample, n), after: growthSide(after, sample, n),
		counted: isCountedType(sample), ofRuns: true,
	}
	if c.before.per, err = before.per(o.PerStep); err != nil {
		return nil, err
	}

	if c.after.per, err = after.per(o.PerStep); err != nil {
		return nil, err
	}

	c.fill(out)
	out.judge(before.rate(sample, o.PerStep), after.rate(sample, o.PerStep))
	out.Notes = append(out.Notes, traceNotes(before, after, o, sample == residentSpace)...)

	return out, nil
}

// minutes over which growth is counted.
func (t *Trace) minutes() float64 { return float64(t.Growth.DurationNanos) / 60e9 }

func (t *Trace) stepsPerMin() float64 {
	if s := t.Summary.Steps; s != nil && s.PerMin > 1e-6 && s.PerMin < 1e9 { // others are forged
		return s.PerMin
	}
	return 0
}

// per is the factor that makes a rate of growth in bytes.
func (t *Trace) per(step bool) (float64, error) {
	switch {
	case t.Growth.DurationNanos <= 0:
		return 0, fmt.Errorf("%s covers no time between its baseline and its end: it has no rate "+
			"(trace for longer, or compare its plateau.pb.gz)",
			t.Name)
	case step && t.stepsPerMin() == 0:
		return 0, fmt.Errorf("%s has counted no training steps since its baseline (leave --per step out)",
			t.Name)
	case step:
		return 1 / t.minutes() / t.stepsPerMin(), nil
	}

	return 1 / t.minutes(), nil
}

// verdict on what a sample type measures: the GPU memory of the process, or its RSS.
func (t *Trace) verdict(sample string) summary.Verdict {
	if !isGPUType(sample) {
		return t.Summary.Verdict
	}

	for _, d := range t.Summary.GPUMemory {
		if d.Process == t.Summary.Process.PID {
			return d.Verdict
		}
	}

	return summary.Verdict{Class: verdict.ClassTooShort, Why: "its GPU memory is unknown"}
}

func (t *Trace) side(sample string) Side {
	s, v := t.Summary, t.verdict(sample)
	side := Side{
		Name: units.Name(t.Name), DurationS: s.DurationS,
		IntervalBytes: int64(min(s.IntervalBytes, 1<<53)), GrowthS: t.minutes() * 60,
		PID: s.Process.PID, Command: units.Name(s.Process.Command),
		Verdict: units.Name(string(v.Class)), Why: units.Name(v.Why),
		StepsPerMin: t.stepsPerMin(),
	}

	if !s.Started.IsZero() && s.Started.Year() > 0 && s.Started.Year() < 10_000 {
		side.Time = &s.Started
	}

	return side
}

// maxPaceRatio is the ratio of two rates of training steps above which they are not comparable.
const maxPaceRatio = 1.2

// traceNotes name what makes two traces hard to compare.
func traceNotes(before, after *Trace, o Options, resident bool) []string {
	var notes []string
	if isSameTrace(before, after) {
		notes = append(notes, "both are the same trace")
	}

	if a, b := program(before), program(after); a != b {
		notes = append(notes, fmt.Sprintf("the programs differ: %s before, %s after", a, b))
	}

	if a, b := heapMode(before), heapMode(after); a != b {
		notes = append(notes,
			fmt.Sprintf("%s before, %s after: in bursts, stacks of the heap have larger errors, "+
				"and lack young objects",
				a, b))
	}

	if a, b := before.stepsPerMin(), after.stepsPerMin(); a > 0 && b > 0 && !o.PerStep &&
		math.Abs(math.Log(a/b)) > math.Log(maxPaceRatio) {
		notes = append(notes,
			fmt.Sprintf("the rates of training steps differ, %s steps/min before and %s after: "+
				"compare with --per step",
				units.Count(a), units.Count(b)))
	}

	return append(append(notes, before.notes("before", resident)...),
		after.notes("after", resident)...)
}

// heapMode is how the heap of a trace was probed, in words. Files that do not say are of traces
// that probed it all the time.
func heapMode(t *Trace) string {
	o := t.Summary.Overhead
	switch {
	case o == nil || !words.HeapKnown(t.Summary):
		return words.HeapMode(summary.HeapFull)
	case o.InBursts():
		return words.HeapMode(summary.HeapBursts)
	}

	return words.HeapMode(o.Mode)
}

// notes on one side.
func (t *Trace) notes(when string, resident bool) []string {
	var notes []string
	if !words.HeapKnown(t.Summary) {
		notes = append(notes,
			fmt.Sprintf("%s, source heap was not attached: heap memory has no stacks to compare",
				when))
	}

	if scanned := words.Scanned(words.ResidentOf(t.Summary)); scanned != "" && resident {
		notes = append(notes,
			fmt.Sprintf("%s, %s of the pages were scanned, so resident memory has a large error "+
				"(compare live bytes with --sample inuse_space)",
				when, scanned))
	}

	if losses := t.losses(); losses != "" {
		notes = append(notes, fmt.Sprintf("lost %s: %s", when, losses))
	}

	return notes
}

// losses lists the most frequent ones.
func (t *Trace) losses() string {
	const most = 3
	losses := slices.SortedStableFunc(slices.Values(t.Summary.Losses),
		func(a, b summary.Loss) int { return cmp.Compare(b.Count, a.Count) })
	var texts []string
	for _, l := range losses[:min(most, len(losses))] {
		texts = append(texts, fmt.Sprintf("%d %s", l.Count, units.Name(l.Reason)))
	}

	if more := len(losses) - most; more > 0 {
		texts = append(texts, fmt.Sprintf("%d more in summary.json", more))
	}

	return strings.Join(texts, ", ")
}

func isSameTrace(before, after *Trace) bool {
	a, b := before.Summary, after.Summary
	return !a.Started.IsZero() && a.Started.Equal(b.Started) && a.Process.PID == b.Process.PID
}

// program is what ran: its command, or the name of its file.
func program(t *Trace) string {
	p := t.Summary.Process
	return units.Name(cmp.Or(p.Command, path.Base(p.Executable)))
}

func profileNotes(before, after Profile) []string {
	if hasInterval(before) && hasInterval(after) {
		return nil
	}
	return []string{"the profiles do not name their sampling interval: their values count as exact"}
}

func hasInterval(p Profile) bool {
	return p.PeriodType != nil && p.PeriodType.Unit == "bytes" && p.Period > 0
}
