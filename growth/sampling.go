package growth

import (
	"math"

	"gonum.org/v1/gonum/mathext"
	"gonum.org/v1/gonum/stat/distuv"
)

const (
	// SignificanceLevel is the risk that a 95% confidence interval misses the truth.
	SignificanceLevel = 0.05
	// ZScore95 is the half-width of a 95% interval of a normal distribution, in standard
	// deviations.
	ZScore95 = 1.959964
)

// Weight returns the number of objects that a sampled one of size bytes represents: 1/p with
// p = 1 - exp(-size/interval), interval being the mean number of bytes between samples. An interval
// of 0 or 1 samples every allocation.
//
// It is the convention of Go's heap profile, scaleHeapSample of runtime/pprof:
// https://github.com/golang/go/blob/go1.24.0/src/runtime/pprof/protomem.go#L97
func Weight(size, interval uint64) float64 {
	if interval <= 1 {
		return 1
	}
	if size == 0 {
		return 0
	}
	return -1 / math.Expm1(-float64(size)/float64(interval))
}

// ConfidenceLimits returns the 95% confidence interval of a sum over sampled objects: bytes with a
// variance (bytes²), interval being the mean number of bytes between samples. The upper limit
// allows for one more sample of objects smaller than the interval. With an interval of 0 or 1
// nothing is missed.
func ConfidenceLimits(bytes, variance, interval float64) (low, high float64) {
	sum := WeightedSum{Bytes: bytes, Variance: variance}.Clamp()
	return sum.Low(SignificanceLevel / 2), sum.High(SignificanceLevel/2, interval)
}

// A WeightedSum is a sum over sampled objects in bytes, and the variance of this estimate in
// bytes².
//
// Its limits are the limits of Fay and Feuer for weighted sums of Poisson counts, Statistics in
// Medicine 16 (1997) 791. Objects far larger than the interval have no variance.
type WeightedSum struct {
	Bytes, Variance float64
}

// Clamp removes the rounding error of a difference. The sum of w(w - s) over weights w is at most
// the square of their sum.
func (a WeightedSum) Clamp() WeightedSum {
	if !(a.Bytes >= 1) {
		return WeightedSum{}
	}
	return WeightedSum{Bytes: a.Bytes, Variance: min(max(0, a.Variance), a.Bytes*a.Bytes)}
}

// Low returns the limit in bytes above which the truth lies, except with probability risk.
func (a WeightedSum) Low(risk float64) float64 {
	if a.Variance == 0 {
		return a.Bytes
	}
	return gammaQuantile(a.Bytes, a.Variance, risk)
}

// High returns the limit in bytes below which the truth lies, except with probability risk. It
// allows for one more sample of small objects, which represents interval bytes; without any sample
// it is -interval ln(risk).
func (a WeightedSum) High(risk, interval float64) float64 {
	if interval <= 1 && a.Variance == 0 {
		return a.Bytes
	}
	return gammaQuantile(a.Bytes+interval, a.Variance+interval*interval, 1-risk)
}

// gammaQuantile returns the quantile of a gamma distribution, whose mean and variance are above 0.
// From maxExactShape on it uses the approximation of Wilson and Hilferty, PNAS 17 (1931) 684, which
// is accurate to better than 1 in 100,000 there.
func gammaQuantile(mean, variance, probability float64) float64 {
	const maxExactShape = 10_000
	shape, scale := mean*mean/variance, variance/mean
	if shape < maxExactShape {
		return scale * mathext.GammaIncRegInv(shape, probability)
	}

	normal := distuv.UnitNormal.Quantile(probability)
	root := 1 - 1/(9*shape) + normal/(3*math.Sqrt(shape))

	return mean * root * root * root
}
