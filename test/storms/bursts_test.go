package storms

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

const (
	// runsVariable is how often each program is traced; unset: never, for a run takes five minutes.
	runsVariable = "BURSTS_RUNS"
	// preloadVariable is an allocator that the programs preload; unset: none.
	preloadVariable = "BURSTS_PRELOAD"

	burstsSeconds  = 300
	pacedFunction  = "keep_object"
	maxMeanError   = 0.05
	maxOutliersOf  = 10 // one run of so many may be off by more than maxRateError
	minuteLeaks    = 60 // MiB
	leakEachSecond = minuteLeaks * mib / 60
)

// BenchmarkBursts measures how well bursts estimate a leak beside ten million pairs a second.
func BenchmarkBursts(b *testing.B) {
	runs, _ := strconv.Atoi(os.Getenv(runsVariable))
	if runs == 0 {
		b.Skip("takes hours; make bench-bursts runs it")
	}
	tracertest.NeedsRoot(b)
	path := tracertest.Build(b, "paced_leak.c")

	for _, pace := range []string{"work", "clock"} {
		for _, size := range []int{64, 1024, mib} {
			b.Run(fmt.Sprintf("%s/%d", pace, size), func(b *testing.B) {
				b.ReportMetric(0, "ns/op") // leaves it out
				var rates []float64
				for range runs {
					rates = append(rates, tracePaced(b, path, pace, size))
				}
				reportRates(b, rates)
			})
		}
	}
}

// tracePaced traces a program of its own for five minutes, prints the findings, and returns the
// leak's rate as a multiple of the true one.
func tracePaced(b *testing.B, path, pace string, size int) float64 {
	b.Helper()
	command := exec.Command(path, pace, fmt.Sprint(size), fmt.Sprint(leakEachSecond))
	command.Env = append(os.Environ(), "LD_PRELOAD="+os.Getenv(preloadVariable))
	target := tracertest.StartCommand(b, command)
	target.Await("ready")

	traced := trace(b, target, burstsSeconds)
	target.Hangup()

	rate, rank := leakIn(traced, pacedFunction)
	said := []string{
		fmt.Sprintf("%s of %d B: rate %.3f, rank %d of %d", pace, size, rate, rank,
			len(traced.result.Suspects)),
		fmt.Sprintf("true %.1f MiB/min, %.1f M pairs/s of CPU, slowed %.3f",
			float64(traced.leaked)/traced.seconds*60/mib, float64(traced.rounds)/traced.cpu/1e6,
			slowdownOf(traced)),
	}
	for _, s := range traced.result.Suspects {
		said = append(said, fmt.Sprintf("suspect %s %s", s.Function, s.Trend))
	}
	for _, a := range traced.result.Accumulating {
		said = append(said, fmt.Sprintf("%s %s of %.1f MiB/min %s %s", a.Kind, a.Function,
			float64(*cmp.Or(a.BytesPerMin, new(int64)))/mib, a.Trend, a.UndecidedReason))
	}
	for _, d := range traced.result.Diagnoses {
		said = append(said, words.Diagnosis(d))
	}
	said = append(said, givenUp(traced.result))
	fmt.Println(strings.Join(said, "; "))
	return rate
}

// slowdownOf returns the slow-down by allocscope's own figure.
func slowdownOf(traced tracedStretch) float64 {
	if o := traced.result.Overhead; o != nil && o.Slowdown != nil {
		return *o.Slowdown
	}
	return math.NaN()
}

// reportRates fails the benchmark where the rates are biased or too many are far off.
func reportRates(b *testing.B, rates []float64) {
	b.Helper()
	var sum, squares float64
	off := 0
	for _, r := range rates {
		sum += r
		squares += r * r
		if math.Abs(r-1) > maxRateError {
			off++
		}
	}

	n := float64(len(rates))
	mean := sum / n
	spread := math.Sqrt(max(0, squares/n-mean*mean))
	b.ReportMetric(mean, "mean-rate")
	b.ReportMetric(spread, "spread")
	b.ReportMetric(1-float64(off)/n, "within-20%")
	fmt.Printf("%s: mean %.3f, spread %.3f, %d of %d off by more than a fifth: %.3f\n",
		b.Name(), mean, spread, off, len(rates), slices.Sorted(slices.Values(rates)))

	if math.Abs(mean-1) > maxMeanError || off > len(rates)/maxOutliersOf {
		b.Error("the rates are biased or too far off")
	}
}
