package live

import (
	"math"
	"slices"
	"time"
)

// mostPoints of a trail; two neighbours become one whenever there are more.
const mostPoints = 512

// A Point is the largest size from a moment until the next point.
type Point struct {
	At    time.Duration
	Bytes int64
}

// A Trail is the course of a size over time in a bounded number of points. The zero value is empty.
type Trail struct {
	Points []Point
	// Min and Max of all sizes in bytes.
	Min, Max int64

	step time.Duration // between points, at least
}

// With is the trail with one more size. The trail itself stays as it is.
func (t Trail) With(at time.Duration, bytes int64) Trail {
	if len(t.Points) == 0 {
		t.Min, t.Max = bytes, bytes
	}
	t.Min, t.Max = min(t.Min, bytes), max(t.Max, bytes)
	points := slices.Clone(t.Points)
	if n := len(points); n > 0 && at < points[n-1].At+t.step {
		points[n-1].Bytes = max(points[n-1].Bytes, bytes)
	} else {
		points = append(points, Point{at, bytes})
	}
	if len(points) > mostPoints {
		points = halved(points)
		t.step = 2 * (points[len(points)-1].At - points[0].At) / mostPoints
	}
	t.Points = points
	return t
}

func halved(points []Point) []Point {
	half := points[:0]
	for pair := range slices.Chunk(points, 2) {
		p := pair[0]
		p.Bytes = max(p.Bytes, pair[len(pair)-1].Bytes)
		half = append(half, p)
	}
	return half
}

// columns are the largest sizes in so many equal parts of the time from 0 to end. A part without a point has the size of the one before.
func (t Trail) columns(n int, end time.Duration) []int64 {
	columns := make([]int64, n)
	if len(t.Points) == 0 || n == 0 || end <= 0 {
		return nil
	}
	at, size := 0, t.Points[0].Bytes
	for i := range columns {
		until := time.Duration(math.Ceil(float64(end) * float64(i+1) / float64(n)))
		for largest := int64(math.MinInt64); at < len(t.Points) && (t.Points[at].At < until || i == n-1); at++ {
			largest = max(largest, t.Points[at].Bytes)
			size = largest
		}
		columns[i] = size
	}
	return columns
}
