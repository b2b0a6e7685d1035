package compare

import (
	"math"

	"github.com/allocscope/allocscope/growth"
)

// An estimate is a number with its 95% interval.
type estimate struct{ value, low, high float64 }

// minus is a difference of independent estimates. The distances to the limits add in squares on
// each side: Zou and Donner, "Construction of confidence limits about effect measures", Statistics
// in Medicine 27 (2008), https://doi.org/10.1002/sim.3095.
func (e estimate) minus(o estimate) estimate {
	value := e.value - o.value
	return estimate{
		value: value,
		low:   value - math.Hypot(e.value-e.low, o.high-o.value),
		high:  value + math.Hypot(e.high-e.value, o.value-o.low),
	}
}

// widened adds an independent error, whose 95% interval has that half width.
func (e estimate) widened(half float64) estimate {
	return estimate{
		e.value, e.value - math.Hypot(e.value-e.low, half),
		e.value + math.Hypot(e.high-e.value, half),
	}
}

// certain is the estimate without its error.
func (e estimate) certain() estimate { return estimate{e.value, e.value, e.value} }

func (e estimate) times(factor float64) estimate {
	return estimate{e.value * factor, e.low * factor, e.high * factor}
}

// isZero reports whether nothing is proven: the interval contains 0, or less than a byte.
func (e estimate) isZero() bool { return e.low < 0.5 && e.high > -0.5 }

// proven is the distance of the interval from 0.
func (e estimate) proven() float64 { return max(e.low, -e.high, 0) }

// A part is a sum over sampled objects, in bytes. variance is the variance of the estimate, in
// bytes².
type part struct {
	bytes, variance float64
	// missed is the mean number of bytes between samples, where objects that are small enough to be
	// missed may belong to the part; 0: none do.
	missed float64
}

func (p *part) add(more part) {
	p.bytes += more.bytes
	p.variance += more.variance
	p.missed = max(p.missed, more.missed)
}

// scaled is that many bytes of the part.
func (p part) scaled(bytes float64) part {
	if !(p.bytes > 0) {
		return part{bytes: bytes}
	}
	return part{bytes: bytes, variance: p.variance * bytes / p.bytes}
}

func (p part) estimate() estimate {
	low, high := growth.ConfidenceLimits(p.bytes, p.variance, p.missed)
	return estimate{p.bytes, low, high}
}

// An amount is exact + born - freed. born and freed are estimates from samples.
type amount struct {
	exact       float64
	born, freed part
	// noise is the variance of exact, in bytes².
	noise float64
}

func (a *amount) add(more amount) {
	a.exact += more.exact
	a.born.add(more.born)
	a.freed.add(more.freed)
	a.noise += more.noise
}

// variance of the sampled parts, in bytes².
func (a *amount) variance() float64 { return a.born.variance + a.freed.variance }

// negative is the amount with the other sign.
func (a amount) negative() amount {
	return amount{exact: -a.exact, born: a.freed, freed: a.born, noise: a.noise}
}

const normal95 = 1.959964 // the quantile of 97.5 % of the normal distribution

func (a amount) estimate() estimate {
	e := a.born.estimate().minus(a.freed.estimate())
	return estimate{e.value + a.exact, e.low + a.exact, e.high + a.exact}.widened(normal95 *
		math.Sqrt(a.noise))
}
