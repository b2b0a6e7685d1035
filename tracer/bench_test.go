package tracer_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/overhead"
	"github.com/allocscope/allocscope/tracer/overhead/calibrate"
	"github.com/allocscope/allocscope/tracer/probe"
	"github.com/allocscope/allocscope/tracer/source"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

func cpuTimeDuring(b *testing.B, pid int, work func()) time.Duration {
	began := cpuTime(b, pid)
	work()
	return cpuTime(b, pid) - began
}

// cpuTime of another process, user and kernel.
func cpuTime(b *testing.B, pid int) time.Duration {
	const cpuClockSched = 2 // CPUCLOCK_SCHED, include/linux/posix-timers_types.h
	var now unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|cpuClockSched), &now); err != nil {
		b.Fatalf("read CPU time of %d: %v", pid, err)
	}
	return time.Duration(now.Nano())
}

const costRounds = 9

// A way of tracing a process: start attaches and returns a function that detaches again.
type way struct {
	name  string
	start func(b *testing.B, pid int) (stop func())
}

// A cost is the cost of one way, round by round: without it just before, with it, and the
// milliseconds to attach and to detach.
type cost struct{ native, traced, attach, detach []float64 }

// compare takes the ways in turns, each right after a measurement without any.
func compare(b *testing.B, ways []way, pid int, measure func() float64) map[string]*cost {
	costs := make(map[string]*cost)
	for _, w := range ways {
		costs[w.name] = &cost{}
	}

	for range costRounds {
		for _, w := range ways {
			p := costs[w.name]
			p.native = append(p.native, measure())
			began := time.Now()
			stop := w.start(b, pid)
			p.attach = append(p.attach, milliseconds(began))
			p.traced = append(p.traced, measure())
			began = time.Now()
			stop()
			p.detach = append(p.detach, milliseconds(began))
		}
	}
	return costs
}

// report prints one line per way, with the peer's ratio where that was measured.
func report(b *testing.B, ways []way, costs map[string]*cost, unit, peer string) {
	var native []float64
	for _, p := range costs {
		native = append(native, p.native...)
	}

	b.Run("native", func(b *testing.B) {
		b.ReportMetric(0, "ns/op") // leaves it out
		b.ReportMetric(median(native), unit)
	})

	for _, w := range ways {
		b.Run(w.name, func(b *testing.B) {
			p := costs[w.name]
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(median(p.traced), unit)
			b.ReportMetric(median(ratios(p.traced, p.native)), "x-native")
			b.ReportMetric(median(p.attach), "ms-to-attach")
			b.ReportMetric(median(p.detach), "ms-to-detach")
			if other := costs[peer]; other != nil && other != p {
				b.ReportMetric(median(ratios(p.traced, other.traced)), "x-"+peer)
			}
		})
	}
}

func ratios(a, b []float64) []float64 {
	quotients := make([]float64, len(a))
	for i := range a {
		quotients[i] = a[i] / b[i]
	}
	return quotients
}

// metrics are measurements by their units. The median of each is reported.
type metrics map[string][]float64

func (m metrics) add(unit string, value float64) { m[unit] = append(m[unit], value) }

