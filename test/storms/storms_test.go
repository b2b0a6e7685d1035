// Package storms measures the defaults of `allocscope trace` on programs that do one kind of call
// as often as they can: `make bench`.
package storms

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/test/harness"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

func TestMain(m *testing.M) {
	code := m.Run()
	tracertest.Cleanup()
	os.Exit(code)
}

// programVariable names the allocscope that is measured; unset: the one that `make build` makes.
const programVariable = "ALLOCSCOPE"

func program() string {
	if named := os.Getenv(programVariable); named != "" {
		return named
	}
	return "../../bin/allocscope"
}

const (
	roundsPerSecond = 20_000
	leakPerSecond   = 1 << 20 // bytes
	leakFunction    = "keep_block"
	mib             = 1 << 20
)

// A storm is measured untraced, traced, and untraced again.
const (
	nativeStretches = 4 // before, and as many after
	nativeSeconds   = 3
	tracedSeconds   = 50
)

// The bounds of the cost of tracing, and of the error of the leak's rate. The difference of the
// untraced stretches comes on top of the first.
const (
	maxSlowdown  = 0.03 // of the elapsed time
	maxOwnCores  = 0.02
	maxRateError = 0.2
)

func BenchmarkStorms(b *testing.B) {
	tracertest.NeedsRoot(b)
	path := tracertest.Build(b, "storms.c")
	plugin := tracertest.Build(b, "plugin.c", "-shared", "-fPIC")

	for _, name := range []string{"map", "brk", "fork", "dlopen", "threads"} {
		b.Run(name, func(b *testing.B) {
			target := tracertest.Start(b, path, name, fmt.Sprint(roundsPerSecond),
				fmt.Sprint(leakPerSecond), plugin)
			target.Await("ready")

			var native []stretch
			for range nativeStretches {
				native = append(native, work(b, target, nativeSeconds))
			}

			traced := trace(b, target, tracedSeconds)
			for range nativeStretches {
				native = append(native, work(b, target, nativeSeconds))
			}
			target.Hangup()

			var said strings.Builder   // Go prints no metrics of a benchmark that fails
			b.ReportMetric(0, "ns/op") // leaves it out
			metric := func(number float64, unit string) {
				b.ReportMetric(number, unit)
				fmt.Fprintf(&said, "%.3f %s, ", number, unit)
			}

			reportCost(b, metric, native, traced)
			reportResult(b, metric, target.PID(), traced)
			b.Logf("%s\n%s", said.String(), givenUp(traced.result))
		})
	}
}

// A stretch is the program's report on some rounds.
type stretch struct {
	rounds       int
	seconds, cpu float64
	leaked       int64 // bytes
}

func cpuOfRound(s stretch) float64     { return s.cpu / float64(s.rounds) }
func elapsedOfRound(s stretch) float64 { return s.seconds / float64(s.rounds) }

func work(b *testing.B, target *tracertest.Target, seconds int) (s stretch) {
	b.Helper()
	target.Say(fmt.Sprint(seconds))
	said := strings.Join(target.Await("done"), "\n")
	if _, err := fmt.Sscanf(said, "rounds %d seconds %f cpu %f leaked %d",
		&s.rounds, &s.seconds, &s.cpu, &s.leaked); err != nil {
		b.Fatalf("read what the storm says, %q: %v", said, err)
	}
	return s
}

// A tracedStretch is a stretch with the CPU time of allocscope meanwhile, and its result.
type tracedStretch struct {
	stretch
	own    float64 // CPU seconds of allocscope
	rss    int64   // bytes of allocscope, largest
	result *summary.Summary
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
	if err != nil {
		b.Fatal(err)
	}
	if err := command.Start(); err != nil {
		b.Fatal(err)
	}
	if err := awaitTrace(said); err != nil {
		b.Fatal(err)
	}

	began := cpuTime(b, command.Process.Pid)
	s.stretch = work(b, target, seconds-1) // a moment less, so that allocscope is still there
	s.own = cpuTime(b, command.Process.Pid) - began
	if err := command.Wait(); err != nil {
		b.Fatalf("the trace ends with: %v", err)
	}

	s.rss = command.ProcessState.SysUsage().(*syscall.Rusage).Maxrss
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

// cpuTime of another process, user and kernel, in seconds.
func cpuTime(b *testing.B, pid int) float64 {
	b.Helper()
	const cpuClockSched = 2 // CPUCLOCK_SCHED, include/linux/posix-timers_types.h
	var now unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|cpuClockSched), &now); err != nil {
		b.Fatalf("read the CPU time of %d: %v", pid, err)
	}
	return time.Duration(now.Nano()).Seconds()
}

