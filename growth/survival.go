package growth

import (
	"math"
	"math/bits"
	"time"
)

// A Survival is the probability that an object that has reached an age, and has not been seen to be dead, is alive.
type Survival struct {
	// alive at each of the ages; fewer are those if more deaths were seen than there should have been, by one standard error.
	alive, fewer [survivalAges]float64
}

// agesPerClass is in how many equal parts each class of ages is looked at.
const (
	agesPerClass = 4
	survivalAges = hazardAges * agesPerClass
)

// ages at which survival is worked out, in seconds.
var ages = func() (ages [survivalAges]float64) {
	for i := range ages {
		class, part := i/agesPerClass, float64(i%agesPerClass)/agesPerClass
		ages[i] = youngest * part
		if class > 0 {
			ages[i] = math.Ldexp(youngest, class-1) * (1 + part)
		}
	}
	return ages
}()

// Survival by what was seen; 1 at all ages where nothing was seen to die unseen.
func (h *Hazard) Survival() *Survival {
	all := h.Mature(0)
	more := 1.0
	if all.Deaths > 0 {
		more += 1 / math.Sqrt(float64(all.Deaths))
	}
	return &Survival{alive: h.alive(1), fewer: h.alive(more)}
}

// alive by what was seen, had so many times the deaths been seen in windows. A place in memory whose object has died unseen is
// held by another of the same site, which may die unseen as well. So of the places that were not found to be free at an age, N,
// those hold their first object, A, of which none has died since: A(a) = N(a) - the integral of D(u) A(a - u) over u from 0 to a,
// D being the rate at which what was in them died unseen.
func (h *Hazard) alive(times float64) (alive [survivalAges]float64) {
	unseen, some := h.unseenByAge(times)
	oldest := -1
	if some {
		oldest = h.oldest()
	}
	places, deaths := h.places(&unseen)
	var first [survivalAges]float64
	first[0], alive[0] = 1, 1
	for i := 1; i < survivalAges; i++ {
		alive[i] = alive[i-1]
		if i > oldest {
			continue
		}
		first[i] = firstHolders(i, places[i], &first, &deaths)
		const few = 1e-6 // of which rounding leaves nothing
		if places[i] > few {
			alive[i] = min(1, first[i]/places[i])
		}
	}
	return alive
}

// oldest is the last of the ages at which anything was seen.
func (h *Hazard) oldest() int {
	for i := hazardAges - 1; i > 0; i-- {
		if h.ages[i] != (Fate{}) {
			return (i+1)*agesPerClass - 1
		}
	}
	return agesPerClass - 1
}

// unseenByAge is the rate of unseen deaths in each class of ages; false: nothing died unseen. A class without exposure takes that
// of the nearest younger one with some, else of the nearest older.
func (h *Hazard) unseenByAge(times float64) (rates [hazardAges]float64, some bool) {
	before := -1
	for i := range h.ages {
		rate, known := h.ages[i].unseen(times)
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

// places are the share of those that are not found to be free at each age, and the rate at which what is in them dies unseen.
func (h *Hazard) places(unseen *[hazardAges]float64) (places, deaths [survivalAges]float64) {
	freed := 0.0
	for i := range places {
		if i > 0 {
			freed += h.ages[(i-1)/agesPerClass].found() * (ages[i] - ages[i-1])
		}
		places[i] = math.Exp(-freed)
		deaths[i] = places[i] * unseen[i/agesPerClass]
	}
	return places, deaths
}

// firstHolders solves for the i-th age, on which the integral depends in a straight line.
func firstHolders(i int, places float64, first, deaths *[survivalAges]float64) float64 {
	first[i] = 0
	without := convolved(i, first, deaths)
	first[i] = 1
	slope := convolved(i, first, deaths) - without
	return max(0, (places-without)/(1+slope))
}

// convolved is the integral up to the i-th age. Either half of it runs over the function whose argument is near 0, by the
// trapezoidal rule.
func convolved(i int, first, deaths *[survivalAges]float64) (sum float64) {
	age, last := ages[i], 0.0
	value := func(u float64) float64 {
		return valueAt(deaths, u)*valueAt(first, age-u) + valueAt(first, u)*valueAt(deaths, age-u)
	}
	before := value(0)
	for j := 1; last < age/2; j++ {
		u := min(ages[j], age/2)
		here := value(u)
		sum += (u - last) / 2 * (before + here)
		last, before = u, here
	}
	return sum
}

// valueAt is a value between those at the ages around it.
func valueAt(values *[survivalAges]float64, age float64) float64 {
	i := survivalIndex(age)
	from, to := ages[i], ages[i+1]
	return values[i] + (values[i+1]-values[i])*min(1, (age-from)/(to-from))
}

// survivalIndex is the last of the ages up to one, but for the very last of all.
func survivalIndex(age float64) int {
	class := bits.Len64(uint64(age / youngest))
	if class >= hazardAges {
		return survivalAges - 2
	}
	from, length := 0.0, float64(youngest)
	if class > 0 {
		from = ages[class*agesPerClass]
		length = from
	}
	return min(survivalAges-2, class*agesPerClass+int((age-from)/length*agesPerClass))
}

// At is the probability at an age, and its standard error, which objects of one stack have in common.
func (s *Survival) At(age time.Duration) (share, err float64) {
	seconds := max(0, age.Seconds())
	share = valueAt(&s.alive, seconds)
	return share, max(0, share-valueAt(&s.fewer, seconds))
}
