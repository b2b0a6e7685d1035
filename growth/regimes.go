package growth

const (
	// fewest samples, or points of a base, of which anything can be said.
	fewest = 5
	// mostRegimes is how many are looked at.
	mostRegimes = 6
	// leastRest is the share of the watch that a next regime must have left.
	leastRest = 0.04
	// rises is the share of the level above which a change is one.
	rises = 0.01
)

// A regime is a stretch of the series with one behaviour, from an X to the end of what was watched.
type regime struct {
	from  float64
	base  base
	shape shape
	// samples in it.
	samples int
}

// A course is how a series went: regime after regime.
type course struct {
	// left are the regimes before the last, each with what follows still in its base.
	left []regime
	last regime
	// grew is for how long it grew before the last regime, in X, the age of the process included.
	grew float64
	// late: growth began at the last knot that was found. refill: there it follows a release of earlier growth.
	late, refill bool
}

// courseOf walks from a start to the last regime. The age is that of the process at the first sample. There is none where
// too few samples are near a base.
func courseOf(s Series, start, age float64) (course, bool) {
	var c course
	for {
		r, ok := regimeOf(s, start)
		if !ok {
			return course{}, false
		}
		c.last = r
		c.noteKnot()
		next, ends := r.next(s.end())
		if !ends || len(c.left) == mostRegimes-1 || len(s.from(next).X) < fewest || s.end()-next < leastRest*(s.end()-s.X[0]) {
			return c, true
		}
		c.noteGrowth(next, age)
		c.left = append(c.left, r)
		start = next
		if r.shape.form == formKnot && r.samples > fewSamples {
			start += 0.02 * (s.end() - next) // the knot may lie a little later than found
		}
	}
}

func regimeOf(s Series, from float64) (regime, bool) {
	s = s.from(from)
	if len(s.X) < fewest {
		return regime{}, false
	}
	r := regime{from: from, base: baseOf(s), samples: len(s.X)}
	if len(r.base.x) < fewest || r.base.length() < 1e-9 {
		return regime{}, false
	}
	r.shape = shapeOf(r.base)
	return r, true
}

// next is where another regime follows: at a knot, or when an exponential has settled.
func (r regime) next(end float64) (x float64, follows bool) {
	switch r.shape.form {
	case formKnot:
		return r.base.x[r.shape.knot], true
	case formSettling:
		return r.from + r.shape.settled*(end-r.from), true
	case formExponential:
		return r.from + 3*r.shape.scale*(end-r.from), r.shape.scale <= 0.2
	}
	return 0, false
}

// knotRises are how much the two lines of a knot rise, and the step between them, in bytes.
func (r regime) knotRises() (before, jump, behind float64) {
	k, s, b := r.shape.knot, r.shape, r.base
	before = s.before.slope * (b.x[k] - b.start())
	behind = s.behind.slope * (b.end() - b.x[k])
	jump = s.behind.at(b.x[k]) - s.before.at(b.x[k-1])
	return before, jump, behind
}

// noteKnot looks at what begins at a knot of the last regime.
func (c *course) noteKnot() {
	if c.last.shape.form != formKnot {
		return
	}
	before, jump, behind := c.last.knotRises()
	c.late = c.last.shape.behind.slope > max(c.last.shape.before.slope, 0) && jump > -0.3*behind
	c.refill = behind > 0 && -jump > 0.3*behind && before > -0.3*jump
}

// noteGrowth adds what is left at next to how long it grew.
func (c *course) noteGrowth(next, age float64) {
	grew, stepped := true, false
	if c.last.shape.form == formKnot {
		before, jump, _ := c.last.knotRises()
		change := rises * median(c.last.base.y)
		grew, stepped = before > change, jump > change
	}
	if grew || stepped {
		c.grew += next - c.last.from
	}
	if grew && len(c.left) == 0 {
		c.grew += age
	}
}
