package compare

import (
	"fmt"
	"io"

	"github.com/google/pprof/profile"

	"github.com/allocscope/allocscope/export"
	"github.com/allocscope/allocscope/growth"
)

// A Trace is what a trace's folder says, as far as it is compared.
type Trace struct {
	// Name of the folder.
	Name    string
	Summary *export.Summary
	// Growth, Warmup and Plateau are the profiles of these names.
	Growth, Warmup, Plateau *profile.Profile
}

// Options choose what is compared.
type Options struct {
	// Sample type; empty: resident_space, or what else both have.
	Sample string
	// PerStep compares growth by training step, not by minute.
	PerStep bool
}

// ReadTrace reads the files of a folder. It is an error if one is missing or damaged.
func ReadTrace(folder *export.Folder, name string) (*Trace, error) {
	t := &Trace{Name: name}
	err := folder.ReadFile(export.SummaryFile, func(r io.Reader) (err error) {
		t.Summary, err = export.ReadSummary(r)
		return err
	})
	for _, file := range []struct {
		name string
		to   **profile.Profile
	}{{export.GrowthFile, &t.Growth}, {export.WarmupFile, &t.Warmup}, {export.PlateauFile, &t.Plateau}} {
		if err == nil {
			err = folder.ReadFile(file.name, func(r io.Reader) (err error) {
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

// Traces compares the pace at which two traces grew between their boundaries and their ends. It is an error if no time passed
// between these, if steps are asked for that were not counted, or if there is no sample type that both have.
func Traces(before, after *Trace, o Options) (*Result, error) {
	level(before.Growth, before.Warmup, before.Plateau, after.Growth, after.Warmup, after.Plateau)
	sample, err := chooseType(o.Sample, before.Growth, before.Warmup, before.Plateau, after.Growth, after.Warmup, after.Plateau)
	if err != nil {
		return nil, err
	}
	out := &Result{Schema: Schema, SampleType: sample, Unit: UnitPerMin, Before: before.side(sample), After: after.side(sample), Notes: []string{}}
	if o.PerStep {
		out.Unit = UnitPerStep
	}
	n := make(names)
	c := comparison{before: growthSide(before, sample, n), after: growthSide(after, sample, n), wholes: isWhole(sample), runs: true}
	if c.before.per, err = before.per(o.PerStep); err != nil {
		return nil, err
	}
	if c.after.per, err = after.per(o.PerStep); err != nil {
		return nil, err
	}
	c.fill(out)
	out.judge(before.pace(sample, o.PerStep), after.pace(sample, o.PerStep))
	out.Notes = append(out.Notes, traceNotes(before, after, o, sample == residentSpace)...)
	return out, nil
}

// minutes are those over which growth is counted.
func (t *Trace) minutes() float64 { return float64(t.Growth.DurationNanos) / 60e9 }

func (t *Trace) stepsPerMin() float64 {
	if s := t.Summary.Steps; s != nil && s.PerMin > 1e-6 && s.PerMin < 1e9 { // others are forged
		return s.PerMin
	}
	return 0
}

// per is what growth in bytes is multiplied with to become a pace.
func (t *Trace) per(step bool) (float64, error) {
	switch {
	case t.Growth.DurationNanos <= 0:
		return 0, fmt.Errorf("%s covers no time between its boundary and its end: it has no pace (trace for longer, or compare its plateau.pb.gz)", t.Name)
	case step && t.stepsPerMin() == 0:
		return 0, fmt.Errorf("%s has counted no training steps since its boundary (leave --per step out)", t.Name)
	case step:
		return 1 / t.minutes() / t.stepsPerMin(), nil
	}
	return 1 / t.minutes(), nil
}

// verdict is that on what a sample type is about: the device memory of the process, or its resident memory.
func (t *Trace) verdict(sample string) export.Verdict {
	if !isOnDevice(sample) {
		return t.Summary.Verdict
	}
	for _, d := range t.Summary.Devices {
		if d.Process == t.Summary.Process.PID {
			return d.Verdict
		}
	}
	return export.Verdict{Class: growth.ClassTooShort, Why: "nothing is known of its device memory"}
}

func (t *Trace) side(sample string) Side {
	s, v := t.Summary, t.verdict(sample)
	side := Side{
		Name: export.Printable(t.Name), DurationS: s.DurationS, IntervalBytes: int64(min(s.IntervalBytes, 1<<53)), GrowthS: t.minutes() * 60,
		PID: s.Process.PID, Command: export.Printable(s.Process.Command), Verdict: export.Printable(string(v.Class)), Why: export.Printable(v.Why),
		StepsPerMin: t.stepsPerMin(),
	}
	if !s.Started.IsZero() && s.Started.Year() > 0 && s.Started.Year() < 10_000 {
		side.Time = &s.Started
	}
	return side
}
