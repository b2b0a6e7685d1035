package growth

// Criteria are the thresholds of a judgement. Lengths and ages are in X of the series, rates in
// shares of the level per X. docs/verdict.md has their derivation.
type Criteria struct {
	// MinTail is the shortest last segment of a leak.
	MinTail float64
	// Warm is the lowest age of a leaking process whose growth has slowed down before. Where growth
	// is faster than Fast, it is the shortest segment of a leak.
	Warm float64
	// Sure is the shortest segment of a leak that began late, or without a slowdown before it.
	Sure float64
	// Old is the age at the first sample from which a process is past its first warm-up.
	Old float64
	// MinFlat is the shortest last segment of a plateau.
	MinFlat float64
	// Fast is growth that looks like filling. Goal is the rate that a plateau's bound should
	// exclude.
	Fast, Goal float64
	// MinOutsideGrowth is the growth of the memory around the process, in bytes, from which another
	// process may be the one that leaks. It is unused for a series in steps.
	Around float64
}

// InSeconds returns the criteria for judging a series in seconds once, at its end.
func InSeconds() Criteria {
	return Criteria{
		MinTail: 600, Warm: 1200, Sure: 1800, Old: 3600, MinFlat: 90,
		Fast: 0.005 / 60, Goal: 0.0005 / 60, Around: 256 << 20,
	}
}

// InSteps returns the criteria for a series in training steps, assumed to last 8 s each.
func InSteps() Criteria {
	const stepSeconds = 8
	return Criteria{
		MinTail: 60, Warm: 150, Sure: 200, Old: 450, MinFlat: 20,
		Fast: 0.005 / 60 * stepSeconds, Goal: 0.0005 / 60 * stepSeconds,
	}
}

// Repeated returns the criteria for judging a process again and again, which meets long warm-ups
// more often.
func (c Criteria) Repeated() Criteria {
	c.Warm, c.Sure = c.Old, c.Old
	return c
}

// Faster returns the criteria for a process that does in one second what others do in factor
// seconds. The memory around it does not grow faster, so MinOutsideGrowth rises.
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
