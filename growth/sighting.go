package growth

import (
	"time"

	"gonum.org/v1/gonum/mathext"
)

// A Watch is how a snapshot knows of heap memory. The zero value: every call of the allocator was watched all the time.
type Watch struct {
	// Windows during which calls were watched; 0: all the time. Open is how long they lasted together.
	Windows int
	Open    time.Duration
	// Lag is how old an object must be to count: what is younger than that cannot be told from what is about to be freed. An object's
	// birth is reported as so much later.
	Lag time.Duration
	// Since the windows began, from the start of the trace: the time before was watched as a whole.
	Since time.Duration
	// Factor is the mean, over the windows, of the time that one stands for in parts of its length.
	Factor float64
	// Blind says why it cannot be seen from outside whether an object is alive; empty: it can.
	Blind string
}

// settled is the first moment from which on what a snapshot tells of growth was gained in windows alone: what was born before
// them counted at once, and what is born in them counts later by Lag.
func (w *Watch) settled() time.Duration {
	if w.Windows == 0 {
		return 0
	}
	return w.Since + w.Lag
}

// A Sighting is the evidence for what a Holding has, where the heap was watched in windows.
type Sighting struct {
	// Windows in which what is alive was born.
	Windows int
	// Hazard of the stack.
	Hazard Hazard
	// Printed is how many of the objects have a fingerprint of what was in them when their window had ended, and Same how many of
	// these have the same still. Differ is the probability that two of them differ in it.
	Printed, Same int
	Differ        float64
	// Dispersion is what Dispersion gave, which is part of Variance; 0: 1.
	Dispersion float64
	// SizeClass is that of the allocator's chunks which has most of the bytes, in bytes; Others of the class can take the place
	// of one another unseen.
	SizeClass uint64
}

// stays tells whether what is in the objects proves that most are those of their window.
func (s *Sighting) stays() bool { return s.stay(oneInTwenty) >= believedSame }

// stay is the share of the objects that are at least those of their window, but for a risk, by what is in them: the limit of
// Clopper and Pearson. Who takes the place of another goes unnoticed where both look the same.
func (s *Sighting) stay(risk float64) float64 {
	if s.Same <= 0 || s.Same > s.Printed || !(s.Differ > 0) {
		return 0
	}
	same := mathext.InvRegIncBeta(float64(s.Same), float64(s.Printed-s.Same+1), risk)
	return max(0, 1-(1-same)/min(1, s.Differ))
}

// dispersion in Variance; of what was watched all the time there is none.
func (s *Sighting) dispersion() float64 {
	if s == nil {
		return 1
	}
	return max(1, s.Dispersion)
}
