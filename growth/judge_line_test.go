package growth

import "testing"

// The base leaves out samples at the ends of a ramp, under whose floor it lags: its median does not lie in the middle.
func TestTheFittedLineRunsThroughARamp(t *testing.T) {
	for _, n := range []int{75, 300, 3000} {
		s := simulated([2]float64{0, 1e9}, [2]float64{float64(10 * n), 3e9})
		v := Judge(s, Setting{}, InSeconds())
		for _, at := range []int{0, n / 2, n - 1} {
			line := v.Level + v.Rate*(s.X[at]-v.LevelAt)
			if !near(line, s.Y[at], 0.005*s.Y[at]) {
				t.Errorf("of %d samples, number %d is %.4g, and the line is at %.4g", n, at, s.Y[at], line)
			}
		}
	}
}
