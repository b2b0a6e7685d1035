package compare

import (
	"fmt"
	"io"
	"slices"

	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/claim"
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

// Options select the data to compare.
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

// incompleteIn reports whether any of the traces has lost calls of memory of a kind.
func incompleteIn(traces ...*Trace) func(growth.Kind) bool {
	return func(kind growth.Kind) bool {
		return slices.ContainsFunc(traces, func(t *Trace) bool {
			loss, ok := claim.MayRow(kind, 0, t.Summary.Missing())
			return !ok && loss.Count > 0
		})
	}
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

	c := comparison{ofRuns: true, isIncomplete: incompleteIn(before, after)}
	areWorkers := isOfWorkers(before) || isOfWorkers(after)
	if areWorkers && sample == residentSpace {
		c.before, c.after = treeSide(before), treeSide(after)
	} else {
		c.before, c.after = growthSide(before, sample, n), growthSide(after, sample, n)
		c.counted = isCountedType(sample)
	}
	if c.before.per, err = before.per(o.PerStep); err != nil {
		return nil, err
	}

	if c.after.per, err = after.per(o.PerStep); err != nil {
		return nil, err
	}

	c.fill(out)
	out.judge(before.rate(sample, o.PerStep), after.rate(sample, o.PerStep))
	pair := words.TracePair{
		Before: before.Summary, After: after.Summary, IsPerStep: o.PerStep,
		IsResident: sample == residentSpace,
	}
	if areWorkers {
		out.Notes = append(out.Notes, words.OfWorkers(sample == residentSpace))
	}
	out.Notes = append(out.Notes, pair.Notes()...)

	return out, nil
}

// isOfWorkers reports whether the verdict is about workers that were not traced: growth.pb.gz has no
// memory of theirs.
func isOfWorkers(t *Trace) bool { return t.Summary.WhyCode == verdict.ReasonWorkers }

// minutes over which growth is counted.
func (t *Trace) minutes() float64 { return float64(t.Growth.DurationNanos) / 60e9 }

// per is the factor that makes a rate of growth in bytes.
func (t *Trace) per(step bool) (float64, error) {
	switch {
	case t.Growth.DurationNanos <= 0:
		return 0, fmt.Errorf("%s has no growth to compare: it ended before a second snapshot "+
			"(trace for longer, or compare the plateau.pb.gz of both)",
			t.Name)
	case step && t.Summary.StepsPerMin() == 0:
		return 0, fmt.Errorf("%s has counted no training steps since its baseline "+
			"(leave --per step out)",
			t.Name)
	case step:
		return 1 / t.minutes() / t.Summary.StepsPerMin(), nil
	}

	return 1 / t.minutes(), nil
}

// verdict on the memory that a sample type measures: the GPU memory of the process, or its RSS. False
// where nothing is known of its GPU memory.
func (t *Trace) verdict(sample string) (summary.Verdict, bool) {
	if !isGPUType(sample) {
		return t.Summary.Verdict, true
	}

	for _, d := range t.Summary.GPUMemory {
		if d.Process == t.Summary.Process.PID {
			return d.Verdict, true
		}
	}

	return summary.Verdict{Class: verdict.ClassTooShort}, false
}

// why is the reason of the verdict, in a few words.
func (t *Trace) why(sample string) string {
	v, isKnown := t.verdict(sample)
	if !isKnown {
		return words.GPUMemoryUnknown
	}
	return words.Reason(v)
}

func (t *Trace) side(sample string) Side {
	s := t.Summary
	v, _ := t.verdict(sample)
	side := Side{
		Name: units.Name(t.Name), DurationS: s.DurationS,
		IntervalBytes: int64(min(s.IntervalBytes, 1<<53)), GrowthS: t.minutes() * 60,
		PID: s.Process.PID, Command: units.Name(s.Process.Command),
		Verdict: units.Name(string(v.Class)), Why: units.Name(t.why(sample)),
		StepsPerMin: t.Summary.StepsPerMin(),
	}

	if !s.Started.IsZero() && s.Started.Year() > 0 && s.Started.Year() < 10_000 {
		side.Time = &s.Started
	}

	return side
}

func profileNotes(before, after Profile) []string {
	if hasInterval(before) && hasInterval(after) {
		return nil
	}
	return []string{words.NoIntervals}
}

func hasInterval(p Profile) bool {
	return p.PeriodType != nil && p.PeriodType.Unit == "bytes" && p.Period > 0
}
