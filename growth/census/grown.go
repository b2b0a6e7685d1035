package census

import (
	"cmp"
	"math"
	"slices"
)

// A TypeGrowth is how the objects of one type changed between two censuses.
type TypeGrowth struct {
	Type string
	// Before and After are counts; Bytes is the difference in bytes.
	Before, After, Bytes float64
	// PerMinute is the growth of the count; Low and High bound it with 95% confidence, by the
	// sampling of pools alone.
	PerMinute, Low, High float64
}

// minGrowthPart is the part of the growth of the first type from which on another one is worth a
// line.
const minGrowthPart = 0.01

// Grown returns the types whose objects became more between two censuses of a process, those that
// grew by the most bytes first. A type whose interval includes 0 is left out, and one that grew by
// less than a hundredth of the first. There are none where only one of the two has counted large
// objects.
func Grown(before, after *Result) []TypeGrowth {
	minutes := (after.Elapsed - before.Elapsed).Minutes()
	if minutes <= 0 || before.PID != after.PID || before.Missing != after.Missing {
		return nil
	}

	old := make(map[string]TypeCount, len(before.Types))
	for _, t := range before.Types {
		old[t.Type] = t
	}
	var grown []TypeGrowth
	for _, t := range after.Types {
		was := old[t.Type]
		margin := math.Hypot(t.Margin, was.Margin) / minutes
		rate := (t.Count - was.Count) / minutes
		if rate-margin > 0 {
			grown = append(grown, TypeGrowth{
				Type: t.Type, Before: was.Count, After: t.Count, Bytes: t.Bytes - was.Bytes,
				PerMinute: rate, Low: rate - margin, High: rate + margin,
			})
		}
	}
	slices.SortFunc(grown, func(a, b TypeGrowth) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Type, b.Type))
	})
	if len(grown) == 0 {
		return nil
	}
	least := minGrowthPart * grown[0].Bytes
	return slices.DeleteFunc(grown, func(t TypeGrowth) bool { return t.Bytes < least })
}
