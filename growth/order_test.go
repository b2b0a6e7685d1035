package growth

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestTheNthValueIsThatOfTheSortedOnes(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	for _, distinct := range []int{1, 2, 10, 1 << 40} {
		for _, n := range []int{1, 2, 3, 10, 309, 310, 5000} {
			values := make([]float64, n)
			for i := range values {
				values[i] = float64(random.IntN(distinct))
			}
			sorted := slices.Sorted(slices.Values(values))
			for _, k := range []int{0, n / 4, n / 2, n - 1} {
				got := slices.Clone(values)
				if x := nth(got, k); x != sorted[k] || slices.Max(got[:k+1]) > x || slices.Min(got[k:]) < x {
					t.Fatalf("%d values, %d distinct: the %d-th is %v, want %v", n, distinct, k, x, sorted[k])
				}
				if slices.Sort(got); !slices.Equal(got, sorted) {
					t.Fatalf("%d values, %d distinct: values were lost", n, distinct)
				}
			}
		}
	}
}

func TestAQuantileLiesBetweenTwoValues(t *testing.T) {
	for _, c := range []struct {
		values      []float64
		share, want float64
	}{
		{[]float64{7}, 0.5, 7},
		{[]float64{4, 1}, 0.5, 2.5},
		{[]float64{4, 1}, 0.25, 1.75},
		{[]float64{3, 1, 2}, 0.5, 2},
		{[]float64{5, 4, 3, 2, 1}, 0.95, 4.8},
		{[]float64{5, 4, 3, 2, 1}, 1, 5},
	} {
		if got := quantile(slices.Clone(c.values), c.share); !near(got, c.want, 1e-12) {
			t.Errorf("the %v quantile of %v is %v, want %v", c.share, c.values, got, c.want)
		}
	}
}
