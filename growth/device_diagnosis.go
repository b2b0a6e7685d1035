package growth

import "math"

// A Diagnosis says where the growth of device memory is, by the curves alone.
type Diagnosis string

// The diagnoses, as files write them.
const (
	DiagnosisTensors       Diagnosis = "retained-tensors"        // torch's blocks grow
	DiagnosisFragmentation Diagnosis = "fragmentation-or-graphs" // torch's segments grow, and more than its blocks
	DiagnosisDriver        Diagnosis = "other-allocations"       // what the driver hands out grows, and more than torch's segments
	DiagnosisContext       Diagnosis = "context-or-modules"      // what the driver counts grows, and more than what was seen to be handed out
	DiagnosisWarmup        Diagnosis = "warm-up"                 // what grows slows down
	DiagnosisNone          Diagnosis = "no-growth"
	DiagnosisUnknown       Diagnosis = "too-early" // nothing grows for certain, and something may
)

// diagnose goes from torch's blocks outwards: each curve contains the one before, and of what it grows by, that one's growth is
// explained. Of the parts the largest is the diagnosis.
func diagnose(curves []DeviceCurve) Diagnosis {
	var most, inner float64
	found := DiagnosisNone
	for _, layer := range []struct {
		name CurveName
		says Diagnosis
	}{
		{CurveAllocated, DiagnosisTensors}, {CurveReserved, DiagnosisFragmentation}, {CurveDriver, DiagnosisDriver}, {CurveUsed, DiagnosisContext},
	} {
		curve := curveOf(curves, layer.name)
		if curve == nil {
			continue
		}
		if curve.Class.Grows() && curve.Rate-inner > most {
			most, found = curve.Rate-inner, layer.says
		}
		if curve.Class.Grows() || curve.Class == ClassSaturating {
			inner = max(inner, curve.Rate)
		}
	}
	if found == DiagnosisNone {
		return withoutGrowth(curves)
	}
	return found
}

// withoutGrowth is the diagnosis where nothing grows for certain.
func withoutGrowth(curves []DeviceCurve) Diagnosis {
	found := DiagnosisNone
	for i := range curves {
		switch curves[i].Class {
		case ClassSaturating:
			return DiagnosisWarmup
		case ClassTooShort:
			found = DiagnosisUnknown
		}
	}
	return found
}

// kind of what was handed out that explains the growth.
func (d Diagnosis) kind() Kind {
	switch d {
	case DiagnosisFragmentation, DiagnosisDriver, DiagnosisContext:
		return KindCudaSegment
	}
	return KindCudaBlock
}

// Severity orders classes: what must not be overlooked is the greatest.
func (c Class) Severity() int {
	switch c {
	case ClassLeak:
		return 5
	case ClassSuspected:
		return 4
	case ClassGrowing:
		return 3
	case ClassSaturating:
		return 2
	case ClassTooShort:
		return 1
	}
	return 0
}

// Grows is true of growth that does not slow down.
func (c Class) Grows() bool { return c.Severity() >= ClassGrowing.Severity() }

// perMinute is a rate in MiB a minute for words, 0 where it is not known.
func perMinute(rate float64) float64 {
	if math.IsNaN(rate) {
		return 0
	}
	return rate * 60 / (1 << 20)
}
