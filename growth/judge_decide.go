package growth

// flatRise is the rise over the regime, as a share of the level, that a plateau's bound must exclude.
const flatRise = 0.05

// describe writes down the numbers of the last regime.
func (e *evidence) describe(v *Verdict) {
	b := e.course.last.base
	margin := e.slope.margin(.975)
	v.Rate, v.RateLow, v.RateHigh = e.slope.rate, e.slope.rate-margin, e.slope.rate+margin
	v.Bound = max(e.slope.rate+e.slope.margin(.95), 0)
	v.Level, v.LevelAt, v.Length = e.level, median(b.x), e.length
	if len(e.course.left) > 0 || e.course.last.from > e.series.X[0] {
		v.From = b.start()
	}
	if b.spikes.Share >= 0.005 && b.spikes.Height > spikeHeight*e.level {
		spikes := b.spikes
		v.Spikes = &spikes
	}
}

// decide finds the class, the first that applies.
func (e *evidence) decide(v *Verdict) {
	grows := e.growing && e.slope.rate > e.setting.Tolerable
	switch {
	case grows && e.slowing:
		e.saturating(v)
	case grows && e.seasoned:
		e.leak(v)
	case grows:
		e.stillGrowing(v)
	default:
		e.flat(v)
	}
}

func (e *evidence) saturating(v *Verdict) {
	v.Class, v.Why, v.Longer = ClassSaturating, "grows, but slows down", e.series.end()-e.born()
	if s := e.course.last.shape; s.form == formExponential && s.scale < scalesExponential[len(scalesExponential)-1] {
		v.HeadsFor = s.limit
	}
}

func (e *evidence) leak(v *Verdict) {
	v.Class, v.Why, v.Longer = ClassLeak, "steady growth, no plateau ever seen", 0
	if len(e.course.left) > 0 || e.epochOver() || e.setting.Age > 0 {
		v.Why = "steady growth after warm-up"
	}
	if e.setting.Limit > 0 {
		head := e.head(v)
		v.ToLimit, v.ToLimitLow, v.ToLimitHigh = head/v.Rate, head/v.RateHigh, head/v.RateLow
	}
}

func (e *evidence) stillGrowing(v *Verdict) {
	v.Class, v.Why = ClassGrowing, "still growing"
	v.Longer = max(max(e.criteria.MinTail, 3*e.setting.Cycle, young*e.course.grew)-e.length, e.length/2, e.criteria.MinFlat)
	if e.setting.Limit > 0 {
		v.ToLimit = e.head(v) / v.Rate
	}
}

// flat judges what does not grow, or not enough to be sure.
func (e *evidence) flat(v *Verdict) {
	least := max(e.criteria.MinFlat, young*e.course.grew)
	longer := e.untilBound(v.Bound)
	switch {
	case e.length < least:
		v.Class, v.Why, v.Longer = ClassTooShort, "plateau too young", max(least-e.length, longer)
	case v.Bound*e.length > flatRise*e.level && v.Bound > e.setting.Tolerable:
		v.Class, v.Why, v.Longer = ClassTooShort, "too noisy to tell yet", max(longer, e.length)
	default:
		v.Class, v.Why, v.Longer = ClassPlateau, "no growth", longer
		switch {
		case e.growing && v.Bound <= e.setting.Tolerable:
			v.Why = "grows less than is tolerated"
		case v.RateLow > 0:
			v.Why = "residual growth, not proven"
		}
		if v.Spikes != nil {
			v.Class = ClassSpikyPlateau
		}
	}
}

// head is how far the base may still grow, in bytes: the limit strikes at a spike, not at the base.
func (e *evidence) head(v *Verdict) float64 {
	b := e.course.last.base
	now := mean(b.y) + v.Rate*(e.series.end()-mean(b.x))
	if v.Spikes != nil {
		now += v.Spikes.Height
	}
	return max(e.setting.Limit-now, 0)
}

// untilBound is how much longer to watch until the bound is at the rate worth excluding, or tolerated: it shrinks with the
// length, as long as the unseen drift rules; 20 % are in hand.
func (e *evidence) untilBound(bound float64) float64 {
	goal := max(e.criteria.Goal*e.level, e.setting.Tolerable)
	if bound <= goal {
		return 0
	}
	return e.length * (1.2*min(bound/goal, 100) - 1)
}
