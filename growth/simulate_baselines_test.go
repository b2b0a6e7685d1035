package growth

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// What others do to tell a leak from a series, with the thresholds that they use.

// A baseline says whether a series leaks.
type baseline struct {
	name  string
	leaks func(Series) bool
}

var baselines = []baseline{
	{"average", averageGrows},
	{"OLS", trendGrows},
	{"minima", minimaGrow},
	{"MK", func(s Series) bool { return mannKendall(s.Y, 1) }},
	{"MK-HR", func(s Series) bool { return mannKendall(s.Y, hamedRao(s.Y)) }},
	{"OLS-2nd", func(s Series) bool { return trendGrows(secondHalf(s)) }},
	{"MK-HR-2nd", func(s Series) bool { y := secondHalf(s).Y; return mannKendall(y, hamedRao(y)) }},
}

func secondHalf(s Series) Series {
	from, _ := slices.BinarySearch(s.X, (s.X[0]+s.end())/2)
	return Series{X: s.X[from:], Y: s.Y[from:]}
}

// averageGrows by more than 75 MB per minute from the first sample to the last.
func averageGrows(s Series) bool {
	return (s.Y[len(s.Y)-1]-s.Y[0])/(s.end()-s.X[0]) > 75e6/60
}

// minimaGrow by more than 100 MB from the first ten minutes to the last, or thirds of what is shorter than half an hour.
func minimaGrow(s Series) bool {
	window := min(600, (s.end()-s.X[0])/3)
	first, last := math.Inf(1), math.Inf(1)
	for i, at := range s.X {
		if at <= s.X[0]+window {
			first = min(first, s.Y[i])
		}
		if at >= s.end()-window {
			last = min(last, s.Y[i])
		}
	}
	return last-first > 100e6
}

// trendGrows by more than 0.01 % of the mean per minute, least squares with p < 0.005 as if samples were independent.
func trendGrows(s Series) bool {
	a, b := stat.LinearRegression(s.X, s.Y, nil, false)
	n := float64(len(s.X))
	var squares float64
	for i, at := range s.X {
		rest := s.Y[i] - a - b*at
		squares += rest * rest
	}
	deviation := math.Sqrt(squares / (n - 2) / (stat.Variance(s.X, nil) * (n - 1)))
	student := distuv.StudentsT{Mu: 0, Sigma: 1, Nu: n - 2}
	return b > student.Quantile(0.995)*deviation && b > 1e-4/60*stat.Mean(s.Y, nil)
}

// mannKendall finds a rise with p < 0.01 (two-sided), the variance being so many times that of independent samples.
func mannKendall(y []float64, inflation float64) bool {
	y = thin(y)
	n := float64(len(y))
	var rises float64
	for i := range y {
		for _, later := range y[i+1:] {
			rises += float64(cmp.Compare(later, y[i]))
		}
	}
	variance := n * (n - 1) * (2*n + 5)
	for _, tied := range tiedValues(y) {
		variance -= tied * (tied - 1) * (2*tied + 5)
	}
	return rises-1 > distuv.UnitNormal.Quantile(0.995)*math.Sqrt(variance/18*inflation)
}

// hamedRao is by how much correlated ranks of what the trend leaves inflate the variance (Hamed and Rao 1998).
func hamedRao(y []float64) float64 {
	y = thin(y)
	x := count(len(y))
	slope := senSlope(y)
	rest := make([]float64, len(y))
	for i := range y {
		rest[i] = y[i] - slope*x[i]
	}
	r, n, sum := meanRanks(rest), float64(len(y)), 0.0
	for lag := 1; lag < len(y)-3; lag++ {
		rho := stat.Correlation(r[lag:], r[:len(r)-lag], nil)
		left := n - float64(lag)
		if math.Abs(rho) > 1.96/math.Sqrt(n) {
			sum += left * (left - 1) * (left - 2) * rho
		}
	}
	return max(0.1, 1+2/(n*(n-1)*(n-2))*sum)
}

// senSlope is the median of the slopes between all pairs.
func senSlope(y []float64) float64 {
	var slopes []float64
	for i := range y {
		for j := i + 1; j < len(y); j++ {
			slopes = append(slopes, (y[j]-y[i])/float64(j-i))
		}
	}
	slices.Sort(slopes)
	return slopes[len(slopes)/2]
}

// thin takes every nth value, so that at most 200 are left: pairs are many.
func thin(y []float64) []float64 {
	const most = 200
	every := (len(y) + most - 1) / most
	var out []float64
	for i := 0; i < len(y); i += every {
		out = append(out, y[i])
	}
	return out
}

// meanRanks of values, 0 the lowest; equal ones share their mean.
func meanRanks(y []float64) []float64 {
	sorted := slices.Sorted(slices.Values(y))
	out := make([]float64, len(y))
	for i, value := range y {
		first, _ := slices.BinarySearch(sorted, value)
		end, _ := slices.BinarySearchFunc(sorted, value, func(a, b float64) int {
			if a <= b {
				return -1
			}
			return 1
		})
		out[i] = float64(first+end-1) / 2
	}
	return out
}

// tiedValues are how many values are equal to each other, for each value.
func tiedValues(y []float64) []float64 {
	counts := map[float64]float64{}
	for _, value := range y {
		counts[value]++
	}
	var out []float64
	for _, count := range counts {
		out = append(out, count)
	}
	return out
}

// Mann-Kendall keeps what it promises where samples are independent, and finds a trend. Corrected by correlations that are
// estimated, and are none here, it is wrong more often.
func TestMannKendallIsRightOnIndependentNoise(t *testing.T) {
	const runs = 1000
	random := rand.New(rand.NewPCG(9, 9))
	var alarms, corrected, found int
	for range runs {
		noise, trend := make([]float64, 60), make([]float64, 60)
		for i := range noise {
			noise[i] = random.NormFloat64()
			trend[i] = noise[i] + 0.1*float64(i)
		}
		alarms += one(mannKendall(noise, 1))
		corrected += one(mannKendall(noise, hamedRao(noise)))
		found += one(mannKendall(trend, hamedRao(trend)))
	}
	if alarms > runs*1/100 || corrected > runs*5/100 || found < runs*99/100 {
		t.Errorf("%d alarms, %d corrected, %d trends found in %d runs", alarms, corrected, found, runs)
	}
}

func one(so bool) int {
	if so {
		return 1
	}
	return 0
}
