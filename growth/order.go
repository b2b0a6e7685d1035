package growth

import (
	"math"
	"math/rand/v2"
	"slices"
)

// nth puts the k-th smallest value in its place, smaller ones before it and greater ones behind, and returns it. The pivots are
// drawn at random, so that no order of values makes it slow.
func nth(values []float64, k int) float64 {
	low, high := 0, len(values)-1
	for low < high {
		pivot := guess(values[low:high+1], k-low)
		i, j := low, high
		for i <= j {
			for values[i] < pivot {
				i++
			}
			for values[j] > pivot {
				j--
			}
			if i <= j {
				values[i], values[j] = values[j], values[i]
				i, j = i+1, j-1
			}
		}
		switch {
		case k <= j:
			high = j
		case k >= i:
			low = i
		default:
			return values[k]
		}
	}
	return values[k]
}

// guess is one of the values that is likely to be near the k-th smallest.
func guess(values []float64, k int) float64 {
	var some [31]float64
	if len(values) < 10*len(some) {
		return values[rand.IntN(len(values))]
	}
	for i := range some {
		some[i] = values[rand.IntN(len(values))]
	}
	slices.Sort(some[:])
	return some[k*len(some)/len(values)]
}

// quantile is the value below which a share of the values lies, straight between its neighbours. It changes the order of the
// values, of which there must be at least one.
func quantile(values []float64, share float64) float64 {
	k, part := math.Modf(share * float64(len(values)-1))
	below := nth(values, int(k))
	if part == 0 {
		return below
	}
	return below + part*(slices.Min(values[int(k)+1:])-below)
}

// median leaves the values as they are. There must be at least one.
func median(values []float64) float64 {
	return quantile(slices.Clone(values), 0.5)
}
