package controller

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/allocscope/allocscope/growth"
)

// When steps are checked, how long the budget stays as it is after a change by them, and how long
// it stays small, in seconds.
const (
	stepCheckSeconds = 5
	throttlePause    = 30
	throttleSeconds  = 600
	minThrottle      = 1.0 / 64
)

// steps has the durations of steps of training, the measure of overhead that needs no costs.
type steps struct {
	// before has the steps before any probe opened. probed and unprobed sample all later ones, and
	// the recent ones are those since the budget was changed.
	before, probed, unprobed     durations
	recentProbed, recentUnprobed durations
	random                       *rand.Rand
	// throttledAt is when the steps last changed the budget, and checkAt when they are checked
	// next.
	throttledAt, checkAt float64
}

const (
	minStepsForMedian   = 10
	minStepsForSlowdown = 30
	keptSteps           = 1024
	recentSteps         = 256
)

// add adds steps that have ended. started: probes have been opened before.
func (s *steps) add(timed []Step, started bool) {
	for _, step := range timed {
		switch d := step.Duration.Seconds(); {
		case d <= 0:
		case !started:
			s.before.add(d, keptSteps)
		case step.Probed:
			s.probed.sample(d, keptSteps, s.random)
			s.recentProbed.add(d, recentSteps)
		default:
			s.unprobed.sample(d, keptSteps, s.random)
			s.recentUnprobed.add(d, recentSteps)
		}
	}
}

// slowdown returns how much slower steps are on average than without probes, as a share of the
// time without them, and three standard errors of that share. The control are the steps between
// bursts, since training itself becomes slower or faster. Where these are too few, it is the steps
// before the first probe. ok is false if there are too few steps.
func (s *steps) slowdown() (slowdown, margin float64, ok bool) {
	control := &s.recentUnprobed
	if len(control.values) < minStepsForSlowdown {
		control = &s.before
	}
	if len(s.recentProbed.values) < minStepsForSlowdown || len(control.values) < minStepsForMedian {
		return 0, 0, false
	}

	share := s.recentProbed.count / (s.recentProbed.count + s.recentUnprobed.count)
	with, errorWith := s.recentProbed.median()
	without, errorWithout := control.median()
	return share * (with/without - 1), 3 * share * math.Hypot(errorWith, errorWithout) / without, true
}

// check halves the budget where steps are slower than the costs explain, and doubles it again after
// ten minutes.
func (s *steps) check(b *budget, now float64) (why growth.OverheadChange) {
	if now < s.checkAt {
		return why
	}
	s.checkAt = now + stepCheckSeconds

	slowdown, margin, ok := s.slowdown()
	switch {
	case ok && slowdown-margin > b.limit && b.throttle > minThrottle:
		b.throttle /= 2
		why.Reason, why.Slowdown, why.Limit = growth.OverheadSlowSteps, slowdown, b.limit
	case b.throttle < 1 && now-s.throttledAt >= throttleSeconds:
		b.throttle = min(1, 2*b.throttle)
		why.Reason = growth.OverheadFastSteps
	default:
		return why
	}

	s.throttledAt, s.checkAt = now, now+throttlePause
	s.resetRecent()
	return why
}

// resetRecent starts a new comparison.
func (s *steps) resetRecent() { s.recentProbed, s.recentUnprobed = durations{}, durations{} }

// meanSince returns the mean over all steps since the probes were first opened, in seconds. Steps
// with and without probes count by their medians, so that a few very long ones do not matter. It
// is 0 if there are too few.
func (s *steps) meanSince() float64 {
	n := s.probed.count + s.unprobed.count
	if n < minStepsForMedian {
		return 0
	}
	probed, _ := s.probed.median()
	unprobed, _ := s.unprobed.median()
	return (s.probed.count*probed + s.unprobed.count*unprobed) / n
}

// medianBetween returns the median of the steps between bursts, in seconds; 0: there are too few.
func (s *steps) medianBetween() float64 {
	if s.unprobed.count < minStepsForSlowdown {
		return 0
	}
	median, _ := s.unprobed.median()
	return median
}

// medianBefore returns the median of the steps before the first probe, in seconds; 0: there are
// too few.
func (s *steps) medianBefore() float64 {
	if len(s.before.values) < minStepsForMedian {
		return 0
	}
	median, _ := s.before.median()
	return median
}

// durations has some durations of all that were added, in seconds. count is the number of all.
type durations struct {
	values []float64
	count  float64

	counted               float64 // count when the median was calculated
	middle, standardError float64
}

// add keeps the last size durations.
func (d *durations) add(seconds float64, size int) {
	if len(d.values) < size {
		d.values = append(d.values, seconds)
	} else {
		d.values[int(d.count)%size] = seconds
	}
	d.count++
}

// sample keeps size durations of all, each with the same probability: reservoir sampling,
// algorithm R (https://doi.org/10.1145/3147.3165).
func (d *durations) sample(seconds float64, size int, random *rand.Rand) {
	at := int(d.count)
	d.count++
	if at >= size {
		at = random.IntN(int(d.count))
	}
	switch {
	case at == len(d.values):
		d.values = append(d.values, seconds)
	case at < len(d.values):
		d.values[at] = seconds
	}
}

// median returns the median and its standard error, sqrt(pi/2) * sigma / sqrt(n). The standard
// deviation sigma is estimated robustly, as 1.4826 times the median absolute deviation.
func (d *durations) median() (median, standardError float64) {
	if d.counted == d.count {
		return d.middle, d.standardError
	}
	d.counted = d.count
	sorted := slices.Sorted(slices.Values(d.values))
	median = sorted[len(sorted)/2]

	for i := range sorted {
		sorted[i] = math.Abs(sorted[i] - median)
	}
	slices.Sort(sorted)
	sigma := 1.4826 * sorted[len(sorted)/2]
	d.middle, d.standardError = median, 1.2533*sigma/math.Sqrt(float64(len(sorted)))
	return d.middle, d.standardError
}
