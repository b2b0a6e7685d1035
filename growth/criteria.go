package growth

// Criteria are the thresholds of a judgement. Lengths are in the unit of the series' X, rates in shares of the level per X.
// Where they come from is told in docs/verdict.md.
type Criteria struct {
	// MinTail: no leak on a shorter last regime.
	MinTail float64
	// Warm: after a slowdown, no leak before the process is this old; of fast growth, before the regime is this long.
	Warm float64
	// Sure: no slowdown seen, or growth that began late: no leak on a shorter regime.
	Sure float64
	// Old: a process older than this at the first sample is past its first warm-up.
	Old float64
	// MinFlat: no plateau on a shorter last regime.
	MinFlat float64
	// Fast growth, which looks like a fill, and Goal, the rate worth excluding.
	Fast, Goal float64
	// Around: growth of the memory around the process, in bytes, below which it is not asked whether the right one
	// is watched. Of a series in steps nothing is known around it.
	Around float64
}

// InSeconds are the criteria for one look at the end of a series in seconds.
func InSeconds() Criteria {
	return Criteria{MinTail: 600, Warm: 1200, Sure: 1800, Old: 3600, MinFlat: 90, Fast: 0.005 / 60, Goal: 0.0005 / 60, Around: 256 << 20}
}

// InSteps are those for a series in training steps, taken to last 8 s each.
func InSteps() Criteria {
	const step = 8 // seconds
	return Criteria{MinTail: 60, Warm: 150, Sure: 200, Old: 450, MinFlat: 20, Fast: 0.005 / 60 * step, Goal: 0.0005 / 60 * step}
}

// Repeated are the criteria where a process is judged again and again: looking often finds long warm-ups.
func (c Criteria) Repeated() Criteria {
	c.Warm, c.Sure = c.Old, c.Old
	return c
}

// Faster are the criteria for a process that does in one second what others do in factor seconds. What is around it
// lives no faster, and weighs the less.
func (c Criteria) Faster(factor float64) Criteria {
	c.MinTail /= factor
	c.Warm /= factor
	c.Sure /= factor
	c.Old /= factor
	c.MinFlat /= factor
	c.Fast *= factor
	c.Goal *= factor
	c.Around *= factor
	return c
}
