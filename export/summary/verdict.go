package summary

import (
	"math"

	"github.com/allocscope/allocscope/growth/verdict"
)

// An Axis is the unit of X in a judged series.
type Axis int

// The axes.
const (
	AxisSeconds Axis = iota
	AxisSteps        // of training, where the file has no times
)

// A Verdict is a judgement for programs. It is part of a Summary, and `allocscope verdict --json`
// writes it.
//
// A series in steps has the keys that end in _step or _steps, any other has _min and _s. Unknown
// and infinite values are absent. Rates are whole bytes.
type Verdict struct {
	// Class is one of verdict.Class….
	Class verdict.Class `json:"verdict"`
	// WhyCode is why the verdict has its class; absent where something else than the series decides.
	WhyCode verdict.Reason `json:"why_code,omitempty"`
	// Streak is how many checks in a row have found a leak, where that decides; absent elsewhere.
	Streak *Streak `json:"streak,omitempty"`
	// RateBytesPerMin, or by step, of the last segment, with its 95% interval.
	RateBytesPerMin  *float64 `json:"rate_bytes_per_min,omitempty"`
	RateBytesPerStep *float64 `json:"rate_bytes_per_step,omitempty"`
	RateLow          *float64 `json:"rate_low_bytes_per_min,omitempty"`
	RateHigh         *float64 `json:"rate_high_bytes_per_min,omitempty"`
	RateLowPerStep   *float64 `json:"rate_low_bytes_per_step,omitempty"`
	RateHighPerStep  *float64 `json:"rate_high_bytes_per_step,omitempty"`
	// BoundBytesPerMin is the one-sided 95% upper bound of the rate.
	BoundBytesPerMin  *float64 `json:"bound_bytes_per_min,omitempty"`
	BoundBytesPerStep *float64 `json:"bound_bytes_per_step,omitempty"`
	// PlateauFromS is where the last segment begins, after the warm-up; absent without an earlier
	// segment.
	PlateauFromS    *float64 `json:"plateau_from_s,omitempty"`
	PlateauFromStep *float64 `json:"plateau_from_step,omitempty"`
	// SegmentS is the length of the last segment. RestartedAtS is the last restart; nothing before
	// it was judged.
	SegmentS        *float64 `json:"segment_s,omitempty"`
	SegmentSteps    *float64 `json:"segment_steps,omitempty"`
	RestartedAtS    *float64 `json:"restarted_at_s,omitempty"`
	RestartedAtStep *float64 `json:"restarted_at_step,omitempty"`
	// LevelBytes is the level of the last segment at LevelAtS on the axis. LevelsOffAtBytes is the
	// level that a saturating segment approaches.
	LevelBytes       *float64 `json:"level_bytes,omitempty"`
	LevelAtS         *float64 `json:"level_at_s,omitempty"`
	LevelAtStep      *float64 `json:"level_at_step,omitempty"`
	LevelsOffAtBytes *float64 `json:"levels_off_at_bytes,omitempty"`
	// SecondsToLimit with its 95% interval: a forecast where the verdict is a leak, else an
	// extrapolation at this rate.
	SecondsToLimit     *float64 `json:"to_limit_s,omitempty"`
	SecondsToLimitLow  *float64 `json:"to_limit_low_s,omitempty"`
	SecondsToLimitHigh *float64 `json:"to_limit_high_s,omitempty"`
	StepsToLimit       *float64 `json:"to_limit_steps,omitempty"`
	StepsToLimitLow    *float64 `json:"to_limit_low_steps,omitempty"`
	StepsToLimitHigh   *float64 `json:"to_limit_high_steps,omitempty"`
	// EndedBeforeLimit: the process has ended, and would have met the limit at this rate; absent: it
	// has not ended, or no limit was near.
	EndedBeforeLimit bool `json:"ended_before_limit,omitempty"`
	// WatchLongerS is how much longer to watch at least; 0: the verdict is final.
	WatchLongerS     *float64 `json:"watch_longer_s,omitempty"`
	WatchLongerSteps *float64 `json:"watch_longer_steps,omitempty"`
	// Phases from the start of the judged data to the end.
	Phases []VerdictPhase `json:"phases"`
	// Spikes above the lower envelope; absent where they are negligible.
	Spikes *Spikes `json:"spikes,omitempty"`
	// Other is the process outside the traced tree that grows in its place; absent: there is none.
	Other *OtherGrowth `json:"other,omitempty"`
}

// An OtherGrowth is a process outside the traced tree, and its growth beside the growth of the
// tree.
type OtherGrowth struct {
	PID             int    `json:"pid"`
	Command         string `json:"command"`
	GrowthBytes     int64  `json:"growth_bytes"`
	TreeGrowthBytes int64  `json:"tree_growth_bytes"`
}

// A Streak is the number of checks in a row that have found a leak, and how many are needed.
type Streak struct {
	Found  int `json:"found"`
	Needed int `json:"needed"`
}

// VerdictSchema is the version of the form of a RecordedVerdict, as Schema is for a Summary.
const VerdictSchema = "allocscope-verdict/1"

// A RecordedVerdict is the content of `allocscope verdict --json`: the judgement of a recorded
// series.
type RecordedVerdict struct {
	// Schema is the version of this form.
	Schema string `json:"schema"`
	Verdict
}

