package main

import (
	"fmt"
	"math"
	"slices"
)

// A spread is the median of some numbers and their quartiles.
type spread struct{ low, median, high float64 }

func spreadOf(numbers []float64) spread {
	sorted := slices.Sorted(slices.Values(numbers))
	return spread{quantile(sorted, 0.25), quantile(sorted, 0.5), quantile(sorted, 0.75)}
}

// quantile lies between the two numbers next to it; NaN where there is none.
func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	at := q * float64(len(sorted)-1)
	below := int(at)
	above := min(below+1, len(sorted)-1)
	return sorted[below] + (sorted[above]-sorted[below])*(at-float64(below))
}

// String is empty where nothing was measured.
func (s spread) String() string {
	if math.IsNaN(s.median) {
		return ""
	}
	return fmt.Sprintf("%.3f (%.3f-%.3f)", s.median, s.low, s.high)
}

// paired compares each traced stretch with the mean of the native ones before and after it, of which there is one more.
func paired(native, traced []stretch, of func(stretch) float64) []float64 {
	ratios := make([]float64, len(traced))
	for i := range traced {
		ratios[i] = of(traced[i]) / ((of(native[i]) + of(native[i+1])) / 2)
	}
	return ratios
}

// noise compares each native stretch with the mean of the native ones before and after it: what paired says of no tool at all.
func noise(native []stretch, of func(stretch) float64) []float64 {
	var ratios []float64
	for i := 1; i < len(native)-1; i++ {
		ratios = append(ratios, of(native[i])/((of(native[i-1])+of(native[i+1]))/2))
	}
	return ratios
}
