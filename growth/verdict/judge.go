package verdict

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"
)

// maxPlateauRise over the segment, as a share of the level, that a plateau's bound must exclude.
const maxPlateauRise = 0.05

// Judge judges whether a series leaks. docs/reference/verdict.md has the method.
func Judge(series Series, setting Setting, criteria Criteria) Verdict {
	s, setting, restarted := series.clean().sinceStart(setting)
	v := Unjudged(s, criteria)
	v.Restarted = restarted
	if len(s.X) < minSamples {
		return v
	}

	start := s.X[0]
	if mark := setting.EpochEnd; mark != nil && start < *mark && *mark < s.end() {
		start = *mark
	}
	segments, ok := segmentationOf(s, start, setting.Age)
	if !ok {
		return v
	}

	e := gatherEvidence(s, setting, criteria, segments)
	e.describe(&v)
	e.classify(&v)
	v.Phases = phasesOf(s, segments, v)
	if n := len(v.Phases); v.Reason == ReasonPlateauTooYoung && n > 1 &&
		v.Phases[n-2].Kind == PhaseWarmup {
		v.Reason = ReasonGrowthEnded
	}

	return v
}

// Unjudged is the verdict on a series that is too short to be judged.
func Unjudged(s Series, criteria Criteria) Verdict {
	nan := math.NaN()
	v := Verdict{
		Class: ClassTooShort, Reason: ReasonTooShort, Longer: criteria.MinPlateauLength,
		Rate: nan, RateLow: nan, RateHigh: nan, Bound: nan,
		Level: nan, LevelAt: nan, From: nan, Start: nan, ExpectedLevel: nan,
		ToLimit: nan, ToLimitLow: nan, ToLimitHigh: nan,
		Shape: Shape{Misfit: nan, Halves: nan, UntilLeak: nan},
	}
	if len(s.X) > 0 {
		v.Start, v.Length = s.X[0], s.end()-s.X[0]
	}
	if v.Length > 0 {
		v.Phases = []Phase{{Kind: PhaseOpen, From: s.X[0], To: s.end(), Rate: nan}}
	}
	return v
}

// describe sets the numbers of the last segment.
func (e *evidence) describe(v *Verdict) {
	base := e.segments.last.envelope
	margin := e.slope.margin(.975)
	v.Rate, v.RateLow, v.RateHigh = e.slope.rate, e.slope.rate-margin, e.slope.rate+margin
	v.Bound = max(e.slope.rate+e.slope.margin(.95), 0)
	v.Level, v.LevelAt, v.Length = e.level, median(base.x), e.length
	v.Shape = e.shape()

	if len(e.segments.earlier) > 0 || e.segments.last.from > e.series.X[0] {
		v.From = base.start()
	}
	if base.spikes.Share >= 0.005 && base.spikes.Height > minSpikeHeight*e.level {
		v.Spikes = new(base.spikes)
	}
}

// classify sets the first class that applies.
func (e *evidence) classify(v *Verdict) {
	grows := e.isGrowing && e.slope.rate > e.setting.Tolerable
	switch {
	case grows && e.isSlowing:
		e.saturating(v)
	case grows && e.lack == "":
		e.leak(v)
	case grows:
		e.growing(v)
	default:
		e.flat(v)
	}
}

func (e *evidence) saturating(v *Verdict) {
	v.Class, v.Reason, v.Longer = ClassSaturating, ReasonSlowsDown, e.series.end()-e.born()

	f := e.segments.last.fit
	if f.kind == curveExponential && f.scale < exponentialScales[len(exponentialScales)-1] {
		v.ExpectedLevel = f.limit
	}
}

func (e *evidence) leak(v *Verdict) {
	v.Class, v.Reason, v.Longer = ClassLeak, ReasonNoPlateau, 0
	if len(e.segments.earlier) > 0 || e.isEpochOver() || e.setting.Age > 0 {
		v.Reason = ReasonAfterWarmup
	}

	if e.setting.Limit > 0 {
		headroom := e.headroom(v)
		v.ToLimit = headroom / v.Rate
		v.ToLimitLow, v.ToLimitHigh = headroom/v.RateHigh, headroom/v.RateLow
	}
}

