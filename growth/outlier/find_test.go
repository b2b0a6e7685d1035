package outlier

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func members(growth ...float64) []Member {
	all := make([]Member, len(growth))
	for i, g := range growth {
		all[i].Growth = g
	}
	return all
}

func withError(err float64, all []Member) []Member {
	for i := range all {
		all[i].Error = err
	}
	return all
}

func TestFind(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for name, c := range map[string]struct {
		members []Member
		want    []int
	}{
		"none":                           {nil, nil},
		"one":                            {members(5), nil},
		"two":                            {members(1, 1e9), nil},
		"two, exact":                     {withError(1, members(0, 1e9)), nil},
		"three, near the others":         {members(1, 1.1, 2), nil},
		"three, far from the others":     {members(1, 1.1, 100), []int{2}},
		"four, 6x":                       {members(1, 6, 1.02, 0.98), []int{1}},
		"four, without an outlier":       {members(1, 2, 3, 4), nil},
		"eight, 6x":                      {members(1, 1.1, 0.9, 1.05, 0.95, 1, 6, 1.02), []int{6}},
		"grows less":                     {members(1, 1.1, 0.9, 1.05, 0.95, 1, -6, 1.02), nil},
		"two of eight, the larger first": {members(1, 5, 0.9, 1.05, 0.95, 1, 9, 1.02), []int{6, 1}},
		"equal":                          {members(3, 3, 3, 3, 3), nil},
		"equal but for one":              {members(3, 3, 3, 3, 4), []int{4}},
		"equal within their errors":      {withError(1, members(3, 3, 3, 3, 4)), nil},
		"far beyond the errors":          {withError(0.01, members(3, 3, 3, 3, 4)), []int{4}},
		"its own error is large": {
			append(withError(0.01, members(3, 3.01, 2.99, 3)), Member{4, 1}), nil,
		},
		"no error is known":          {withError(nan, members(3, 3, 3, 3, 100)), nil},
		"its own error is not known": {append(members(3, 3.01, 2.99, 3), Member{4, nan}), nil},
		"unknown growth is left out": {members(1, nan, 1.1, inf, 0.9, 1.05, -inf, 0.95, 1, 6, 1.02), []int{9}},
		"a little more":              {members(10, 10, 10, 10, 10, 11.5), nil},
		"huge numbers":               {members(1e300, 1.01e300, 0.99e300, 1e300, 1.7e308), nil},
	} {
		r := Find(c.members)
		if got := r.Outliers(MaxChance); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v; %+v", name, got, c.want, r)
		}
	}
}

// TestScore has the example by hand: the median of 1, 2, 3, 4, 100 is 3, their distances from it are
// 2, 1, 0, 1, 97, and the median of these is 1.
func TestScore(t *testing.T) {
	r := Find(members(100, 1, 2, 3, 4))
	if r.Median != 3 || r.MAD != 1 {
		t.Errorf("median %g, MAD %g", r.Median, r.MAD)
	}

	for i, want := range []float64{97, -2, -1, 0, 1} {
		// Iglewicz and Hoaglin: 0.6745 of the distance in MADs
		if got := r.Scores[i].Z; math.Abs(got-0.6745*want) > 1e-3*math.Abs(want) {
			t.Errorf("member %d: score %g, want %g", i, got, 0.6745*want)
		}
	}

	r = Find(withError(2, members(100, 1, 2, 3, 4))) // more than 1.4826 of the MAD
	if got := r.Scores[0].Z; got != 97./2 {
		t.Errorf("within errors: score %g, want %g", got, 97./2)
	}
	if got := Find(members(3, 3, 3, 4)).Scores[3]; !math.IsInf(got.Z, 1) || got.Chance != 0 {
		t.Errorf("the only one that differs: %+v", got)
	}
}

// TestManyOutliers has a node or more that leaks: ranks that leak do not hide each other.
func TestManyOutliers(t *testing.T) {
	const draws = 20
	for _, n := range []int{31, 32, 64, 512, 4096} {
		for _, share := range []float64{0.02, 0.08, 0.25} {
			for _, noise := range []string{"normal", "logistic", "Laplace", "t, 5 degrees"} {
				r := rand.New(rand.NewPCG(uint64(n), 3))
				leaks, alarms := int(math.Ceil(share*float64(n))), 0
				for range draws {
					all := draw(r, n, noises[noise])
					for i := range leaks {
						all[i].Growth += 100
					}

					found := Find(all).Outliers(MaxChance)
					slices.Sort(found)
					if len(found) < leaks || found[leaks-1] != leaks-1 {
						t.Fatalf("%d members, %s noise, %d leak: %v", n, noise, leaks, found)
					}
					if len(found) > leaks {
						alarms++
					}
				}
				if alarms > draws/4 {
					t.Errorf("%d members, %s noise, %d leak: more in %d draws", n, noise, leaks,
						alarms)
				}
			}
		}
	}
}

