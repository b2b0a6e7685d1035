package summary

import (
	"math"

	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/growth/conclude"
	"github.com/allocscope/allocscope/growth/verdict"
)

// An Axis is the unit of X in a judged series. Times are in it, and rates are by minute or by step.
type Axis string

// The axes.
const (
	AxisSeconds Axis = "s"
	AxisSteps   Axis = "step" // of training, where the file has no times
)

// A Verdict is a judgement for programs. It is part of a Summary, and `allocscope verdict --json`
// writes it.
//
// Unknown and infinite values are absent. Rates are whole bytes.
type Verdict struct {
	// Class is one of verdict.Class….
	Class verdict.Class `json:"verdict"`
	// Axis is the unit of the points and lengths below: seconds, or training steps. Rates are by
	// minute, or by step.
	Axis Axis `json:"axis"`
	// WhyCode is why the verdict has its class; absent where something else than the series
	// decides.
	WhyCode verdict.Reason `json:"why_code,omitempty"`
	// Streak is how many checks in a row have found a leak, where that decides; absent elsewhere.
	Streak *Streak `json:"streak,omitempty"`
	// Rate of the last segment, with its 95% interval.
	Rate     *float64 `json:"rate_bytes,omitempty"`
	RateLow  *float64 `json:"rate_low_bytes,omitempty"`
	RateHigh *float64 `json:"rate_high_bytes,omitempty"`
	// Bound is the one-sided 95% upper bound of the rate.
	Bound *float64 `json:"bound_bytes,omitempty"`
	// PlateauFrom is where the last segment begins, after the warm-up; absent without an earlier
	// segment.
	PlateauFrom *float64 `json:"plateau_from,omitempty"`
	// Segment is the length of the last segment. RestartedAt is the last restart; nothing before it
	// was judged.
	Segment     *float64 `json:"segment,omitempty"`
	RestartedAt *float64 `json:"restarted_at,omitempty"`
	// LevelBytes is the level of the last segment at LevelAt. LevelsOffAtBytes is the level that a
	// saturating segment approaches.
	LevelBytes       *float64 `json:"level_bytes,omitempty"`
	LevelAt          *float64 `json:"level_at,omitempty"`
	LevelsOffAtBytes *float64 `json:"levels_off_at_bytes,omitempty"`
	// ToLimit with its 95% interval: a forecast where the verdict is a leak, else an extrapolation at
	// this rate.
	ToLimit     *float64 `json:"to_limit,omitempty"`
	ToLimitLow  *float64 `json:"to_limit_low,omitempty"`
	ToLimitHigh *float64 `json:"to_limit_high,omitempty"`
	// EndedBeforeLimit: the process has ended, and would have met the limit at this rate; absent: it
	// has not ended, or no limit was near.
	EndedBeforeLimit bool `json:"ended_before_limit,omitempty"`
	// WatchLonger is how much longer to watch at least; 0: the verdict is final.
	WatchLonger *float64 `json:"watch_longer,omitempty"`
	// Fill is the end of growth that lies in memory of a known size; absent: its end is not known.
	Fill *Fill `json:"fill,omitempty"`
	// Phases from the start of the judged data to the end.
	Phases []VerdictPhase `json:"phases"`
	// Spikes above the lower envelope; absent where they are negligible.
	Spikes *Spikes `json:"spikes,omitempty"`
	// Other is the process outside the traced tree that grows in its place; absent: there is none.
	Other *OtherGrowth `json:"other,omitempty"`
	// Lost is the memory that nothing refers to, where that decides; absent elsewhere.
	Lost *Lost `json:"lost,omitempty"`
	// Evidence for a leak and against one; absent where there is none.
	Evidence *Evidence `json:"evidence,omitempty"`
}

// A Lost is objects or blocks that grow, are alive, and that nothing in the process refers to.
type Lost struct {
	// Samples is how many two sweeps have found lost, ApartS seconds apart, of Of that were searched
	// for and alive.
	Samples int     `json:"samples"`
	Of      int     `json:"of"`
	ApartS  float64 `json:"apart_s"`
	// Type of the objects of Python; absent: memory without one.
	Type string `json:"type,omitempty"`
	// Share of the growth that is lost, 0 to 1.
	Share float64 `json:"share"`
	// Library and Function are the code of C that made or took the last reference, and Caller the
	// function of Python that calls it; absent: they are not known.
	Library  string `json:"library,omitempty"`
	Function string `json:"function,omitempty"`
	Caller   string `json:"caller,omitempty"`
	// CallsPython: Python made the objects, and Function calls it; absent: it did not.
	CallsPython bool `json:"calls_python,omitempty"`
}

