// Package bursts measures how well bursts estimate leaks: `make bursts`.
package bursts

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/test/harness"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

func TestMain(m *testing.M) { tracertest.Main(m) }

// programVariable names the allocscope that is measured; unset: the one that `make build` makes.
const programVariable = "ALLOCSCOPE"

func program() string {
	if named := os.Getenv(programVariable); named != "" {
		return named
	}
	return "../../bin/allocscope"
}

const (
	// runsVariable is how often each program is traced; unset: never, for a run takes five minutes.
	runsVariable = "BURSTS_RUNS"
	// preloadVariable is an allocator that the programs preload; unset: none.
	preloadVariable = "BURSTS_PRELOAD"

	burstsSeconds  = 300
	pacedFunction  = "keep_object"
	mib            = 1 << 20
	maxMeanError   = 0.05
	maxRateError   = 0.2
	maxOutliersOf  = 10 // one run of so many may be off by more than maxRateError
	minuteLeaks    = 60 // MiB
	leakEachSecond = minuteLeaks * mib / 60
)

// BenchmarkBursts measures how well bursts estimate a leak beside ten million pairs a second.
func BenchmarkBursts(b *testing.B) {
	runs, _ := strconv.Atoi(os.Getenv(runsVariable))
	if runs == 0 {
		b.Skip("takes hours; make bursts runs it")
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

// A stretch is the program's report on some rounds.
type stretch struct {
	rounds       int
	seconds, cpu float64
	leaked       int64 // bytes
}

// A tracedStretch is a stretch with the result of allocscope.
type tracedStretch struct {
	stretch
	result *summary.Summary
}

func work(b *testing.B, target *tracertest.Target, seconds int) (s stretch) {
	b.Helper()
	target.Say(fmt.Sprint(seconds))
	said := strings.Join(target.Await("done"), "\n")
	if _, err := fmt.Sscanf(said, "rounds %d seconds %f cpu %f leaked %d",
		&s.rounds, &s.seconds, &s.cpu, &s.leaked); err != nil {
		b.Fatalf("read what the program says, %q: %v", said, err)
	}
	return s
}

// trace runs allocscope with its defaults for so many seconds beside the program, which begins when
// it counts.
func trace(b *testing.B, target *tracertest.Target, seconds int) (s tracedStretch) {
	b.Helper()
	const toEnd = 4 * time.Minute
	ctx, stop := context.WithTimeout(b.Context(), toEnd+time.Duration(seconds)*time.Second)
	defer stop()

	folder := filepath.Join(b.TempDir(), "trace")
	command := exec.CommandContext(ctx, program(), "trace", "--pid", fmt.Sprint(target.PID()),
		"--duration", fmt.Sprintf("%ds", seconds), "--no-tui", "--output", folder)
	said, err := command.StderrPipe()
	tracertest.NoError(b, err)
	tracertest.NoError(b, command.Start())
	tracertest.NoError(b, awaitTrace(said))

	s.stretch = work(b, target, seconds-1) // a moment less, so that allocscope is still there
	if err := command.Wait(); err != nil {
		b.Fatalf("the trace ends with: %v", err)
	}

	if s.result, err = harness.Summary(folder); err != nil {
		b.Fatal(err)
	}
	return s
}

// awaitTrace waits until the command says that it traces, and reads on so that it can write.
func awaitTrace(said io.Reader) error {
	var before []string
	for lines := bufio.NewScanner(said); lines.Scan(); before = append(before, lines.Text()) {
		if strings.Contains(lines.Text(), "Tracing ") {
			go io.Copy(io.Discard, said)
			return nil
		}
	}
	return errors.New("allocscope has ended before it traced: " + strings.Join(before, "\n"))
}

// leakIn returns the rate of the leak of a function as a multiple of the true one, and its rank
// among the suspects; 0: it is none.
func leakIn(traced tracedStretch, function string) (relative float64, rank int) {
	isLeak := func(frame string) bool { return strings.HasPrefix(frame, function+" ") }
	isSuspect := func(one summary.Suspect) bool {
		return slices.ContainsFunc(slices.Concat(one.Path, one.Callers), isLeak)
	}

	var rate float64 // bytes a minute
	for _, a := range traced.result.Accumulating {
		if slices.ContainsFunc(a.Stack, isLeak) && a.BytesPerMin != nil {
			rate += float64(*a.BytesPerMin)
		}
	}
	relative = rate / (float64(traced.leaked) / traced.seconds * 60)
	return relative, 1 + slices.IndexFunc(traced.result.Suspects, isSuspect)
}

// givenUp returns the notes of a result, beside its verdict, on data that were not measured, or
// measured less well to keep a budget.
func givenUp(s *summary.Summary) string {
	said := []string{fmt.Sprintf("verdict %s (%s)", s.Class, words.Reason(s.Verdict))}
	if o := s.Overhead; o != nil {
		if o.Slowdown != nil {
			said = append(said, fmt.Sprintf("slow-down by its own figure: %.3f", *o.Slowdown))
		}
		for _, change := range o.Changes {
			said = append(said, fmt.Sprintf("%.1f s: %s", change.AtS,
				words.OverheadChange(change.OverheadChange)))
		}
	}

	for _, source := range s.Sources {
		if source.State != summary.SourceAttached {
			said = append(said, fmt.Sprintf("source %s: %s", source.Name, source.State))
		}
	}
	return strings.Join(append(said, words.Warnings(s)...), "; ")
}
