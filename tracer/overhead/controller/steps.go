package controller

import (
	"math"
	"math/rand/v2"
	"slices"
)

// steps are those of training, the measure that needs no prices.
type steps struct {
	// before are those that were timed before any probe, probed and free are drawn from all later ones. The recent ones are those since
	// the budget was changed.
	before, probed, free     durations
	recentProbed, recentFree durations
	random                   *rand.Rand
}

const (
	fewest      = 10 // steps are too few to tell
	enough      = 30 // steps tell
	keptSteps   = 1024
	recentSteps = 256
)

// add takes in steps that have ended.
func (s *steps) add(timed []Step, begun bool) {
	for _, step := range timed {
		switch d := step.Duration.Seconds(); {
		case d <= 0:
		case !begun:
			s.before.add(d, keptSteps)
		case step.Probed:
			s.probed.draw(d, keptSteps, s.random)
			s.recentProbed.add(d, recentSteps)
		default:
			s.free.draw(d, keptSteps, s.random)
			s.recentFree.add(d, recentSteps)
		}
	}
}

// slowdown is by how much steps are slower on average than they would be without probes, as a part of those, and how far
// that may be off by chance. Those without probes between the windows are the better measure of it than those before the
// first, since training itself becomes slower or faster.
func (s *steps) slowdown() (slower, margin float64, ok bool) {
	control := &s.recentFree
	if len(control.values) < enough {
		control = &s.before
	}
	if len(s.recentProbed.values) < enough || len(control.values) < fewest {
		return 0, 0, false
	}
	share := s.recentProbed.count / (s.recentProbed.count + s.recentFree.count)
	with, errorWith := s.recentProbed.median()
	without, errorWithout := control.median()
	return share * (with/without - 1), 3 * share * math.Hypot(errorWith, errorWithout) / without, true
}

// forget begins anew to compare.
func (s *steps) forget() { s.recentProbed, s.recentFree = durations{}, durations{} }

// since is the mean over all steps since the probes were first opened, of which each kind counts by its median; 0: too few.
func (s *steps) since() float64 {
	n := s.probed.count + s.free.count
	if n < fewest {
		return 0
	}
	probed, _ := s.probed.median()
	free, _ := s.free.median()
	return (s.probed.count*probed + s.free.count*free) / n
}

// between is the median of those between windows; 0: too few.
func (s *steps) between() float64 {
	if s.free.count < enough {
		return 0
	}
	median, _ := s.free.median()
	return median
}

// first is the median of those before; 0: too few.
func (s *steps) first() float64 {
	if len(s.before.values) < fewest {
		return 0
	}
	median, _ := s.before.median()
	return median
}

// durations in seconds, the latest ones of all that count.
type durations struct {
	values []float64
	count  float64
}

func (d *durations) add(seconds float64, most int) {
	if len(d.values) < most {
		d.values = append(d.values, seconds)
	} else {
		d.values[int(d.count)%most] = seconds
	}
	d.count++
}

// draw keeps so many of all, each as likely as another.
func (d *durations) draw(seconds float64, most int, random *rand.Rand) {
	at := int(d.count)
	d.count++
	if at >= most {
		at = random.IntN(int(d.count))
	}
	switch {
	case at == len(d.values):
		d.values = append(d.values, seconds)
	case at < len(d.values):
		d.values[at] = seconds
	}
}

// median and its standard error, by the median of the deviations from it.
func (d *durations) median() (median, standardError float64) {
	if len(d.values) == 0 {
		return 0, 0
	}
	sorted := slices.Sorted(slices.Values(d.values))
	median = sorted[len(sorted)/2]
	for i := range sorted {
		sorted[i] = math.Abs(sorted[i] - median)
	}
	slices.Sort(sorted)
	deviation := 1.4826 * sorted[len(sorted)/2]
	return median, 1.2533 * deviation / math.Sqrt(float64(len(sorted)))
}
