package fleet

import (
	"math"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/conclude"
	"github.com/allocscope/allocscope/growth/verdict"
)

const (
	// maxSamples bounds the samples of a process: there are between half as many and all of them.
	maxSamples = 2048
	// maxSpan is how far back samples are kept: a leak that begins late must not be one sample of
	// many.
	maxSpan = 48 * time.Hour
)

// A point is the memory of a process at an age, in seconds. Sizes are in bytes.
type point struct {
	age float64
	rss int64 // with swapped memory, as private
	// private is anonymous and shared memory: RSS without mapped files.
	private int64
}

// A history is the memory of a process so far.
type history struct {
	thinning growth.Thinning
	points   []point
	// born is the age of the process at which it executed its program; 0: when it started.
	born float64
	// began is the age at the first sample of all, kept or not.
	began float64
}

// milliseconds are an age as the state has it.
func milliseconds(age float64) int64 { return int64(math.Round(age * 1000)) }

// add adds a sample that is a millisecond later than all before. It keeps none of unknown sizes.
func (h *history) add(age float64, s growth.Sample) {
	if s.RSS == growth.Unknown || s.Anonymous == growth.Unknown || s.Shared == growth.Unknown {
		return
	}

	n := len(h.points)
	switch {
	case n == 0:
		h.began = age
	case milliseconds(age) <= milliseconds(h.points[n-1].age):
		return
	case h.thinning.DropsLast() && n > 1:
		h.points = h.points[:n-1]
	}

	h.points = append(h.points, point{age, s.Memory(), s.Anonymous + s.Shared + max(0, s.Swap)})

	if h.thinning.Take() && len(h.points) > maxSamples {
		h.thinning.Halve()
		h.points = growth.EveryOther(h.points)
	}

	for len(h.points) > 2 && h.points[1].age < age-maxSpan.Seconds() {
		h.points = h.points[1:]
	}
}

// length is how long the process has been watched, in seconds.
func (h *history) length() float64 {
	if len(h.points) == 0 {
		return 0
	}

	return h.points[len(h.points)-1].age - h.began
}

// judge returns the verdict on RSS, and on the memory besides mapped files where RSS grows.
// Headroom is the memory left until the nearest limit.
func (h *history) judge(
	headroom growth.Headroom, criteria verdict.Criteria,
) (verdict.Verdict, verdict.Findings) {
	start := math.Inf(-1) // all samples are of one program: no fall is a restart
	setting := verdict.Setting{Start: &start}
	if n := len(h.points); n > 0 {
		setting.Age = max(0, h.points[0].age-h.born)
		if headroom.Of != "" {
			setting.Limit = float64(h.points[n-1].rss + headroom.Left)
		}
	}

	return conclude.Sizes{
		RSS:     h.series(func(p point) int64 { return p.rss }),
		Private: h.series(func(p point) int64 { return p.private }),
		Setting: setting, Criteria: criteria,
	}.Judge()
}

func (h *history) series(value func(point) int64) verdict.Series {
	s := verdict.Series{X: make([]float64, len(h.points)), Y: make([]float64, len(h.points))}
	for i, p := range h.points {
		s.X[i], s.Y[i] = p.age, float64(value(p))
	}

	return s
}
