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

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

const manyObjects = 100_000

func startLeak(b *testing.B) *tracertest.Target {
	tracertest.NeedsRoot(b)
	return start(b, tracertest.Build(b, "leak.c", "-pthread"), "1",
		strconv.Itoa(manyObjects), "64", "0")
}

func BenchmarkSnapshotLiveObjects(b *testing.B) {
	target, s := openOn(b, startLeak(b), exact)

	order(target, "go")
	reportSnapshots(b, s, manyObjects)
}

// reportSnapshots measures snapshots with so many live samples.
func reportSnapshots(b *testing.B, s *tracer.Session, samples int) {
	costs := make(metrics)
	for range 3 * costRounds {
		began := time.Now()
		if live := snapshot(b, s).LiveObjects; int(live) < samples {
			b.Fatalf("%d live samples", live)
		}

		costs.add("ms/snapshot", milliseconds(began))
	}
	mustLoseNothing(b, s)
	costs.report(b)
}

func BenchmarkCommand(b *testing.B) {
	command, costs := buildCommand(b), make(metrics)
	for range 3 {
		measureCommand(b, command, costs)
	}
	costs.report(b)
}

// measureCommand traces a program that leaks 100,000 objects, all of them sampled.
func measureCommand(b *testing.B, path string, costs metrics) {
	target := startLeak(b)
	defer target.Hangup()
	folder := filepath.Join(b.TempDir(), "trace")
	command := exec.Command(path, "trace", "--pid", strconv.Itoa(target.PID()), "--interval", "1",
		"--overhead", "off", "--output", folder)
	lines := tracertest.Must(command.StderrPipe())(b)

	began := time.Now()
	stop := startTool(b, command, bufio.NewScanner(lines), "Tracing")
	costs.add("ms-to-start", milliseconds(began))
	order(target, "go")
	awaitSnapshots(b, folder, 3)
	costs.add("MiB-RSS", statusMiB(b, command.Process.Pid, "VmRSS"))
	costs.add("MiB-RSS-peak", statusMiB(b, command.Process.Pid, "VmHWM"))
	costs.add("MiB-kernel-maps", mapsMiB(b, command.Process.Pid))
	began = time.Now()
	stop()
	costs.add("ms-to-stop", milliseconds(began))
	ended := command.ProcessState
	costs.add("s-CPU", (ended.UserTime() + ended.SystemTime()).Seconds())
}

func milliseconds(since time.Time) float64 {
	return inMilliseconds(time.Since(since))
}

func inMilliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// awaitSnapshots waits until the trace has written so many more.
func awaitSnapshots(b *testing.B, folder string, more int) {
	written := func() int {
		files, _ := filepath.Glob(filepath.Join(folder, "snapshots", "*.pb.gz"))
		return len(files)
	}
	for want := written() + more; written() < want; {
		time.Sleep(50 * time.Millisecond)
	}
}

// statusMiB reads a size in /proc/PID/status.
func statusMiB(b *testing.B, pid int, field string) float64 {
	return float64(kilobytes(b, fmt.Sprintf("/proc/%d/status", pid))[field]) / (1 << 20)
}

// mapsMiB is the kernel memory of the BPF maps that a process holds.
func mapsMiB(b *testing.B, pid int) (total float64) {
	files := tracertest.Must(filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", pid)))(b)

	counted := make(map[string]bool)
	for _, file := range files {
		info, err := os.ReadFile(file)
		if err != nil {
			continue // closed meanwhile
		}

		_, after, isMap := strings.Cut(string(info), "map_id:")
		id, _, _ := strings.Cut(after, "\n")
		if isMap && !counted[id] {
			counted[id] = true
			_, locked, _ := strings.Cut(string(info), "memlock:")
			var bytes float64
			scan(b, strings.TrimSpace(locked), "%f", &bytes)
			total += bytes / (1 << 20)
		}
	}
	return total
}

// BenchmarkFollowTree measures what the command does once a second.
func BenchmarkFollowTree(b *testing.B) {
	tracertest.NeedsRoot(b)
	target := start(b, tracertest.Build(b, "tree.c"))
	target.Do("grow 8", "fork 30")
	s := open(b, tracer.Options{PID: target.PID(), Children: true})

	followUntilTraced(b, s, target.PID())
	var took []float64
	for range 10 * costRounds {
		began := time.Now()
		s.Follow()
		if n := len(s.Sample().Members); n != 31 {
			b.Fatalf("%d members", n)
		}

		took = append(took, milliseconds(began))
		time.Sleep(100 * time.Millisecond) // a budget for rollups gathers by time
	}

	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(took), "ms/second")
	b.ReportMetric(median(took)/10, "%-of-a-second")
}

// stretchSteps take a trainer about as long as passes between two snapshots of a trace of five
// minutes.
const stretchSteps = 120

// A stretch of training.
type stretch struct {
	cpu, wall float64 // ms a step
	scanned   float64 // ms of our own CPU that the snapshot took; 0: there was none
	handled   float64 // ms a step in the program on page faults, also of other processes
	faults    float64 // page faults a step
	samples   float64 // of them, a step
}

