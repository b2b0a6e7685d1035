package verdict

const (
	// minSamples, or points of an envelope, that can be judged.
	minSamples = 5
	// maxSegments that are distinguished.
	maxSegments = 6
	// minRemainingShare of the series must follow where a segment ends.
	minRemainingShare = 0.04
	// minRelativeChange of the level that counts as growth or as a fall.
	minRelativeChange = 0.01
)

// A segment is the series from an X to its end, as long as one curve explains it.
type segment struct {
	from     float64
	envelope envelope
	fit      fit
	samples  int
}

// A segmentation splits a series at its change points.
type segmentation struct {
	// earlier are the segments before the last. Their envelopes reach to the end of the series.
	earlier []segment
	last    segment
	// growthBefore is how long the series grew before the last segment, in X, including the age of
	// the process at the first sample.
	growthBefore float64
	// isLate: growth began at the last change point. isRefill: there it follows a release of
	// earlier growth.
	isLate, isRefill bool
}

// segmentationOf walks from a start to the last segment. age is the age of the process at the first
// sample. False where too few samples are near an envelope.
func segmentationOf(s Series, start, age float64) (segmentation, bool) {
	var c segmentation
	for {
		r, ok := segmentOf(s, start)
		if !ok {
			return segmentation{}, false
		}
		c.last = r
		c.classifyChangePoint()

		next, ends := r.next(s.end())
		if !ends || len(c.earlier) == maxSegments-1 || len(s.from(next).X) < minSamples ||
			s.end()-next < minRemainingShare*(s.end()-s.X[0]) {
			return c, true
		}

		c.addGrowth(next, age)
		c.earlier = append(c.earlier, r)
		start = next
		if r.fit.kind == curveChangePoint && r.samples > minSamplesForBuckets {
			start += 0.02 * (s.end() - next) // the true change point may lie a little later
		}
	}
}

func segmentOf(s Series, from float64) (segment, bool) {
	s = s.from(from)
	if len(s.X) < minSamples {
		return segment{}, false
	}
	r := segment{from: from, envelope: envelopeOf(s), samples: len(s.X)}
	if len(r.envelope.x) < minSamples || r.envelope.length() < 1e-9 {
		return segment{}, false
	}
	r.fit = fitOf(r.envelope)
	return r, true
}

// next returns where another segment follows: at a change point, or when an exponential has
// settled.
func (r segment) next(end float64) (x float64, follows bool) {
	switch r.fit.kind {
	case curveChangePoint:
		return r.envelope.x[r.fit.changePoint], true
	case curveSettling:
		return r.from + r.fit.settled*(end-r.from), true
	case curveExponential:
		return r.from + 3*r.fit.scale*(end-r.from), r.fit.scale <= 0.2
	}
	return 0, false
}

// rises returns by how much the lines to each side of a change point rise, and the step between
// them, in bytes.
func (r segment) rises() (before, step, after float64) {
	k, f, e := r.fit.changePoint, r.fit, r.envelope
	before = f.before.slope * (e.x[k] - e.start())
	after = f.after.slope * (e.end() - e.x[k])
	step = f.after.at(e.x[k]) - f.before.at(e.x[k-1])
	return before, step, after
}

// classifyChangePoint sets isLate and isRefill by the last segment's change point.
func (c *segmentation) classifyChangePoint() {
	if c.last.fit.kind != curveChangePoint {
		return
	}
	before, step, after := c.last.rises()
	f := c.last.fit
	c.isLate = f.after.slope > max(f.before.slope, 0) && step > -0.3*after
	c.isRefill = after > 0 && -step > 0.3*after && before > -0.3*step
}

// addGrowth adds the segment that ends at next to the time of growth.
func (c *segmentation) addGrowth(next, age float64) {
	grows, steps := true, false
	if c.last.fit.kind == curveChangePoint {
		before, step, _ := c.last.rises()
		change := minRelativeChange * median(c.last.envelope.y)
		grows, steps = before > change, step > change
	}
	if grows || steps {
		c.growthBefore += next - c.last.from
	}
	if grows && len(c.earlier) == 0 {
		c.growthBefore += age
	}
}