func (e *evidence) growing(v *Verdict) {
	v.Class, v.Reason = ClassGrowing, ReasonStillGrowing
	v.Longer = max(e.minLeakLength()-e.length, e.length/2, e.criteria.MinPlateauLength)
	if e.setting.Limit > 0 {
		v.ToLimit = e.headroom(v) / v.Rate
	}
}

// flat classifies a segment without proven growth.
func (e *evidence) flat(v *Verdict) {
	least := max(e.criteria.MinPlateauLength, minSegmentShare*e.segments.growthBefore)
	longer := e.untilBound(v.Bound)
	switch {
	case e.length < least:
		v.Class, v.Reason = ClassTooShort, ReasonPlateauTooYoung
		v.Longer = least - e.length
		return
	case v.Bound*e.length > maxPlateauRise*e.level && v.Bound > e.setting.Tolerable:
		v.Class, v.Reason = ClassTooShort, ReasonTooNoisy
		v.Longer = max(longer, e.length)
		return
	}

	v.Class, v.Reason, v.Longer = ClassPlateau, ReasonNoGrowth, longer
	switch {
	case e.isGrowing && v.Bound <= e.setting.Tolerable:
		v.Reason = ReasonTolerated
	case v.RateLow > 0:
		v.Reason = ReasonNotProven
	}
	if v.Spikes != nil {
		v.Class = ClassSpikyPlateau
	}
}

// headroom is by how much the envelope can still grow, in bytes: a spike meets the limit first.
func (e *evidence) headroom(v *Verdict) float64 {
	base := e.segments.last.envelope
	now := stat.Mean(base.y, nil) + v.Rate*(e.series.end()-stat.Mean(base.x, nil))
	if v.Spikes != nil {
		now += v.Spikes.Height
	}
	return max(e.setting.Limit-now, 0)
}

// untilBound is how much longer to watch until the bound is down at the rate to exclude, or to
// tolerate. The bound shrinks with the length while the unseen drift dominates; 20% are added.
func (e *evidence) untilBound(bound float64) float64 {
	target := max(e.criteria.TargetRate*e.level, e.setting.Tolerable)
	if bound <= target {
		return 0
	}
	return e.length * (1.2*min(bound/target, 100) - 1)
}

// phasesOf names the behaviour of each segment.
func phasesOf(s Series, c segmentation, v Verdict) []Phase {
	var phases []Phase
	add := func(p Phase) {
		if p.To > p.From {
			phases = append(phases, p)
		}
	}

	segments := slices.Concat(c.earlier, []segment{c.last})
	at := s.X[0]
	if first := segments[0]; first.from > at { // before the mark of an epoch
		to := first.envelope.start()
		e := envelopeOf(s.until(first.from))
		add(earlierPhase(at, to, lineThrough(e.x, e.y).slope, median(e.y)))
		at = to
	}
	for i, r := range c.earlier {
		to := max(at, segments[i+1].envelope.start())
		add(earlierPhase(at, to, r.rateUntil(to), median(r.envelope.y)))
		at = to
	}
	add(Phase{Kind: lastPhase(v.Class), From: at, To: s.end(), Rate: v.Rate})

	return phases
}

// earlierPhase classifies a phase before the last segment by its rise.
func earlierPhase(from, to, rate, level float64) Phase {
	p := Phase{Kind: PhaseFlat, From: from, To: to, Rate: rate}
	switch rise := rate * (to - from); {
	case rise > minRelativeChange*level:
		p.Kind = PhaseWarmup
	case rise < -minRelativeChange*level:
		p.Kind = PhaseRelease
	}
	return p
}

// rateUntil is the mean rate of a segment's envelope before the next one, in bytes per X.
func (r segment) rateUntil(to float64) float64 {
	if r.fit.kind == curveChangePoint {
		return r.fit.before.slope
	}
	n := 0
	for n < len(r.envelope.x) && r.envelope.x[n] < to {
		n++
	}
	return lineThrough(r.envelope.x[:n], r.envelope.y[:n]).slope
}

func lastPhase(c Class) PhaseKind {
	switch c {
	case ClassLeak, ClassGrowing:
		return PhaseGrowth
	case ClassSaturating:
		return PhaseSlowdown
	case ClassPlateau, ClassSpikyPlateau:
		return PhasePlateau
	}
	return PhaseOpen
}
