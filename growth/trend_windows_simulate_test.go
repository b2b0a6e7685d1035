package growth

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

// A judgedSite is one simulated site: what it truly grew, in bytes, and how it was judged.
type judgedSite struct {
	simulatedSite
	truth float64
	StackTrend
}

// judged judges the sites as one process.
func (s windowScene) judged(random *rand.Rand, sites []simulatedSite) []judgedSite {
	var judged []judgedSite
	for _, t := range JudgeStacks(s.snapshots(random, sites), Window{seconds(s.from()), seconds(s.until)}, math.NaN()) {
		if t.Kind != KindHeap {
			continue
		}
		// The snapshot nearest to from, from which on all is from windows.
		from := math.Ceil(s.maturity()/s.every()) * s.every()
		from = max(from, math.Round(s.from()/s.every())*s.every())
		site := sites[t.Stack.ID-1]
		truth := site.held(s.until-s.maturity()) - site.held(from-s.maturity())
		judged = append(judged, judgedSite{site, truth, t})
	}
	return judged
}

// leaksIn are so many runs of all leaking sites.
func (s windowScene) leaksIn(random *rand.Rand, runs int, rate float64) (judged []judgedSite) {
	for range runs {
		judged = append(judged, s.judged(random, leakingSites(random, rate))...)
	}
	return judged
}

// misses are the shares of the intervals that lie above the truth and below it.
func misses(judged []judgedSite) (above, below float64) {
	for _, s := range judged {
		above += float64(one(s.truth < s.Low-1)) / float64(len(judged))
		below += float64(one(s.truth > s.High+1)) / float64(len(judged))
	}
	return above, below
}

func TestTheIntervalHoldsTheTrueGrowthWhereWindowsAreWatched(t *testing.T) {
	var all []judgedSite
	for i, duty := range []float64{0.01, 0.02, 0.05} {
		random := rand.New(rand.NewPCG(21, uint64(i)))
		all = append(all, windowScene{duty: duty, until: 1200}.leaksIn(random, 30, logUniform(random, 50e3, 1e6))...)
	}
	above, below := misses(all)
	t.Logf("of %d intervals, %.1f %% lie above the truth, %.1f %% below", len(all), 100*above, 100*below)
	if len(all) < 300 || above+below > 0.09 {
		t.Errorf("of %d intervals, %.3f lie above the truth, %.3f below", len(all), above, below)
	}
}

func TestALeakIsFoundInWindowsAndMeasured(t *testing.T) {
	random := rand.New(rand.NewPCG(22, 1))
	var all, found, far int
	for _, s := range (windowScene{duty: 0.05, until: 600, pages: true}).leaksIn(random, 20, 1e6) {
		if strings.Contains(s.name, "bursts") {
			continue // many windows meet none
		}
		all++
		found += one(s.Trend == TrendAccumulating)
		far += one(math.Abs(s.Growth/s.truth-1) > 0.25)
	}
	t.Logf("of %d leaks %d are found, %d are off by more than a quarter", all, found, far)
	if all != 60 || found < 56 || far > 6 {
		t.Errorf("of %d leaks of 1 MB/s %d are found in ten minutes at 5 %%, %d are off by more than a quarter", all, found, far)
	}
}

// What is held for half as long as the trace or longer looks like growth, with or without windows.
func TestNoCacheOfSteadySizeAccumulatesInWindows(t *testing.T) {
	for i, duty := range []float64{0.01, 0.02, 0.05} {
		random := rand.New(rand.NewPCG(23, uint64(i)))
		counts := make(map[Trend]int)
		for range 6 {
			rate := logUniform(random, 10e3, 2e6)
			for _, s := range (windowScene{duty: duty, until: 3600}).judged(random, steadySites(random, rate)) {
				counts[s.Trend]++
				if s.Trend == TrendAccumulating && s.name != "cache of 30 min" {
					t.Errorf("%v of the time watched: a %q of %.0f bytes/s accumulates: %+v", duty, s.name, rate, s.StackTrend)
				}
			}
		}
		t.Logf("%v of the time watched: %v", duty, counts)
	}
}

