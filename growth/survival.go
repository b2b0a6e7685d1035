package growth

import (
	"math"
	"math/bits"
	"time"
)

// A Survival is the probability, by age, that an object that was not found dead is alive.
type Survival struct {
	// alive at each of survivalAges. lower has the probabilities with one standard error more
	// deaths than were observed.
	alive, lower [survivalPoints]float64
}

const (
	// pointsPerClass is the number of ages computed in each class of age.
	pointsPerClass = 4
	survivalPoints = hazardAges * pointsPerClass
)

// survivalAges are the ages at which survival is computed, in seconds.
var survivalAges = func() (ages [survivalPoints]float64) {
	for i := range ages {
		class, part := i/pointsPerClass, float64(i%pointsPerClass)/pointsPerClass
		ages[i] = firstClassSeconds * part
		if class > 0 {
			ages[i] = math.Ldexp(firstClassSeconds, class-1) * (1 + part)
		}
	}
	return ages
}()

// Survival returns the survival of the objects; 1 at all ages where none died unseen.
func (h *HazardRate) Survival() *Survival {
	all := h.Mature(0)
	deathScale := 1.0
	if all.Deaths > 0 {
		deathScale += 1 / math.Sqrt(float64(all.Deaths))
	}
	return &Survival{alive: h.alive(1), lower: h.alive(deathScale)}
}

// At returns the probability at an age, and its standard error, which all objects of a stack share.
func (s *Survival) At(age time.Duration) (share, err float64) {
	seconds := max(0, age.Seconds())
	share = interpolate(&s.alive, seconds)
	return share, max(0, share-interpolate(&s.lower, seconds))
}

// alive solves the renewal equation for the survival at each age. Freed chunks are reused by the
// same site, so a chunk not found free at age a still has its first object with probability
// A(a)/N(a):
//
//	A(a) = N(a) - ∫₀ᵃ D(u) A(a-u) du
//
// N is the probability that the chunk was not found free, D the rate of unseen deaths in it.
// deathScale multiplies the observed deaths, for the standard error.
func (h *HazardRate) alive(deathScale float64) (alive [survivalPoints]float64) {
	rates, some := h.unseenRates(deathScale)
	oldest := -1
	if some {
		oldest = h.oldestPoint()
	}
	notFree, deaths := h.notFoundFree(&rates)

	var first [survivalPoints]float64 // A
	first[0], alive[0] = 1, 1
	for i := 1; i < survivalPoints; i++ {
		alive[i] = alive[i-1]
		if i > oldest {
			continue
		}
		first[i] = solveRenewal(i, notFree[i], &first, &deaths)
		const minNotFree = 1e-6 // below it, the quotient is rounding error
		if notFree[i] > minNotFree {
			alive[i] = min(1, first[i]/notFree[i])
		}
	}

	return alive
}

// oldestPoint is the last point of the oldest class with observations.
func (h *HazardRate) oldestPoint() int {
	for i := hazardAges - 1; i > 0; i-- {
		if h.ages[i] != (DeathCounts{}) {
			return (i+1)*pointsPerClass - 1
		}
	}
	return pointsPerClass - 1
}

// unseenRates returns the rate of unseen deaths in each class, and false if there are none. A class
// without exposure takes the rate of the nearest younger class with some, else of the nearest
// older.
func (h *HazardRate) unseenRates(deathScale float64) (rates [hazardAges]float64, some bool) {
	before := -1
	for i := range h.ages {
		rate, known := h.ages[i].unseenRate(deathScale)
		some = some || rate > 0
		switch {
		case known && before < 0:
			for j := range i {
				rates[j] = rate
			}
			before = i
		case known:
			before = i
		case before >= 0:
			rate = rates[before]
		}
		rates[i] = rate
	}
	return rates, some
}

// notFoundFree returns N and D of the renewal equation at each age.
func (h *HazardRate) notFoundFree(
	rates *[hazardAges]float64,
) (notFree, deaths [survivalPoints]float64) {
	found := 0.0 // cumulative hazard
	for i := range notFree {
		if i > 0 {
			rate := h.ages[(i-1)/pointsPerClass].foundRate()
			found += rate * (survivalAges[i] - survivalAges[i-1])
		}
		notFree[i] = math.Exp(-found)
		deaths[i] = notFree[i] * rates[i/pointsPerClass]
	}
	return notFree, deaths
}

// solveRenewal returns A at the i-th age. The integral is linear in it, so two values determine it.
func solveRenewal(i int, notFree float64, first, deaths *[survivalPoints]float64) float64 {
	first[i] = 0
	without := convolve(i, first, deaths)
	first[i] = 1
	slope := convolve(i, first, deaths) - without
	return max(0, (notFree-without)/(1+slope))
}

// convolve integrates up to the i-th age by the trapezoidal rule. Each half of the integral runs
// over the function whose argument is near 0, where the points are dense.
func convolve(i int, first, deaths *[survivalPoints]float64) (sum float64) {
	age := survivalAges[i]
	value := func(u float64) float64 {
		return interpolate(deaths, u)*interpolate(first, age-u) +
			interpolate(first, u)*interpolate(deaths, age-u)
	}

	last, before := 0.0, value(0)
	for j := 1; last < age/2; j++ {
		u := min(survivalAges[j], age/2)
		here := value(u)
		sum += (u - last) / 2 * (before + here)
		last, before = u, here
	}

	return sum
}

// interpolate is linear between the ages around it.
func interpolate(values *[survivalPoints]float64, age float64) float64 {
	i := pointBefore(age)
	from, to := survivalAges[i], survivalAges[i+1]
	return values[i] + (values[i+1]-values[i])*min(1, (age-from)/(to-from))
}

// pointBefore is the index of the last of survivalAges up to an age, at most the last but one.
func pointBefore(age float64) int {
	class := bits.Len64(uint64(age / firstClassSeconds))
	if class >= hazardAges {
		return survivalPoints - 2
	}

	from, length := 0.0, float64(firstClassSeconds)
	if class > 0 {
		from = survivalAges[class*pointsPerClass]
		length = from
	}

	return min(survivalPoints-2, class*pointsPerClass+int((age-from)/length*pointsPerClass))
}
