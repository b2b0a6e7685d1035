package estimate

import (
	"math"
	"slices"

	"github.com/allocscope/allocscope/bpf"
)

const (
	// relResidentError is the relative standard error of taking growth of the resident heap for
	// growth of live memory: free memory may stay resident, and live memory may be untouched.
	relResidentError = 0.2
	// minCalibration and maxCalibration bound the correction of the slowdown by the growth of the
	// resident heap. It corrects for bursts that met too many objects by chance, too, and so may be
	// less than 1.
	minCalibration, maxCalibration = 0.25, 500
	// maxResidentReadings bounds the readings that are kept. Every second one is dropped then.
	maxResidentReadings = 512
)

// A residentReading is the resident memory of all heaps at a moment.
type residentReading struct {
	at    uint64 // ns, CLOCK_MONOTONIC
	bytes float64
}

// A calibration is an estimate of the slowdown by an auxiliary total that is known: the growth of
// the resident heap. (In survey sampling this is a calibration, or ratio, estimator.)
type calibration struct {
	slowdown, relError float64 // relError 0: not known
}

// burstTotals are the bytes of the heap that live objects take, headers included.
type burstTotals struct {
	from, to uint64 // the time that the bursts represent; ns, CLOCK_MONOTONIC

	// probed are objects born while every call was probed, or with a mapping of their own; seen are
	// objects born in bursts, and unseen the objects of the pauses before that these represent, as
	// if probes did not slow the program.
	probed, seen, unseen float64
}

// newBurstTotals returns empty totals of the bursts whose objects count by a moment.
func (s *Schedule) newBurstTotals(now uint64) burstTotals {
	var t burstTotals
	for i, p := range s.Periods {
		if !p.Burst || p.To == 0 || s.countedFrom(i, p.To) > now {
			continue
		}
		if t.to == 0 {
			t.from = p.From
			if i > 0 {
				t.from = s.Periods[i-1].To
			}
		}
		t.to = p.To
	}
	return t
}

// add adds a sampled object.
func (t *burstTotals) add(a *bpf.Allocation, estimate Estimate) {
	chunk := float64(max(a.Size, estimate.sizeClass))
	inBurst := weightOf(a)
	switch {
	case a.Born <= t.from:
	case estimate.Burst >= 0:
		t.seen += inBurst * estimate.Alive * chunk
		t.unseen += inBurst * estimate.Alive * chunk * estimate.pausesPerBurst
	case a.Born <= t.to:
		t.probed += estimate.Weight * chunk
	}
}

// addMapped adds an object with a mapping of its own. It is resident as far as the kernel says.
func (t *burstTotals) addMapped(o *MappedObject) {
	if o.Born > t.from && o.Born <= t.to {
		t.probed += float64(o.Resident)
	}
}

// Calibrate compares the objects of a snapshot with the growth of the resident heap, in bytes, and
// corrects the slowdown for later snapshots. now is in ns, CLOCK_MONOTONIC.
func (s *Schedule) Calibrate(e *Estimator, now uint64, residentBytes int64) {
	s.addResident(now, float64(residentBytes))

	t := &e.totals
	start, startKnown := s.residentAt(t.from)
	end, endKnown := s.residentAt(t.to)
	s.calibration = calibration{}
	if !startKnown || !endKnown || !(t.unseen > 0) {
		return
	}

	slowdown := (end - start - t.probed - t.seen) / t.unseen
	if !(slowdown > 0) {
		return // more was freed than allocated, which shows nothing
	}
	slowdown = min(max(minCalibration, slowdown), maxCalibration)
	noise := s.residentNoise(t.from, t.to) / t.unseen
	s.calibration = calibration{slowdown, math.Hypot(relResidentError, noise/slowdown)}
}

// ForgetResident forgets the readings of the resident heap: the heap belongs to other processes
// now.
func (s *Schedule) ForgetResident() {
	s.resident, s.calibration = nil, calibration{}
}

func (s *Schedule) addResident(at uint64, bytes float64) {
	if len(s.resident) == maxResidentReadings {
		kept := s.resident[:0]
		for i := 0; i < len(s.resident); i += 2 {
			kept = append(kept, s.resident[i])
		}
		s.resident = kept
	}
	s.resident = append(s.resident, residentReading{at, bytes})
}

// residentAt interpolates the readings at a moment; false: the first one is later.
func (s *Schedule) residentAt(at uint64) (bytes float64, ok bool) {
	i := slices.IndexFunc(s.resident, func(r residentReading) bool { return r.at >= at })
	switch {
	case i < 0 || i == 0 && s.resident[0].at > at:
		return 0, false
	case i == 0:
		return s.resident[0].bytes, true
	}

	before, after := s.resident[i-1], s.resident[i]
	share := float64(at-before.at) / float64(after.at-before.at)
	return before.bytes + share*(after.bytes-before.bytes), true
}

// residentNoise returns the standard error of a difference of two readings between two moments, in
// bytes. The variance of one is half the mean square of second differences over three, which a
// straight rise does not change.
func (s *Schedule) residentNoise(from, to uint64) float64 {
	var sum, n float64
	for i := 2; i < len(s.resident); i++ {
		a, b, c := s.resident[i-2], s.resident[i-1], s.resident[i]
		if a.at < from || c.at > to {
			continue
		}
		d := a.bytes - 2*b.bytes + c.bytes
		sum += d * d
		n++
	}
	if n == 0 {
		return 0
	}
	return math.Sqrt(2 * sum / n / 6) // d has 6 times the variance of a reading
}

// combined returns the mean of two independent estimates of the slowdown, by the inverse of the
// variances of their logarithms. Its error grows with their disagreement (Birge ratio).
func (c calibration) combined(factor, relError float64) (mean, meanError float64) {
	if relError == 0 {
		return factor, relError
	}
	w, v := 1/(relError*relError), 1/(c.relError*c.relError)
	difference := math.Log(c.slowdown / factor)
	birge := math.Abs(difference) / math.Hypot(relError, c.relError)
	return factor * math.Exp(difference*v/(v+w)), max(1, birge) / math.Sqrt(v+w)
}

// atMost returns the slowdown up to a limit. Its error grows with the excess.
func (c calibration) atMost(limit float64) (slowdown, relError float64) {
	if c.slowdown <= limit {
		return c.slowdown, c.relError
	}
	return limit, math.Hypot(c.relError, math.Log(c.slowdown/limit))
}