// Where more than half are equal and exact, the scores of the others are infinite.
func TestInfiniteScores(t *testing.T) {
	for _, n := range []int{5, 31, 32, 64} {
		for outliers := 1; outliers < n/2; outliers++ {
			all := make([]Member, n)
			for i := range outliers {
				all[i].Growth = 1000
			}
			r := Find(all)
			if found := r.Outliers(MaxChance); len(found) != outliers {
				t.Errorf("%d of %d: %v, %+v", outliers, n, found, r.Scores[0])
			}
		}
	}
}

// TestMixedErrors has a few members that are known well among many that are not: a lead within the
// errors of these is none, and a leak is one.
func TestMixedErrors(t *testing.T) {
	const draws, leak = 400, 5
	for _, n := range []int{8, 16, 31, 64, 512} {
		r := rand.New(rand.NewPCG(uint64(n), 9))
		hits, alarms := 0, 0
		for range draws {
			all := make([]Member, n)
			for i := range all {
				err := 0.5
				if i%4 == 0 {
					err = 0.01
				}
				all[i] = Member{1 + 0.2*r.NormFloat64() + err*r.NormFloat64(), err}
			}
			if len(Find(all).Outliers(MaxChance)) > 0 {
				alarms++
			}

			all[0].Growth += leak
			if slices.Contains(Find(all).Outliers(MaxChance), 0) {
				hits++
			}
		}
		t.Logf("%3d ranks: found in %d, false alarms in %d of %d", n, hits, alarms, draws)
		if hits < 0.8*draws || alarms > MaxChance*draws {
			t.Errorf("%d members: %d hits, %d false alarms in %d draws", n, hits, alarms, draws)
		}
	}
}

// TestChance compares the chance of the largest score with how often it is met without an outlier.
func TestChance(t *testing.T) {
	for _, n := range []int{3, 4, 5, 8, 16, 31, 32, 64, 512} {
		for _, noise := range []string{"normal", "logistic", "Laplace", "t, 5 degrees"} {
			r := rand.New(rand.NewPCG(uint64(n), 7))
			draws := min(2000, 200_000/n)
			below := make(map[float64]int)
			for range draws {
				chance := 1.0
				for _, s := range Find(draw(r, n, noises[noise])).Scores {
					if s.Z > 0 {
						chance = min(chance, s.Chance)
					}
				}
				for _, limit := range []float64{0.2, 0.05, 0.01} {
					if chance <= limit {
						below[limit]++
					}
				}
			}
			for limit, count := range below {
				rate := float64(count) / float64(draws)
				// The worst noise here has a Laplace tail; it may double the chance.
				bound := 2*limit + 4*math.Sqrt(limit/float64(draws))
				if rate > bound {
					t.Errorf("%d members, %s noise: chance %g or less in %g of the draws",
						n, noise, limit, rate)
				}
			}
		}
	}
}

// TestRates are the numbers of docs/internals/outlier.md: hits of each leak, in MADs, and false
// alarms.
func TestRates(t *testing.T) {
	const draws = 100
	const maxAlarms = 4*draws*MaxChance + 4 // 5% of four leaks, and their standard error
	ranks, kinds := []int{8, 64, 4096}, []string{"normal", "logistic", "Laplace", "t, 5 degrees"}
	if *more {
		ranks = []int{8, 31, 32, 64, 512, 1024, 4096}
		kinds = append(kinds, "t, 3 degrees", "lognormal")
	}
	leastHits := map[string]map[int]int{ // of 100, at 10 MADs
		"normal":       {8: 40, 64: 80, 4096: 85},
		"logistic":     {8: 35, 64: 40, 4096: 20},
		"Laplace":      {8: 30, 64: 20},
		"t, 5 degrees": {8: 30, 64: 35},
	}

	for _, n := range ranks {
		for _, noise := range kinds {
			hits, alarms := make(map[float64]int), 0
			for _, leak := range []float64{1, 3, 10, 30} {
				r := rand.New(rand.NewPCG(uint64(n), uint64(leak)))
				for range draws {
					all := draw(r, n, noises[noise])
					at := r.IntN(n)
					all[at].Growth += leak * mads[noise]
					found := Find(all).Outliers(MaxChance)
					if i := slices.Index(found, at); i >= 0 {
						hits[leak]++
						found = slices.Delete(found, i, i+1)
					}
					if len(found) > 0 {
						alarms++
					}
				}
			}
			t.Logf("| %4d | %-12s | %3d | %3d | %3d | %3d | %d of %d |",
				n, noise, hits[1], hits[3], hits[10], hits[30], alarms, 4*draws)
			if *more {
				continue
			}
			if hits[10] < leastHits[noise][n] || hits[30] < 95 || alarms > maxAlarms {
				t.Errorf("%d members, %s noise: hits %v, %d false alarms", n, noise, hits, alarms)
			}
		}
	}
}