// A VerdictPhase is a verdict.Phase: a span with one behaviour.
type VerdictPhase struct {
	Kind             verdict.PhaseKind `json:"kind"`
	FromS            *float64          `json:"from_s,omitempty"`
	ToS              *float64          `json:"to_s,omitempty"`
	RateBytesPerMin  *float64          `json:"rate_bytes_per_min,omitempty"`
	FromStep         *float64          `json:"from_step,omitempty"`
	ToStep           *float64          `json:"to_step,omitempty"`
	RateBytesPerStep *float64          `json:"rate_bytes_per_step,omitempty"`
}

// Spikes are excursions above the lower envelope: their share of the samples, from 0 to 1, and
// their 95th percentile.
type Spikes struct {
	Share       float64 `json:"share"`
	HeightBytes float64 `json:"height_bytes"`
	// Spans of the spikes, in order.
	Spans []SpikeSpan `json:"spans"`
}

// A SpikeSpan is a span in which all samples lie in spikes.
type SpikeSpan struct {
	FromS    *float64 `json:"from_s,omitempty"`
	ToS      *float64 `json:"to_s,omitempty"`
	FromStep *float64 `json:"from_step,omitempty"`
	ToStep   *float64 `json:"to_step,omitempty"`
}

// VerdictOf converts a judgement.
func VerdictOf(v verdict.Verdict, axis Axis) Verdict {
	perMin, perStep, seconds, steps := 60.0, math.NaN(), 1.0, math.NaN() // NaN leaves a key out
	if axis == AxisSteps {
		perMin, perStep, seconds, steps = math.NaN(), 1, math.NaN(), 1
	}

	out := Verdict{
		Class: v.Class, WhyCode: v.Reason,
		RateBytesPerMin: whole(v.Rate * perMin), RateBytesPerStep: whole(v.Rate * perStep),
		RateLow: whole(v.RateLow * perMin), RateHigh: whole(v.RateHigh * perMin),
		RateLowPerStep: whole(v.RateLow * perStep), RateHighPerStep: whole(v.RateHigh * perStep),
		BoundBytesPerMin: whole(v.Bound * perMin), BoundBytesPerStep: whole(v.Bound * perStep),
		PlateauFromS: milli(v.From * seconds), PlateauFromStep: milli(v.From * steps),
		SegmentS: milli(v.Length * seconds), SegmentSteps: milli(v.Length * steps),
		LevelBytes: whole(v.Level), LevelAtS: milli(v.LevelAt * seconds),
		LevelAtStep: milli(v.LevelAt * steps), LevelsOffAtBytes: whole(v.ExpectedLevel),
		SecondsToLimit: milli(v.ToLimit * seconds), StepsToLimit: milli(v.ToLimit * steps),
		SecondsToLimitLow:  milli(v.ToLimitLow * seconds),
		StepsToLimitLow:    milli(v.ToLimitLow * steps),
		SecondsToLimitHigh: milli(v.ToLimitHigh * seconds),
		StepsToLimitHigh:   milli(v.ToLimitHigh * steps),
		WatchLongerS:       milli(v.Longer * seconds), WatchLongerSteps: milli(v.Longer * steps),
		EndedBeforeLimit: v.EndedBeforeLimit,
		Phases:           []VerdictPhase{},
	}

	if v.Reason == verdict.ReasonFewRechecks {
		out.Streak = &Streak{v.Streak.Found, v.Streak.Needed}
	}
	if o := v.Other; o != nil {
		out.Other = &OtherGrowth{o.PID, o.Command, o.Growth, o.TreeGrowth}
	}
	if v.Restarted {
		out.RestartedAtS, out.RestartedAtStep = milli(v.Start*seconds), milli(v.Start*steps)
	}

	for _, p := range v.Phases {
		out.Phases = append(out.Phases, VerdictPhase{
			Kind: p.Kind, FromS: milli(p.From * seconds), ToS: milli(p.To * seconds),
			RateBytesPerMin: whole(p.Rate * perMin),
			FromStep:        milli(p.From * steps), ToStep: milli(p.To * steps),
			RateBytesPerStep: whole(p.Rate * perStep),
		})
	}

	if v.Spikes != nil {
		out.Spikes = &Spikes{
			Share: v.Spikes.Share, HeightBytes: math.Round(v.Spikes.Height), Spans: []SpikeSpan{},
		}
		for _, s := range v.Spikes.Spans {
			out.Spikes.Spans = append(out.Spikes.Spans, SpikeSpan{
				FromS: milli(s.From * seconds), ToS: milli(s.To * seconds),
				FromStep: milli(s.From * steps), ToStep: milli(s.To * steps),
			})
		}
	}

	return out
}

// RateInterval is the 95% interval of the rate by minute or step; nil where it is unknown.
func (v *Verdict) RateInterval() (low, high *float64) {
	if v.RateLowPerStep != nil || v.RateHighPerStep != nil {
		return v.RateLowPerStep, v.RateHighPerStep
	}
	return v.RateLow, v.RateHigh
}

// InSteps reports whether the series is in training steps.
func (v *Verdict) InSteps() bool { return v.WatchLongerSteps != nil }

// whole is a number of bytes; nil if it is not finite.
func whole(bytes float64) *float64 { return finite(math.Round(bytes)) }

// milli is a number of seconds or steps with three decimals; nil if it is not finite.
func milli(x float64) *float64 { return finite(math.Round(x*1000) / 1000) }

func finite(x float64) *float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return nil
	}
	x += 0 // no negative zero
	return &x
}
