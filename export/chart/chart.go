// Package chart draws a size over time in block characters: on the live screen, and in texts.
package chart

import (
	"math"
	"slices"
	"strings"
	"time"
)

// maxPoints of a curve. Where there are more, each two neighbours become one.
const maxPoints = 512

// A Point is the largest size from a moment until the next point.
type Point struct {
	At    time.Duration
	Bytes int64
}

// A Curve is a size over time in a bounded number of points. The zero value is empty.
type Curve struct {
	Points []Point
	// Min and Max of all sizes in bytes.
	Min, Max int64

	step time.Duration // between points, at least
}

// With returns the curve with one more size. The curve itself does not change.
func (c Curve) With(at time.Duration, bytes int64) Curve {
	if len(c.Points) == 0 {
		c.Min, c.Max = bytes, bytes
	}

	c.Min, c.Max = min(c.Min, bytes), max(c.Max, bytes)
	points := slices.Clone(c.Points)
	if n := len(points); n > 0 && at < points[n-1].At+c.step {
		points[n-1].Bytes = max(points[n-1].Bytes, bytes)
	} else {
		points = append(points, Point{at, bytes})
	}

	if len(points) > maxPoints {
		points = halved(points)
		c.step = 2 * (points[len(points)-1].At - points[0].At) / maxPoints
	}

	c.Points = points
	return c
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

// Columns returns the largest sizes in n equal parts of the time from 0 to end. A part without a
// point has the size of the part before.
func (c Curve) Columns(n int, end time.Duration) []int64 {
	columns := make([]int64, n)
	if len(c.Points) == 0 || n == 0 || end <= 0 {
		return nil
	}

	at, size := 0, c.Points[0].Bytes
	for i := range columns {
		until := time.Duration(math.Ceil(float64(end) * float64(i+1) / float64(n)))
		largest := int64(math.MinInt64)
		for ; at < len(c.Points) && (c.Points[at].At < until || i == n-1); at++ {
			largest = max(largest, c.Points[at].Bytes)
			size = largest
		}
		columns[i] = size
	}

	return columns
}

var verticalBlocks = []rune(" ▁▂▃▄▅▆▇█")

// minHeightShare is the smallest height of a chart as a share of the largest size, so that noise
// stays flat.
const minHeightShare = 0.02

// A Scale is the sizes of the lowest and the highest block of a chart, in bytes.
type Scale struct{ Low, High int64 }

// ScaleOf is the scale of a chart of the curve.
func ScaleOf(c Curve) Scale {
	minHeight := int64(minHeightShare * float64(c.Max))
	return Scale{max(0, min(c.Min, c.Max-minHeight)), c.Max}
}

// eighths of a line that a size is high, at least 1.
func (s Scale) eighths(bytes int64, height int) int {
	full := 8 * height
	if s.High <= s.Low {
		return 1
	}
	return min(full,
		max(1, int(math.Round(float64(full)*float64(bytes-s.Low)/float64(s.High-s.Low)))))
}

// Draw draws sizes side by side in so many lines, the highest first.
func Draw(sizes []int64, s Scale, height int) []string {
	lines := make([]string, height)
	for row := range lines {
		var line strings.Builder
		below := 8 * (height - 1 - row)
		for _, size := range sizes {
			line.WriteRune(verticalBlocks[min(8, max(0, s.eighths(size, height)-below))])
		}
		lines[row] = line.String()
	}
	return lines
}
