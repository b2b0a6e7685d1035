package verdict

import (
	"math"

	"gonum.org/v1/gonum/stat"
)

// A Shape is how the last segment runs, and the condition of a leak that it does not meet. Numbers
// that are unknown are NaN.
type Shape struct {
	// Misfit is the root mean square of the lower envelope about its line, as a share of the rise of
	// that line.
	Misfit float64
	// Halves is the rate of the second half as a multiple of the first half's rate.
	Halves float64
	// Age of the process at the first sample, in X; 0 where it is unknown. IsMature: it was old enough
	// to be past its first warm-up.
	Age      float64
	IsMature bool
	// Lack is the condition of a leak that the growth does not meet; empty: it meets all, or there
	// is no growth. UntilLeak
	// is for how much longer it must last, in X; NaN: no length alone proves it.
	Lack      Lack
	UntilLeak float64
}

// A Lack is a condition of a leak that growth does not meet.
type Lack string

// The lacks.
const (
	LackLength Lack = "length"  // it is short, or shorter than half of the growth before it
	LackEpoch  Lack = "epoch"   // it lasts too shortly after the first pass over the data
	LackEarly  Lack = "early"   // it began late, as a new phase of the job does
	LackWarmup Lack = "warm-up" // the process was young, and no warm-up was seen to end
	LackSlow   Lack = "slow"    // the process was young, and it grows fast
	LackAge    Lack = "age"     // the process is still young
	LackNew    Lack = "new"     // it returns to a level that was held before
	LackSteady Lack = "steady"  // a few jumps make up most of it
)

// shape describes the last segment.
func (e *evidence) shape() Shape {
	s := Shape{Misfit: math.NaN(), Halves: math.NaN(), Age: e.setting.Age, UntilLeak: math.NaN()}
	if !e.isGrowing {
		return s
	}
	s.Lack, s.UntilLeak = e.lack, e.untilLeak
	s.IsMature = s.Age >= e.criteria.MatureAge

	base := e.segments.last.envelope
	l := lineThrough(base.x, base.y)
	if rise := l.slope * base.length(); rise > 0 {
		s.Misfit = math.Sqrt(l.squares(base.x, base.y)/float64(len(base.x))) / rise
	}

	half := len(base.x) / 2
	_, first := stat.LinearRegression(base.x[:half], base.y[:half], nil, false)
	_, second := stat.LinearRegression(base.x[half:], base.y[half:], nil, false)
	if first > 0 {
		s.Halves = second / first
	}
	return s
}
