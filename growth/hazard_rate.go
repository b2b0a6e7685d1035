package growth

import (
	"math"
	"math/bits"
	"time"

	"gonum.org/v1/gonum/mathext"
)

// A HazardRate is the rate at which the objects of a stack die, by age. It estimates how many died
// unseen between bursts, where an object is found dead from outside unless another of its size
// class reuses the chunk. Within a burst every death is seen, also one followed by reuse. So the
// excess of the rate within bursts over the rate found from outside is the rate of unseen deaths.
// The zero value has no observations.
type HazardRate struct{ ages [hazardAges]DeathCounts }

// A DeathCounts is the observed lifetime and the deaths of objects.
type DeathCounts struct {
	// ExposureSeconds is the lifetime observed in bursts, without the burst of birth, in
	// object-seconds. Deaths is the number of objects freed in it.
	ExposureSeconds float64
	Deaths          int
	// TrackedSeconds is the lifetime tracked from outside, in object-seconds, and FoundDead the
	// number of objects found dead. The time between two checks counts at the age of the first.
	TrackedSeconds float64
	FoundDead      int
}

// The classes of age double: up to 8 s, up to 16 s, and so on to more than a day.
const (
	hazardAges        = 15
	firstClassSeconds = 8
)

// At returns the counts of the class of an age.
func (h *HazardRate) At(age time.Duration) *DeathCounts { return &h.ages[ageClass(age)] }

func ageClass(age time.Duration) int {
	first := uint64(max(0, age) / (firstClassSeconds * time.Second))
	return min(bits.Len64(first), hazardAges-1)
}

// Mature sums the counts of all classes from the class of an age on.
func (h *HazardRate) Mature(age time.Duration) DeathCounts {
	var sum DeathCounts
	for i := ageClass(age); i < hazardAges; i++ {
		sum.add(&h.ages[i])
	}
	return sum
}

// Add adds the counts of other objects, or of another time.
func (h *HazardRate) Add(more *HazardRate) {
	for i := range h.ages {
		h.ages[i].add(&more.ages[i])
	}
}

func (f *DeathCounts) add(more *DeathCounts) {
	f.ExposureSeconds += more.ExposureSeconds
	f.Deaths += more.Deaths
	f.TrackedSeconds += more.TrackedSeconds
	f.FoundDead += more.FoundDead
}

// UnseenDeathsMargin returns by how much the cumulative hazard of unseen deaths up to an age in
// seconds may exceed its estimate, except with probability risk. It adds the margins of the
// classes, from the upper limits of their Poisson counts, in quadrature. It is infinite where a
// class has no exposure.
func (h *HazardRate) UnseenDeathsMargin(age, risk float64) (margin float64) {
	from, to := 0.0, float64(firstClassSeconds)
	for i := 0; i < hazardAges && from < age; i++ {
		f := &h.ages[i]
		if !(f.ExposureSeconds > 0) {
			return math.Inf(1)
		}
		deaths := float64(max(0, f.Deaths))
		upper := mathext.GammaIncRegInv(deaths+1, 1-risk)
		margin = math.Hypot(margin, (min(age, to)-from)*(upper-deaths)/f.ExposureSeconds)
		from, to = to, 2*to
	}
	return margin
}

// foundRate is the rate of deaths found from outside, per object-second.
func (f *DeathCounts) foundRate() float64 {
	if !(f.TrackedSeconds > 0) {
		return 0
	}
	return float64(f.FoundDead) / f.TrackedSeconds
}

// unseenRate is the rate of deaths that bursts alone reveal, per object-second, with the observed
// deaths scaled by deathScale. It is unknown without exposure.
func (f *DeathCounts) unseenRate(deathScale float64) (rate float64, known bool) {
	if !(f.ExposureSeconds > 0) {
		return 0, false
	}
	return max(0, deathScale*float64(f.Deaths)/f.ExposureSeconds-f.foundRate()), true
}