func lostOf(l *verdict.Lost) *Lost {
	if l == nil {
		return nil
	}
	return &Lost{
		Samples: l.Samples, Of: l.Of, ApartS: math.Round(l.Seconds*1000) / 1000,
		Type: units.Name(l.Type), Share: l.Share, Library: units.Name(l.Library),
		Function: units.Name(l.Function), Caller: units.Name(l.Caller), CallsPython: l.CallsPython,
	}
}

// A Fill is the end of growth that lies in memory of a known size: at most LeftBytes more, up to
// LevelBytes.
type Fill struct {
	// Of is one of verdict.Bound….
	Of         verdict.BoundOf `json:"of"`
	LeftBytes  float64         `json:"left_bytes"`
	LevelBytes float64         `json:"level_bytes"`
	// In is when it is full at this rate, with its 95% interval; an absent end is unknown.
	In     *float64 `json:"in,omitempty"`
	InLow  *float64 `json:"in_low,omitempty"`
	InHigh *float64 `json:"in_high,omitempty"`
	// MeetsLimit: the memory limit is met before; absent: it is not, or none is known.
	MeetsLimit bool `json:"meets_limit,omitempty"`
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
	Kind verdict.PhaseKind `json:"kind"`
	From *float64          `json:"from,omitempty"`
	To   *float64          `json:"to,omitempty"`
	Rate *float64          `json:"rate_bytes,omitempty"`
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
	From *float64 `json:"from,omitempty"`
	To   *float64 `json:"to,omitempty"`
}

// VerdictOf converts a judgement.
func VerdictOf(v verdict.Verdict, axis Axis) Verdict {
	perUnit := 60.0
	if axis == AxisSteps {
		perUnit = 1
	}

	out := Verdict{
		Class: v.Class, Axis: axis, WhyCode: v.Reason,
		Rate: whole(v.Rate * perUnit), RateLow: whole(v.RateLow * perUnit),
		RateHigh: whole(v.RateHigh * perUnit), Bound: whole(v.Bound * perUnit),
		PlateauFrom: milli(v.From), Segment: milli(v.Length),
		LevelBytes: whole(v.Level), LevelAt: milli(v.LevelAt),
		LevelsOffAtBytes: whole(v.ExpectedLevel),
		ToLimit:          milli(v.ToLimit), ToLimitLow: milli(v.ToLimitLow),
		ToLimitHigh: milli(v.ToLimitHigh), WatchLonger: milli(v.Longer),
		EndedBeforeLimit: v.EndedBeforeLimit, Lost: lostOf(v.Lost),
		Phases:   []VerdictPhase{},
		Evidence: EvidenceOf(conclude.SeriesEvidence(v)),
	}

	if v.Reason == verdict.ReasonFewRechecks {
		out.Streak = &Streak{v.Streak.Found, v.Streak.Needed}
	}
	if o := v.Other; o != nil {
		out.Other = &OtherGrowth{o.PID, o.Command, o.Growth, o.TreeGrowth}
	}
	if f := v.Fill; f != nil {
		out.Fill = &Fill{
			Of: f.Of, LeftBytes: math.Round(f.Left), LevelBytes: math.Round(f.Level),
			In: milli(f.In), InLow: milli(f.InLow), InHigh: milli(f.InHigh),
			MeetsLimit: f.MeetsLimit,
		}
	}
	if v.Restarted {
		out.RestartedAt = milli(v.Start)
	}

	for _, p := range v.Phases {
		out.Phases = append(out.Phases, VerdictPhase{
			Kind: p.Kind, From: milli(p.From), To: milli(p.To), Rate: whole(p.Rate * perUnit),
		})
	}

	if v.Spikes != nil {
		out.Spikes = &Spikes{
			Share: v.Spikes.Share, HeightBytes: math.Round(v.Spikes.Height), Spans: []SpikeSpan{},
		}
		for _, s := range v.Spikes.Spans {
			out.Spikes.Spans = append(out.Spikes.Spans, SpikeSpan{milli(s.From), milli(s.To)})
		}
	}

	return out
}

// InSteps reports whether the series is in training steps.
func (v *Verdict) InSteps() bool { return v.Axis == AxisSteps }

// whole is a number of bytes; nil if it is not finite.
func whole(bytes float64) *float64 { return Finite(math.Round(bytes)) }

// milli is a number of seconds or steps with three decimals; nil if it is not finite.
func milli(x float64) *float64 { return Finite(math.Round(x*1000) / 1000) }

// Finite returns a pointer to a number; nil if it is not finite.
func Finite(x float64) *float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return nil
	}
	x += 0 // no negative zero
	return &x
}