// reportCost fails the benchmark where tracing costs more than its bounds.
//
// The slow-down is the CPU time that tracing added to the storm, as a share of the elapsed time. A
// storm that waits for its next round loses no time by the clock, but it has less left for others.
func reportCost(
	b *testing.B, metric func(float64, string), native []stretch, traced tracedStretch,
) {
	b.Helper()
	var cpu, elapsed []float64
	for _, s := range native {
		cpu, elapsed = append(cpu, cpuOfRound(s)), append(elapsed, elapsedOfRound(s))
	}

	slowdownOf := func(cpuBefore float64, s stretch) float64 {
		return (cpuOfRound(s) - cpuBefore) / elapsedOfRound(s)
	}
	middle := harness.Quantile(cpu, 0.5)
	noise := slowdownOf(harness.Quantile(cpu, 0.25), stretch{
		rounds: 1, cpu: harness.Quantile(cpu, 0.75), seconds: harness.Quantile(elapsed, 0.5),
	})
	slowdown := slowdownOf(middle, traced.stretch)
	own := traced.own / traced.seconds

	metric(float64(traced.rounds)/traced.seconds, "rounds/s")
	metric(middle*1e6, "us-CPU/round")
	metric(cpuOfRound(traced.stretch)/middle, "x-CPU")
	metric(elapsedOfRound(traced.stretch)/harness.Quantile(elapsed, 0.5), "x-elapsed")
	metric(slowdown, "slowdown")
	metric(noise, "noise")
	metric(own, "own-cores")
	metric(float64(traced.rss)/1024, "own-MiB")

	if slowdown > maxSlowdown+noise {
		b.Errorf("tracing slows the storm by %.1f%% (noise %.1f%%), want at most %.0f%%",
			slowdown*100, noise*100, maxSlowdown*100)
	}
	if own > maxOwnCores {
		b.Errorf("allocscope uses %.3f of a core, want at most %.2f", own, maxOwnCores)
	}
}

// reportResult fails the benchmark where the leak is not first or its rate is wrong, and where the
// rows do not sum to RSS.
func reportResult(
	b *testing.B, metric func(float64, string), pid int, traced tracedStretch,
) {
	b.Helper()
	s := traced.result
	relative, rank := leakIn(traced, leakFunction)
	off, unexplained := rowsOff(s, pid)

	metric(float64(rank), "leak-rank")
	metric(relative, "leak-rate")
	metric(float64(off), "B-sum-off")
	metric(float64(unexplained)/mib, "MiB-unexplained")

	if rank != 1 {
		b.Errorf("the leak is suspect %d of %d, want the first", rank, len(s.Suspects))
	}
	if relative < 1-maxRateError || relative > 1+maxRateError {
		b.Errorf("the leak's rate is %.2f times the true one, want %.1f to %.1f",
			relative, 1-maxRateError, 1+maxRateError)
	}
	if off != 0 {
		b.Errorf("the rows and RSS differ by %d bytes", off)
	}
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

// rowsOff returns by how much the rows of a process at the end differ from its RSS, and the
// unexplained row.
func rowsOff(s *summary.Summary, pid int) (off, unexplained int64) {
	for _, r := range s.Residents {
		if r.Process == pid && r.EndBytes != nil {
			off -= *r.EndBytes
		}
	}
	for _, row := range s.Breakdown {
		if row.Process != pid || row.Kind == growth.KindSwapped {
			continue
		}
		off += row.EndBytes
		if row.Kind == growth.KindUnexplained {
			unexplained += row.EndBytes
		}
	}
	return off, unexplained
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