func (m metrics) report(b *testing.B) {
	b.ReportMetric(0, "ns/op")
	for unit, values := range m {
		b.ReportMetric(median(values), unit)
	}
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

// opening is the way of this tracer with the given options.
func opening(name string, options tracer.Options) way {
	return way{name, func(b *testing.B, pid int) func() {
		options.PID = pid
		s := open(b, options)
		return func() {
			if events := mustLoseNothing(b, s); events.Allocations == 0 {
				b.Error("no allocation was seen")
			}
			must(b, s.Close())
		}
	}}
}

// startPair starts the program that measures pairs of malloc and free. nsPerPair takes one
// measurement.
func startPair(b *testing.B, flags ...string) (pid int, nsPerPair func() float64) {
	tracertest.NeedsRoot(b)
	target := start(b, tracertest.Build(b, "pair.c", flags...))
	return target.PID(), func() float64 { return printedNumber(b, target, "go") }
}

// printedNumber is the number that a program prints on an order.
func printedNumber(b *testing.B, target *tracertest.Target, order string) float64 {
	b.Helper()
	number := tracertest.Must(strconv.ParseFloat(target.Do(order)[0], 64))(b)
	return number
}

func BenchmarkMallocFree(b *testing.B) {
	pid, nsPerPair := startPair(b)
	var ways []way
	for _, mode := range modes {
		name := strings.ReplaceAll(mode.String(), " ", "-")
		ways = append(ways,
			opening(name+"/interval=512KiB", tracer.Options{Mode: mode}),
			opening(name+"/interval=1", tracer.Options{Mode: mode, Interval: 1}))
	}
	if memleak, err := findMemleak(); err != nil {
		b.Logf("not compared with libbpf-tools' memleak: %v", err)
	} else {
		ways = append(ways, memleak)
	}
	report(b, ways, compare(b, ways, pid, nsPerPair), "ns/pair", "memleak")
}

// findMemleak returns the way of libbpf-tools' memleak. testdata/fetch-memleak.sh fetches it where
// the system has none.
func findMemleak() (way, error) {
	var refusal strings.Builder
	command := exec.Command(tracertest.Source("fetch-memleak.sh"))
	command.Stderr = &refusal
	out, err := command.Output()
	if err != nil {
		return way{}, fmt.Errorf("%w: %s", err, refusal.String())
	}

	path := strings.TrimSpace(string(out))
	return way{"memleak", func(b *testing.B, pid int) func() {
		const quiet = "3600" // seconds between its reports
		// stdbuf, so that it reports at once that it has attached.
		command := exec.Command("stdbuf", "-oL", path, "-p", strconv.Itoa(pid), quiet)
		lines := tracertest.Must(command.StdoutPipe())(b)

		return startTool(b, command, bufio.NewScanner(lines), "Tracing")
	}}, nil
}

// startTool starts a command and waits until it prints that it is tracing. stop interrupts it and
// waits for its end.
func startTool(b *testing.B, command *exec.Cmd, lines *bufio.Scanner, ready string) (stop func()) {
	must(b, command.Start())
	b.Cleanup(func() { command.Process.Kill() })
	var said []string
	for !strings.HasPrefix(lines.Text(), ready) {
		if !lines.Scan() {
			b.Fatalf("%s ended and said %q", command, said)
		}

		said = append(said, lines.Text())
	}
	return func() {
		must(b, command.Process.Signal(os.Interrupt))

		for lines.Scan() {
			said = append(said, lines.Text())
		}
		if err := command.Wait(); err != nil {
			b.Fatalf("%s: %v; it said %q", command, err, said)
		}
	}
}

// sampling attaches source fault alone. A process that the session does not trace pays for the
// event and for finding out that it is not traced.
func sampling(name string, s *tracer.Session, interval uint64) way {
	return way{name, func(b *testing.B, _ int) func() {
		status, links := source.AttachFaults(tracer.Kernel(s), interval)
		if !status.Attached {
			b.Fatal(status.Reason)
		}

		return func() {
			must(b, probe.Close(links))
		}
	}}
}

func BenchmarkPageFault(b *testing.B) {
	target, _, _ := startFaults(b)
	other := start(b, tracertest.Build(b, "pair.c"))
	traced := open(b, tracer.Options{PID: target.PID(), Sources: []string{"mapping"}})
	untraced := open(b, tracer.Options{PID: other.PID(), Sources: []string{"mapping"}})
	ways := []way{
		sampling("traced/interval=512KiB", traced, 512<<10),
		sampling("traced/interval=64KiB", traced, 64<<10),
		sampling("traced/interval=1", traced, 1),
		sampling("untraced/interval=512KiB", untraced, 512<<10),
	}

	nsPerFault := func() float64 { return printedNumber(b, target, "cost 1024") }
	report(b, ways, compare(b, ways, target.PID(), nsPerFault), "ns/fault", "")
}

// following is the way of source cuda alone. It fails where the counter shows that nothing was
// seen.
func following(name string, options tracer.Options, counts bpf.Counter, blocks bool) way {
	return way{name, func(b *testing.B, pid int) func() {
		options.PID, options.Sources = pid, []string{"cuda"}
		s := open(b, options)
		if awaitCUDA(b, s); blocks {
			awaitBlocks(b, s)
		}

		return func() {
			if counted(b, s, counts) == 0 {
				b.Error("nothing was seen")
			}
			mustLoseNothing(b, s)
			must(b, s.Close())
		}
	}}
}

// BenchmarkBlocks measures a block and its return in a Python program, whose stacks are the longest
// to walk.
func BenchmarkBlocks(b *testing.B) {
	const pairs = 5_000
	g := startBlocks(b, realLibC10(b))
	g.Do("driver " + libcuda(b))
	ways := []way{
		following("interval=1", exact, bpf.CountBlocks, true),
		following("interval=512KiB", tracer.Options{}, bpf.CountBlocks, true),
	}

	nsPerPair := func() float64 {
		churn := func() { g.Do(fmt.Sprintf("churn %d 512 0", pairs)) }
		return float64(cpuTimeDuring(b, g.PID(), churn)) / pairs
	}
	report(b, ways, compare(b, ways, g.PID(), nsPerPair), "ns-CPU/pair", "")
}

// BenchmarkLaunches measures how much slower a trace makes a program that launches so many kernels
// that its processor is full: by seconds of the trace, of the CPU time of a block. By turns the
// program is traced and not traced. Other programs disturb it less at a high priority.
func BenchmarkLaunches(b *testing.B) {
	const pairs, seconds = 6, 10
	caching := tracertest.BuildCachingAllocator(b)
	library := tracertest.BuildLibrary(b, "launches.cc", "liblaunches.so", caching,
		"-fno-optimize-sibling-calls", "-Wl,-rpath,"+filepath.Dir(caching))
	g := startPythonProgram(b, "launches.py", library)

	slower := make(metrics)
	for range pairs {
		native := median(nsPerBlock(g, seconds))
		s := open(b, tracer.Options{PID: g.PID(), Sources: []string{"cuda"}, Overhead: 0.03})
		awaitBlocks(b, s)

		traced := nsPerBlock(g, seconds)
		slower.add("%-counted", 100*s.Overhead().Slowdown())
		slower.add("ns/walk", float64(counted(b, s, bpf.CountBlockWalkNs))/
			float64(max(1, counted(b, s, bpf.CountBlockSamples))))
		must(b, s.Close())

		slower.add("ns-CPU/block", native)
		for i, unit := range []string{"%-second-1", "%-second-2", "%-second-3"} {
			slower.add(unit, 100*(traced[i]/native-1))
		}
		slower.add("%-later", 100*(median(traced[3:])/native-1))
	}
	slower.report(b)
}

// nsPerBlock returns the CPU time of a block of launches.py, second by second.
func nsPerBlock(g gpuProgram, seconds int) []float64 {
	g.t.Helper()
	times := make([]float64, seconds)
	for i := range times {
		var blocks int
		scan(g.t, g.Do("train 1")[0], "%d %g", &blocks, &times[i])
	}
	return times
}

// BenchmarkCalibration compares the calibrated cost of an entry with the cost of probing malloc and
// free of a program. The program is static: other traces of a shared C library would make its
// probes more expensive.
func BenchmarkCalibration(b *testing.B) {
	pid, nsPerPair := startPair(b, "-static")
	var ways []way
	calibrated := make(map[string][]float64)
	for _, mode := range modes {
		open := opening(mode.String(), tracer.Options{Mode: mode})
		ways = append(ways, way{open.name, func(b *testing.B, pid int) func() {
			costs := measureCosts(b, mode)
			pair := 2 * costs.Entry
			if mode != probe.Session {
				pair += costs.Return // they cannot leave it out
			}
			calibrated[open.name] = append(calibrated[open.name], pair)
			return open.start(b, pid)
		}})
	}

	costs := compare(b, ways, pid, nsPerPair)
	for _, w := range ways {
		b.Run(w.name, func(b *testing.B) {
			var observed []float64
			for i, traced := range costs[w.name].traced {
				observed = append(observed, traced-costs[w.name].native[i])
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(median(calibrated[w.name]), "ns/pair-calibrated")
			b.ReportMetric(median(observed), "ns/pair-observed")
			b.ReportMetric(median(ratios(observed, calibrated[w.name])), "observed/calibrated")
		})
	}
}

// measureCosts measures what probes cost on a kernel side of its own.
func measureCosts(b *testing.B, mode probe.Mode) calibrate.Costs {
	b.Helper()
	k, err := kernel.Load(kernel.Config{
		MaxLive: kernel.DefaultMaxLive, MaxStacks: kernel.DefaultMaxStacks,
		MaxFaults: kernel.MaxFaults, Mode: mode,
	})
	must(b, err)
	defer k.Close()
	period := source.FaultPeriod(kernel.DefaultInterval)
	costs, err := overhead.MeasureCosts(b.Context(), k, nil, period, time.Minute,
		func(links []link.Link) { probe.Close(links) })
	must(b, err)
	return costs
}
