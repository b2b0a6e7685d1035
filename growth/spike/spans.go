package spike

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/allocscope/allocscope/growth"
)

// A span is the time of one spike: RSS is in it after from and before to, at which it is outside.
type span struct{ from, to time.Duration }

// before and after are the ends of spikes that a trace cuts.
const before, after = time.Duration(-1), time.Duration(math.MaxInt64)

// maxOpenRatio is how much higher than all others a spike may be that the end of the trace cuts.
const maxOpenRatio = 2

// spansOf returns the spikes of a process, some of them twice. A Detector needs some samples before
// the first spike, so it reads them backwards, forwards and backwards. A fall at the start is from
// memory that has not stayed, be it a spike's or not. A rise at the end may be a step that stays: it
// is a spike where one that was half as high has fallen back.
func spansOf(t growth.Timeline) (spans []span) {
	samples := slices.DeleteFunc(slices.Clone(t),
		func(s growth.Sample) bool { return s.RSS == growth.Unknown })

	reversed := slices.Clone(samples)
	slices.Reverse(reversed)

	var d Detector
	d.pass(reversed)
	spans, highest := d.pass(samples)
	if d.inSpike && d.height(d.peak) <= maxOpenRatio*highest {
		spans = append(spans, span{d.before, after})
	}

	back, _ := d.pass(reversed)

	for _, s := range back {
		spans = append(spans, span{s.to, s.from})
	}
	if d.inSpike {
		spans = append(spans, span{before, d.before})
	}
	return spans
}

// pass adds samples in one direction of time. It returns the spikes that begin and end there, and
// the height of the highest.
func (d *Detector) pass(samples growth.Timeline) (spans []span, highest int64) {
	begun := false
	for i, s := range samples {
		switch d.Add(s.Elapsed, s.RSS) {
		case Begun:
			begun = true
		case Ended:
			if begun {
				spans = append(spans, span{d.before, d.fallenBack(samples, i)})
				highest = max(highest, d.height(d.peak))
			}
		}
	}

	return spans, highest
}

// fallenBack returns when a spike whose end is the i-th sample is back at the level, or does not
// fall any more.
func (d *Detector) fallenBack(samples growth.Timeline, i int) time.Duration {
	level := d.level + d.threshold()
	for i+1 < len(samples) && samples[i].RSS > level && samples[i+1].RSS < samples[i].RSS {
		i++
	}
	return samples[i].Elapsed
}

// isIn reports whether a moment lies in a spike.
func isIn(spans []span, at time.Duration) bool {
	return slices.ContainsFunc(spans, func(s span) bool { return s.from < at && at < s.to })
}

// Without returns the samples of a process outside its spikes; all where none is outside.
func Without(t growth.Timeline) growth.Timeline {
	spans := spansOf(t)
	calm := slices.DeleteFunc(slices.Clone(t),
		func(s growth.Sample) bool { return isIn(spans, s.Elapsed) })
	if len(calm) == 0 {
		return t
	}
	return calm
}

// Outside returns the snapshots of a process that lie in none of its spikes. Growth is measured
// between two of them. Where less than two are outside, it returns the lowest of each half of the
// snapshots, and false.
func Outside(snapshots []*growth.Snapshot, t growth.Timeline) (calm []*growth.Snapshot, ok bool) {
	spans := spansOf(t)
	calm = slices.DeleteFunc(slices.Clone(snapshots),
		func(s *growth.Snapshot) bool { return isIn(spans, s.Elapsed) })
	if len(calm) >= 2 || len(snapshots) == len(calm) {
		return calm, true
	}

	half := (len(snapshots) + 1) / 2
	compare := func(a, b *growth.Snapshot) int {
		return cmp.Compare(t.RSSAt(a.Elapsed), t.RSSAt(b.Elapsed))
	}
	calm = []*growth.Snapshot{slices.MinFunc(snapshots[:half], compare)}
	if later := snapshots[half:]; len(later) > 0 {
		calm = append(calm, slices.MinFunc(later, compare))
	}
	return calm, false
}
