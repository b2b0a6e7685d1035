package growth

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// A Key identifies a holding within a snapshot. Stack IDs of several processes may be equal: the
// stack of lost stacks has ID 0 in each.
type Key struct {
	Stack uint64
	PID   int
	Kind  Kind
	GPU   string
}

// KeyOf returns the key of a stack's memory.
func KeyOf(stack *Stack, kind Kind, gpu string) Key {
	return Key{Stack: stack.ID, PID: stack.PID, Kind: kind, GPU: gpu}
}

// Key of the holding.
func (h *Holding) Key() Key { return KeyOf(h.Stack, h.Kind, h.GPU) }

// Between returns the growth from one snapshot of a trace to a later one: per stack, kind and GPU,
// the memory at the end less the memory at the start. Stacks that hold less than before are
// negative; stacks without a difference are left out. For GPU memory, pass both snapshots' OnGPUs.
//
// Objects alive at both ends cancel exactly, so only turnover carries a sampling error. Variance is
// the variance of the difference; ResidentVariance is left out. The result is sorted by
// SortByInuse.
func Between(start, end *Snapshot) []Holding {
	sums := make(map[Key]Holding, len(end.Holdings))
	for _, h := range end.Holdings {
		sums[h.Key()] = h
	}

	startBin := LastBin(end.Bins, start.Elapsed)
	for _, h := range start.Holdings {
		sum, ok := sums[h.Key()]
		if !ok {
			sum = Holding{Stack: h.Stack, Kind: h.Kind, GPU: h.GPU}
		}
		h.InuseBytes = h.RescaledInuse(&start.Heap, &end.Heap)
		t := TurnoverOf(&h, &sum, startBin)
		sum.Variance = t.Freed*h.Variance + t.Born*sum.Variance
		sum.subtract(&h)
		sums[h.Key()] = sum
	}

	grown := make([]Holding, 0, len(sums))
	for _, h := range sums {
		h.Births, h.ResidentVariance = nil, 0
		if !h.isZero() {
			grown = append(grown, h)
		}
	}
	SortByInuse(grown)

	return grown
}

// subtract takes away counts and bytes, but no variances.
func (h *Holding) subtract(other *Holding) {
	h.InuseObjects -= other.InuseObjects
	h.InuseBytes -= other.InuseBytes
	h.ResidentBytes -= other.ResidentBytes
	h.SwappedBytes -= other.SwappedBytes
	h.SharedBytes -= other.SharedBytes
	h.GPUBytes -= other.GPUBytes
	h.AllocObjects -= other.AllocObjects
	h.AllocBytes -= other.AllocBytes
	h.Samples -= other.Samples
}

// isZero is true where no more than rounding is left.
func (h *Holding) isZero() bool {
	return h.InuseBytes == 0 && h.ResidentBytes == 0 && h.SwappedBytes == 0 &&
		h.GPUBytes == 0 && math.Round(h.InuseObjects) == 0 &&
		math.Round(h.AllocObjects) == 0 && math.Round(h.AllocBytes) == 0
}

// SortByInuse sorts by InuseBytes, largest first, then by stack ID and kind.
func SortByInuse(holdings []Holding) {
	slices.SortFunc(holdings, func(a, b Holding) int {
		return cmp.Or(
			cmp.Compare(b.InuseBytes, a.InuseBytes),
			cmp.Compare(a.Stack.ID, b.Stack.ID),
			cmp.Compare(a.Kind, b.Kind),
		)
	})
}

// LastBin returns the index of the bin whose end is nearest to a moment. It returns -1 where the
// start of the trace, before all bins, is nearer.
func LastBin(ends []time.Duration, moment time.Duration) int {
	best, distance := -1, moment.Abs()
	for i, end := range ends {
		if (end - moment).Abs() <= distance {
			best, distance = i, (end - moment).Abs()
		}
	}
	return best
}

// A Turnover is the fractions of the end's and the start's variance that remain in their
// difference. Samples that are alive at both ends cancel: of the end the objects born since remain,
// of the start those freed since.
type Turnover struct{ Born, Freed float64 }

// TurnoverOf returns the turnover of one stack. startBin is the last bin of births up to the start.
// Without births, all variance remains.
func TurnoverOf(start, end *Holding, startBin int) Turnover {
	if end.Variance <= 0 || len(end.Births) == 0 {
		return Turnover{Born: 1, Freed: 1}
	}

	var older, younger float64 // variances
	for _, b := range end.Births {
		if b.Bin <= startBin {
			older += b.Variance
		} else {
			younger += b.Variance
		}
	}

	return Turnover{Born: Share(younger, end.Variance), Freed: 1 - Share(older, start.Variance)}
}

// Share returns part/whole, limited to the range from 0 to 1. A part of 0 or less has no share.
func Share(part, whole float64) float64 {
	if part <= 0 {
		return 0
	}
	return min(1, part/max(0, whole))
}
