package gpu

import (
	"slices"
	"sort"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/verdict"
)

// A CurveName names a measure of the GPU memory of a process.
type CurveName string

// The measures of GPU memory, as files have them.
const (
	CurveUsed      CurveName = "used"      // NVML's count for the process
	CurveReserved  CurveName = "reserved"  // segments of PyTorch's caching allocator
	CurveAllocated CurveName = "allocated" // its blocks
	CurveDriver    CurveName = "driver"    // allocated by the CUDA driver API since tracing started
)

// A Curve is one measure of a process's GPU memory and the verdict on it.
type Curve struct {
	Name CurveName
	verdict.Verdict

	// series as it was sampled, and the part that is judged: of blocks the troughs between steps.
	series, judged verdict.Series
}

// CurvesOf returns the known curves of a timeline, in the order of the constants Curve….
func CurvesOf(t growth.Timeline) []Curve {
	var curves []Curve
	for _, c := range []struct {
		name  CurveName
		value func(*growth.Sample) int64
	}{
		{CurveUsed, func(s *growth.Sample) int64 { return s.GPUUsed }},
		{CurveReserved, func(s *growth.Sample) int64 { return s.CudaReserved }},
		{CurveAllocated, func(s *growth.Sample) int64 { return s.CudaAllocated }},
		{CurveDriver, func(s *growth.Sample) int64 { return s.CudaDriver }},
	} {
		series := t.SeriesOf(c.value)
		if len(series.X) == 0 {
			continue
		}
		curve := Curve{Name: c.name, series: series, judged: series}
		if c.name == CurveAllocated {
			curve.judged = troughsOf(series)
		}
		curves = append(curves, curve)
	}

	return curves
}

// Curve returns one of the judged curves; nil if it is unknown.
func (j *Judgement) Curve(name CurveName) *Curve { return curveOf(j.Curves, name) }

// curveOf returns nil for a curve that is unknown.
func curveOf(curves []Curve, name CurveName) *Curve {
	i := slices.IndexFunc(curves, func(c Curve) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return &curves[i]
}

const (
	// samplesPerTrough is how many samples are reduced to their minimum: blocks come and go within
	// each step of training, and a sample may be at any moment of a step.
	samplesPerTrough = 30
	// minTroughs there must be, else a trough has fewer samples.
	minTroughs = 20
)

// troughWidth is the number of samples per trough of a series of n.
func troughWidth(n int) int { return min(max(n/minTroughs, 1), samplesPerTrough) }

// troughsOf returns the lowest of every so many samples: the memory held between steps.
func troughsOf(s verdict.Series) verdict.Series {
	var troughs verdict.Series
	width := troughWidth(len(s.X))
	for from := 0; from+width <= len(s.X); from += width {
		least := from
		for i := from; i < from+width; i++ {
			if s.Y[i] < s.Y[least] {
				least = i
			}
		}
		troughs.X, troughs.Y = append(troughs.X, s.X[least]), append(troughs.Y, s.Y[least])
	}
	return troughs
}

// atEnd returns the curve's last judged value, and the highest of its last samples, in bytes.
func (c *Curve) atEnd() (level, peak float64) {
	last := c.series.Y[max(0, len(c.series.Y)-samplesPerTrough):]
	return c.judged.Y[len(c.judged.Y)-1], slices.Max(last)
}

// At returns the judged value of the last sample at or before an X in bytes, or of the first if
// there is none.
func (c *Curve) At(seconds float64) int64 {
	i := sort.SearchFloat64s(c.judged.X, seconds)
	if i < len(c.judged.X) && c.judged.X[i] == seconds {
		i++
	}
	return int64(c.judged.Y[max(0, i-1)])
}
