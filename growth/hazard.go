package growth

import (
	"math"
	"math/bits"
	"time"

	"gonum.org/v1/gonum/mathext"
)

// A Hazard tells how many of the objects of a stack may have died unseen, by their age. An object that died between two windows
// is found dead from outside, unless another of the same size class has taken its place by then. Within a window each death is
// seen, that of the other one too. So what dies more often within windows than between them dies unseen. The zero value is that
// of nothing.
type Hazard struct{ ages [hazardAges]Fate }

// A Fate is what was seen of objects.
type Fate struct {
	// Exposure is how long they were watched in windows, but for those of their birth, in object-seconds, and Deaths how many were
	// freed meanwhile.
	Exposure float64
	Deaths   int
	// Followed is how long they were followed from outside, in object-seconds, and Found how many were found dead by that. What
	// comes between two looks counts at the age of the first.
	Followed float64
	Found    int
}

// Ages are told apart by their powers of two: up to 8 s, up to 16 s, and so on to a day.
const (
	hazardAges = 15
	youngest   = 8 // seconds
)

// At is where what is seen of objects of an age counts.
func (h *Hazard) At(age time.Duration) *Fate { return &h.ages[ageClass(age)] }

func ageClass(age time.Duration) int {
	return min(bits.Len64(uint64(max(0, age)/(youngest*time.Second))), hazardAges-1)
}

// Mature is what was seen of all objects of at least an age.
func (h *Hazard) Mature(age time.Duration) Fate {
	var sum Fate
	for _, f := range h.ages[ageClass(age):] {
		sum.Exposure += f.Exposure
		sum.Deaths += f.Deaths
		sum.Followed += f.Followed
		sum.Found += f.Found
	}
	return sum
}

// Add adds what was seen of other objects, or at another time.
func (h *Hazard) Add(more *Hazard) {
	for i := range h.ages {
		to, from := &h.ages[i], &more.ages[i]
		to.Exposure += from.Exposure
		to.Deaths += from.Deaths
		to.Followed += from.Followed
		to.Found += from.Found
	}
}

// unsure is how many more times than it was seen to an object may have died unseen up to an age, in seconds, but for a risk: by the limit
// of Poisson counts at each age, combined as in stackChange.low. Infinite where one age was not watched.
func (h *Hazard) unsure(age, risk float64) (times float64) {
	from, to := 0.0, float64(youngest)
	for i := 0; i < hazardAges && from < age; i++ {
		f := &h.ages[i]
		if !(f.Exposure > 0) {
			return math.Inf(1)
		}
		deaths := float64(max(0, f.Deaths))
		times = math.Hypot(times, (min(age, to)-from)*(mathext.GammaIncRegInv(deaths+1, 1-risk)-deaths)/f.Exposure)
		from, to = to, 2*to
	}
	return times
}

// found is the rate of deaths that are found from outside, for each second of an object.
func (f *Fate) found() float64 {
	if !(f.Followed > 0) {
		return 0
	}
	return float64(f.Found) / f.Followed
}

// unseen is the rate of those that are seen in windows alone, had so many times as many been; not known without exposure.
func (f *Fate) unseen(times float64) (rate float64, known bool) {
	if !(f.Exposure > 0) {
		return 0, false
	}
	return max(0, times*float64(f.Deaths)/f.Exposure-f.found()), true
}
