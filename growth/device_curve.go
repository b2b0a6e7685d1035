package growth

import "slices"

// A CurveName names a measure of the device memory of a process.
type CurveName string

// The curves of device memory, as files write them.
const (
	CurveUsed      CurveName = "used"      // what the driver counts for the process (NVML)
	CurveReserved  CurveName = "reserved"  // segments of torch's caching allocator
	CurveAllocated CurveName = "allocated" // its blocks
	CurveDriver    CurveName = "driver"    // what was allocated through the driver's API since the attach, by anybody
)

// A DeviceCurve is one measure of a process's device memory and the verdict on it.
type DeviceCurve struct {
	Name CurveName
	Verdict

	// series as it was sampled, and what of it is judged: of blocks what is held between steps.
	series, judged Series
}

// Curves gives the curves of device memory of which anything is known, in the order of the constants Curve….
func (t Timeline) Curves() []DeviceCurve {
	var curves []DeviceCurve
	for _, c := range []struct {
		name  CurveName
		value func(*Sample) int64
	}{
		{CurveUsed, func(s *Sample) int64 { return s.DeviceUsed }},
		{CurveReserved, func(s *Sample) int64 { return s.CudaReserved }},
		{CurveAllocated, func(s *Sample) int64 { return s.CudaAllocated }},
		{CurveDriver, func(s *Sample) int64 { return s.CudaDriver }},
	} {
		series := t.seriesOf(c.value)
		if len(series.X) == 0 {
			continue
		}
		curve := DeviceCurve{Name: c.name, series: series, judged: series}
		if c.name == CurveAllocated {
			curve.judged = series.troughs()
		}
		curves = append(curves, curve)
	}
	return curves
}

// seriesOf is one value over time, X in seconds. Gaps are left out.
func (t Timeline) seriesOf(value func(*Sample) int64) Series {
	var s Series
	for i := range t {
		if v := value(&t[i]); v != Unknown {
			s.X = append(s.X, t[i].Elapsed.Seconds())
			s.Y = append(s.Y, float64(v))
		}
	}
	return s
}

const (
	// troughSamples are those of which the lowest is taken: blocks come and go within each step of training, and a sample hits
	// any moment of a step.
	troughSamples = 30
	// fewestTroughs there must be, or fewer samples are taken for each.
	fewestTroughs = 20
)

// troughWidth is how many samples of a series of n make a trough.
func troughWidth(n int) int { return min(max(n/fewestTroughs, 1), troughSamples) }

// troughs are the lowest of every so many samples: what is held between steps.
func (s Series) troughs() Series {
	var low Series
	width := troughWidth(len(s.X))
	for from := 0; from+width <= len(s.X); from += width {
		least := from
		for i := from; i < from+width; i++ {
			if s.Y[i] < s.Y[least] {
				least = i
			}
		}
		low.X, low.Y = append(low.X, s.X[least]), append(low.Y, s.Y[least])
	}
	return low
}

// atEnd is the curve's last value of those that are judged, and its highest of late, in bytes.
func (c *DeviceCurve) atEnd() (level, peak float64) {
	late := c.series.Y[max(0, len(c.series.Y)-troughSamples):]
	return c.judged.Y[len(c.judged.Y)-1], slices.Max(late)
}

// At is what was judged at a moment, in bytes: the value of the last sample up to it, of the first if there is none.
func (c *DeviceCurve) At(seconds float64) int64 {
	i := len(c.judged.until(seconds).X)
	if i < len(c.judged.X) && c.judged.X[i] == seconds {
		i++
	}
	return int64(c.judged.Y[max(0, i-1)])
}