func TestWhatTheHeapHasNotGrownByIsNotSaidToAccumulate(t *testing.T) {
	random := rand.New(rand.NewPCG(24, 1))
	doubts := make(map[Doubt]int)
	for range 10 {
		long := steadySites(random, 1e6)[4]
		for _, s := range (windowScene{duty: 0.05, until: 3600, pages: true}).judged(random, []simulatedSite{long}) {
			doubts[s.Doubt]++
			if s.Trend == TrendAccumulating {
				t.Errorf("%s: %+v", s.name, s.StackTrend)
			}
		}
	}
	if doubts[DoubtHeap] == 0 {
		t.Errorf("no growth was doubted because the heap has not grown: %v", doubts)
	}
}

// The places of short-lived objects that a leak has taken stay alive for good.
func TestASmallerStackOfTheSizeClassOfALeakIsDoubted(t *testing.T) {
	random := rand.New(rand.NewPCG(25, 1))
	leak := leakingSites(random, 1e6)[0]
	robbed := simulatedSite{name: "robbed", size: leak.size, rate: constantly(1e6), life: exponential(100), lost: 0.3, class: 64}
	robbed.held, leak.class = constantly(0), 64
	ghosts := 0
	for range 10 {
		for _, s := range (windowScene{duty: 0.05, until: 1200}).judged(random, []simulatedSite{leak, robbed}) {
			switch {
			case s.leaks && s.Trend != TrendAccumulating:
				t.Errorf("the leak: %+v", s.StackTrend)
			case !s.leaks && s.Trend == TrendAccumulating:
				t.Errorf("what the leak has taken the places of: %+v", s.StackTrend)
			}
			ghosts += one(s.Doubt == DoubtClass)
		}
	}
	if ghosts == 0 {
		t.Error("nothing was doubted because of its size class")
	}
}

// BenchmarkWindows shows how near estimates come and when a leak is named, by duty and rate: the table of docs/measurement.md.
func BenchmarkWindows(b *testing.B) {
	for b.Loop() {
		table := []string{"duty   rate B/s   error %   bias %   interval %   named after s   if objects look alike"}
		for _, duty := range []float64{0.01, 0.02, 0.05} {
			for _, rate := range []float64{1e6, 100e3, 10e3} {
				random := rand.New(rand.NewPCG(31, uint64(rate*duty)))
				judged := windowScene{duty: duty, until: 3600}.leaksIn(random, 25, rate)
				var squares, bias float64
				for _, s := range judged {
					off := s.Growth/s.truth - 1
					squares, bias = squares+off*off, bias+off
				}
				n := float64(len(judged))
				above, below := misses(judged)
				table = append(table, fmt.Sprintf("%.2f %10.0f %8.0f %8.0f %10.1f %14s %14s", duty, rate, 100*math.Sqrt(squares/n), 100*bias/n,
					100*(1-above-below), namedAfter(duty, rate, false), namedAfter(duty, rate, true)))
			}
		}
		b.Log(strings.Join(table, "\n"))
	}
}

// BenchmarkWindowsOfCaches shows what is said of what does not leak, by the length of the trace in minutes.
func BenchmarkWindowsOfCaches(b *testing.B) {
	for b.Loop() {
		var table []string
		for i, site := range steadySites(rand.New(rand.NewPCG(33, 0)), 1) {
			counts := make(map[string]int)
			for _, until := range []float64{600, 3600} {
				for _, duty := range []float64{0.01, 0.02, 0.05} {
					random := rand.New(rand.NewPCG(33, uint64(until*duty)))
					for range 20 {
						alone := steadySites(random, logUniform(random, 10e3, 2e6))[i : i+1]
						for _, s := range (windowScene{duty: duty, until: until, pages: true}).judged(random, alone) {
							counts[fmt.Sprintf("%.0f:%s", until/60, s.Trend)]++
						}
					}
				}
			}
			table = append(table, fmt.Sprintf("%-24s %v", site.name, counts))
		}
		b.Log(strings.Join(table, "\n"))
	}
}

// namedAfter is the length of the first trace, in seconds, in which 9 of 10 steady leaks of a rate accumulate.
func namedAfter(duty, rate float64, alike bool) string {
	for _, until := range []float64{60, 90, 120, 180, 240, 300, 450, 600, 900, 1200, 1800, 2700, 3600, 7200, 14400, 21600, 36000} {
		random := rand.New(rand.NewPCG(32, uint64(until)))
		found := 0
		for range 20 {
			for _, s := range (windowScene{duty: duty, until: until, alike: alike}).judged(random, leakingSites(random, rate)[:1]) {
				found += one(s.Trend == TrendAccumulating)
			}
		}
		if found >= 18 {
			return fmt.Sprint(until)
		}
	}
	return "-"
}
