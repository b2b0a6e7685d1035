package verdict

// Criteria are the thresholds of a judgement. Lengths and ages are in X of the series, rates in
// shares of the level per X. docs/reference/verdict.md has their derivation.
type Criteria struct {
	// MinLeakLength is the shortest last segment of a leak.
	MinLeakLength float64
	// WarmupAge is the lowest age of a leaking process whose growth has slowed down before. Where
	// growth is faster than FastRate, it is the shortest segment of a leak.
	WarmupAge float64
	// MinUnconfirmedLength is the shortest segment of a leak that began late, or without a slowdown
	// before it.
	MinUnconfirmedLength float64
	// MatureAge is the age at the first sample from which a process is past its first warm-up.
	MatureAge float64
	// MinPlateauLength is the shortest last segment of a plateau.
	MinPlateauLength float64
	// FastRate is growth that looks like saturation. TargetRate is the growth that a plateau's
	// bound should exclude.
	FastRate, TargetRate float64
	// MinOutsideGrowth is the growth of another process of the job, in bytes, from which that may be
	// the one that leaks. It is unused for a series in steps.
	MinOutsideGrowth float64
}

// InSeconds returns the criteria for judging a series in seconds once, at its end.
func InSeconds() Criteria {
	return Criteria{
		MinLeakLength: 600, MinUnconfirmedLength: 1800, MinPlateauLength: 90,
		WarmupAge: 1200, MatureAge: 3600,
		FastRate: 0.005 / 60, TargetRate: 0.0005 / 60,
		MinOutsideGrowth: 256 << 20,
	}
}

// InSteps returns the criteria for a series in training steps, assumed to last 8 s each.
func InSteps() Criteria {
	const stepSeconds = 8
	return Criteria{
		MinLeakLength: 60, MinUnconfirmedLength: 200, MinPlateauLength: 20,
		WarmupAge: 150, MatureAge: 450,
		FastRate: 0.005 / 60 * stepSeconds, TargetRate: 0.0005 / 60 * stepSeconds,
	}
}

// Repeated returns the criteria for judging a process repeatedly, which meets long warm-ups
// more often.
func (c Criteria) Repeated() Criteria {
	c.WarmupAge, c.MinUnconfirmedLength = c.MatureAge, c.MatureAge
	return c
}

// Faster returns the criteria for a process that does in one second the work of others in factor
// seconds. Other processes do not grow faster, so MinOutsideGrowth rises.
func (c Criteria) Faster(factor float64) Criteria {
	c.MinLeakLength /= factor
	c.WarmupAge /= factor
	c.MinUnconfirmedLength /= factor
	c.MatureAge /= factor
	c.MinPlateauLength /= factor

	c.FastRate *= factor
	c.TargetRate *= factor
	c.MinOutsideGrowth *= factor

	return c
}
