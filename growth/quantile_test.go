package growth

import (
	"slices"
	"testing"
)

func TestQuantile(t *testing.T) {
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