// The target is a trainer with DataLoader workers that leaks. Each stretch with snapshots stands
// between two of the cheap sources. It is compared with their mean, because a growing process is
// never twice the same. Comparing cheap stretches with each other gives the noise. The parts of the
// cost are measured separately, so that they hold on a busy machine too.
func BenchmarkFaultsAndScans(b *testing.B) {
	const warmup, rounds, workers = 100, 10, 2
	tracertest.NeedsRoot(b)
	target := trainer{tracertest.Start(b, python, tracertest.Source("loader.py"),
		strconv.Itoa(workers))}
	target.Await("ready")
	target.train(warmup, nothing)
	cheap, full := []string{"mapping", "step"}, []string{"mapping", "step", "fault"}
	without := []stretch{target.stretch(b, cheap, false)}
	var with []stretch
	for range rounds {
		with = append(with, target.stretch(b, full, true))
		without = append(without, target.stretch(b, cheap, false))
	}

	target.Hangup()
	event := eventCost(b)
	b.Run("cost", func(b *testing.B) { reportAmid(b, with, without[:rounds], without[1:]) })
	b.Run("noise",
		func(b *testing.B) { reportAmid(b, without[1:rounds], without[:rounds-1], without[2:]) })
	b.Run("parts", func(b *testing.B) { reportParts(b, with, event) })
}

// stretch trains under a trace with these sources.
func (g trainer) stretch(b *testing.B, sources []string, scans bool) (took stretch) {
	s := open(b, tracer.Options{PID: g.PID(), Sources: sources})
	handled := func() (ns float64) { return 0 }
	if scans {
		read := runTime(b, s, bpf.ProgOnFault)
		handled = func() float64 { ns, _ := read(); return ns }
	}

	began, cpu := time.Now(), cpuTime(b, g.PID())
	faults, inProgram := faultsIn(b, g.PID()), handled()
	g.train(stretchSteps, func() {
		if scans {
			time.Sleep(2 * time.Second) // in the midst of it
			took.scanned = inMilliseconds(process.MeasureCPUTime(func() { snapshot(b, s) }))
		}
	})

	took.cpu = inMilliseconds(cpuTime(b, g.PID())-cpu) / stretchSteps
	took.wall = milliseconds(began) / stretchSteps
	took.faults = float64(faultsIn(b, g.PID())-faults) / stretchSteps
	took.samples = float64(sampledFaults(b, s)) / stretchSteps // nearly: it counts since tracing started
	took.handled = (handled() - inProgram) / 1e6 / stretchSteps
	mustLoseNothing(b, s)
	must(b, s.Close())
	return took
}

// eventCost is the additional cost of a page fault for the event, in ms: the cost in a process that
// is not traced, with the program called as often as otherwise.
func eventCost(b *testing.B) float64 {
	target, _, _ := startFaults(b)
	other := start(b, tracertest.Build(b, "pair.c"))
	untraced := sampling("", open(b, tracer.Options{PID: other.PID(), Sources: []string{"mapping"}}),
		kernel.DefaultInterval)
	cost := compare(b, []way{untraced}, target.PID(),
		func() float64 { return printedNumber(b, target, "cost 1024") })[""]
	var more []float64
	for i, ns := range cost.traced {
		more = append(more, ns-cost.native[i])
	}
	return median(more) / 1e6
}

// reportAmid compares stretches with the means of those before and after them: the median of the
// ratios, and their quartiles.
func reportAmid(b *testing.B, stretches, before, after []stretch) {
	amid := func(number func(stretch) float64) (ratios []float64) {
		for i, s := range stretches {
			ratios = append(ratios, 2*number(s)/(number(before[i])+number(after[i])))
		}
		slices.Sort(ratios)
		return ratios
	}

	cpu := amid(func(s stretch) float64 { return s.cpu })
	wall := amid(func(s stretch) float64 { return s.wall })
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(medianOf(before, func(s stretch) float64 { return s.cpu }), "ms-CPU/step")
	b.ReportMetric(medianOf(before, func(s stretch) float64 { return s.wall }), "ms/step")
	b.ReportMetric(median(cpu), "x-CPU")
	b.ReportMetric(cpu[len(cpu)/4], "x-CPU-lower-quartile")
	b.ReportMetric(cpu[len(cpu)*3/4], "x-CPU-upper-quartile")
	b.ReportMetric(median(wall), "x-wall")
	b.ReportMetric(wall[len(wall)/4], "x-wall-lower-quartile")
	b.ReportMetric(wall[len(wall)*3/4], "x-wall-upper-quartile")
}

// reportParts reports the parts of the cost in percent of the trainer's CPU: the event on each
// fault, the program on sampled ones, and the tracer's own CPU for scans.
func reportParts(b *testing.B, stretches []stretch, event float64) {
	percent := func(part func(stretch) float64) float64 {
		return 100 * medianOf(stretches, func(s stretch) float64 { return part(s) / s.cpu })
	}

	b.ReportMetric(0, "ns/op")
	b.ReportMetric(medianOf(stretches, func(s stretch) float64 { return s.faults }), "faults/step")
	b.ReportMetric(1e6*event, "ns-event/fault")
	b.ReportMetric(1e3*medianOf(stretches, func(s stretch) float64 { return s.handled / s.samples }),
		"µs-program/sample")
	b.ReportMetric(percent(func(s stretch) float64 { return s.faults * event }), "%-events")
	b.ReportMetric(percent(func(s stretch) float64 { return s.handled }), "%-program")
	b.ReportMetric(percent(func(s stretch) float64 { return s.scanned / stretchSteps }), "%-scans")
	b.ReportMetric(medianOf(stretches, func(s stretch) float64 { return s.scanned }), "ms-CPU/scan")
}

func medianOf(stretches []stretch, number func(stretch) float64) float64 {
	var numbers []float64
	for _, s := range stretches {
		numbers = append(numbers, number(s))
	}
	return median(numbers)
}