// TestTwice are the numbers of docs/internals/outlier.md about two windows in a row: hits of a leak of
// 10 MADs, and false alarms, where a part of the noise stays in both.
func TestTwice(t *testing.T) {
	const draws = 100
	leastHits := map[string]map[int]int{ // where no noise stays
		"normal":       {8: 70, 64: 90, 4096: 95},
		"Laplace":      {8: 60, 64: 60, 4096: 30},
		"t, 5 degrees": {8: 70, 64: 85, 4096: 50},
	}

	for noise, least := range leastHits {
		for n, hitsWanted := range least {
			for _, stays := range []float64{0, 0.5, 1} {
				hits, alarms := 0, 0
				r := rand.New(rand.NewPCG(uint64(n), uint64(10*stays)))
				for range draws {
					own := draw(r, n, noises[noise])
					earlier, latest := draw(r, n, noises[noise]), draw(r, n, noises[noise])
					at := r.IntN(n)
					for _, window := range [][]Member{earlier, latest} {
						for i := range window {
							window[i].Growth = stays*own[i].Growth + (1-stays)*window[i].Growth
						}
						window[at].Growth += 10 * mads[noise]
					}

					found := FindTwice(earlier, latest).Outliers(MaxChance)
					if i := slices.Index(found, at); i >= 0 {
						hits++
						found = slices.Delete(found, i, i+1)
					}
					if len(found) > 0 {
						alarms++
					}
				}
				t.Logf("| %4d | %-12s | %g | %3d | %d of %d |", n, noise, stays, hits, alarms, draws)
				const maxAlarms = draws*MaxChance + 4 // 5%, and two standard errors
				if stays == 0 && hits < hitsWanted || alarms > maxAlarms {
					t.Errorf("%d members, %s noise, %g stays: %d hits, %d false alarms", n, noise, stays,
						hits, alarms)
				}
			}
		}
	}
}

// TestTwiceOpposite has a member that shrinks in the first window and grows in the second, and counts the
// second alone.
func TestTwiceOpposite(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	earlier, latest := draw(r, 64, noises["normal"]), draw(r, 64, noises["normal"])
	earlier[5].Growth, latest[5].Growth = -10, 10
	once, twice := Find(latest).Scores[5].Chance, FindTwice(earlier, latest).Scores[5].Chance
	if twice != min(1, 2*once) {
		t.Errorf("a chance of %v, of the second window %v", twice, once)
	}
}

// TestTwiceLate finds a leak that began in the latest window by that alone.
func TestTwiceLate(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	earlier, latest := draw(r, 64, noises["normal"]), draw(r, 64, noises["normal"])
	latest[5].Growth += 30
	earlier[7].Growth, earlier[9].Growth = math.NaN(), math.Inf(1)
	if got := FindTwice(earlier, latest).Outliers(MaxChance); !slices.Equal(got, []int{5}) {
		t.Errorf("%v", got)
	}
}

// Scores depend neither on the order nor on the unit nor on a part that all share.
func FuzzFind(f *testing.F) {
	f.Add(uint64(1), 8, 2.0, 100.0)
	f.Add(uint64(2), 40, 0.01, -3.0)
	f.Fuzz(func(t *testing.T, seed uint64, n int, unit, shift float64) {
		if n < 0 || n > 200 || !(unit > 1e-3) || !(unit < 1e3) || !(math.Abs(shift) < 1e3) {
			return
		}
		r := rand.New(rand.NewPCG(seed, 0))
		all := draw(r, n, noises["Laplace"])
		order := r.Perm(n)
		other := make([]Member, n)
		for i, at := range order {
			all[i].Error = r.Float64()
			other[at] = Member{all[i].Growth*unit + shift, all[i].Error * unit}
		}

		one, two := Find(all), Find(other)
		for i, at := range order {
			a, b := one.Scores[i], two.Scores[at]
			if math.Abs(a.Z-b.Z) > 1e-6*(1+math.Abs(a.Z)) || math.Abs(a.Chance-b.Chance) > 1e-5 {
				t.Errorf("%+v becomes %+v", a, b)
			}
			if !(a.Chance >= 0 && a.Chance <= 1) {
				t.Errorf("chance %g", a.Chance)
			}
		}
	})
}
