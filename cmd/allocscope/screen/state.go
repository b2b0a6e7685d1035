// Package screen is the screen that `allocscope trace` shows on a terminal while it runs. It draws
// a State as text, and turns keys into calls of Actions.
package screen

import (
	"math"
	"slices"
	"time"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/words"
)

// State is the state of a trace at one moment. It is not changed after it was shown. Texts may hold
// anything: they come from the traced process.
type State struct {
	// Command and PID of the process that the trace is about.
	Command string
	PID     int
	// Processes of its tree, and how many of them are traced.
	Processes, Traced int
	// Elapsed is the time since tracing started, Duration the length of the whole trace; 0: until
	// Ctrl-C. UntilSettled: it ends when the verdict is settled, and then at the latest.
	Elapsed, Duration time.Duration
	UntilSettled      bool
	// Extension is by how much a key makes the trace longer; 0: it has no end.
	Extension time.Duration
	// RSS of the process in bytes, and its curve so far; RSS is negative where it is unknown.
	RSS   int64
	Curve Curve

	// GPU is its memory on GPUs; nil: it has none, or that is unknown.
	GPU *GPU

	// Verdict at JudgedAt, which is provisional; nil: it is due at JudgedAt.
	Verdict  *summary.Verdict
	JudgedAt time.Duration
	// Suspect is the code with most of the growth, in words; empty: unknown.
	Suspect string
	// Keeper is who keeps its memory; nil: unknown.
	Keeper *summary.Keeper
	// Objects are how the process's objects grow by type; nil: unknown.
	Objects *summary.Objects
	// Diagnosis is the largest part of the growth with its cause, in words; empty: unknown.
	Diagnosis string
	// Headroom is the bytes until the Limit (growth.LimitMachine and others), which is empty where
	// none is known.
	Headroom int64
	Limit    string

	// Since is the baseline, from which growth counts; Warm: it is the judged end of the warm-up.
	Since time.Duration
	Warm  bool
	// Stacks that grew most or are largest, in any order.
	Stacks []Stack
	// Breakdown of the RSS from Since to the latest snapshot; Resident has the counts of the
	// kernel.
	Breakdown words.Breakdown
	Resident  summary.Resident

	// Steps of training a second over the last minute; negative: no steps were seen.
	Steps float64
	// Events a second since the last State.
	Events float64
	// CPU of allocscope itself as a share of one core since the last State, and its RSS in bytes.
	CPU    float64
	OwnRSS int64
	// Overhead of tracing so far; nil: unknown.
	Overhead *summary.Overhead
	// Drops are the losses so far, and DropReason their most frequent reason.
	Drops      uint64
	DropReason string
	// Marks are the latest ones, oldest first, and MarkCount is the number of all.
	Marks     []summary.Mark
	MarkCount int
}

// Stack is the growth and the size of one stack's memory.
type Stack struct {
	Component string
	// Where it is, in fewer and fewer words.
	Where []string
	// BytesPerMin of growth since State.Since; nil where no time has passed.
	BytesPerMin *int64
	// Bytes and Objects that are alive.
	Bytes   int64
	Objects float64
}

// rate in bytes a minute; 0: unknown.
func (s *Stack) rate() int64 {
	if s.BytesPerMin == nil {
		return 0
	}
	return *s.BytesPerMin
}

// maxPoints of a curve. Where there are more, each two neighbours become one.
const maxPoints = 512

// Point is the largest size from a moment until the next point.
type Point struct {
	At    time.Duration
	Bytes int64
}

// Curve is a size over time in a bounded number of points. The zero value is empty.
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

// columns returns the largest sizes in n equal parts of the time from 0 to end. A part without a
// point has the size of the part before.
func (c Curve) columns(n int, end time.Duration) []int64 {
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
