package growth

import (
	"math"

	"gonum.org/v1/gonum/mathext"
	"gonum.org/v1/gonum/stat/distuv"
)

// oneInTwenty is the risk that an interval of 95 % takes.
const oneInTwenty = 0.05

// largeShape is the shape above which the quantile of a gamma distribution is approximated, to better than a part in 100,000.
const largeShape = 10_000

// A stackAmount is a sum over sampled objects, in bytes; variance is that of the estimate, in bytes².
type stackAmount struct {
	bytes, variance float64
}

// sound takes away what rounding has left of a difference. The sum of w(w - s) over weights w is no more than the square of
// their sum.
func (a stackAmount) sound() stackAmount {
	if !(a.bytes >= 1) {
		return stackAmount{}
	}
	return stackAmount{bytes: a.bytes, variance: min(max(0, a.variance), a.bytes*a.bytes)}
}

// low and high are limits in bytes that the truth passes with probability risk each: those of Fay and Feuer for a weighted
// sum of Poisson counts, Statistics in Medicine 16 (1997). Objects far larger than the interval have no variance.
func (a stackAmount) low(risk float64) float64 {
	if a.variance == 0 {
		return a.bytes
	}
	return gammaQuantile(a.bytes, a.variance, risk)
}

// high allows for one more sample of small objects, which stands for an interval (bytes) of them. Of no samples at all, the
// limit is -interval ln(risk). An interval of 0 or 1 misses nothing.
func (a stackAmount) high(risk, interval float64) float64 {
	if interval <= 1 && a.variance == 0 {
		return a.bytes
	}
	return gammaQuantile(a.bytes+interval, a.variance+interval*interval, 1-risk)
}

// gammaQuantile is the quantile of the gamma distribution with a mean and a variance, both above 0.
func gammaQuantile(mean, variance, probability float64) float64 {
	shape, scale := mean*mean/variance, variance/mean
	if shape < largeShape {
		return scale * mathext.GammaIncRegInv(shape, probability)
	}
	// Wilson and Hilferty, PNAS 17 (1931).
	root := 1 - 1/(9*shape) + distuv.UnitNormal.Quantile(probability)/(3*math.Sqrt(shape))
	return mean * root * root * root
}
