package tracer_test

// What tracing costs, as ratios of things measured in turns in one run: `make bench`. docs/performance.md says what the
// numbers mean. Nothing here asserts a time.

import (
	"bufio"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/probe"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

const priceRounds = 9

// A way of tracing a process: start attaches and gives what detaches again.
type way struct {
	name  string
	start func(b *testing.B, pid int) (stop func())
}

// A price is what one way costs, round by round, what the same cost without it just before, and how many milliseconds it
// took to begin and to end.
type price struct{ native, traced, attach, detach []float64 }

// compare takes the ways in turns, each right after a measurement without any.
func compare(b *testing.B, ways []way, pid int, measure func() float64) map[string]*price {
	prices := make(map[string]*price)
	for _, w := range ways {
		prices[w.name] = &price{}
	}
	for range priceRounds {
		for _, w := range ways {
			p := prices[w.name]
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
	return prices
}

// report gives one line of output per way, the peer's ratio included where it was measured.
func report(b *testing.B, ways []way, prices map[string]*price, unit, peer string) {
	var native []float64
	for _, p := range prices {
		native = append(native, p.native...)
	}
	b.Run("native", func(b *testing.B) {
		b.ReportMetric(0, "ns/op") // leaves it out
		b.ReportMetric(median(native), unit)
	})
	for _, w := range ways {
		b.Run(w.name, func(b *testing.B) {
			p := prices[w.name]
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(median(p.traced), unit)
			b.ReportMetric(median(ratios(p.traced, p.native)), "x-native")
			b.ReportMetric(median(p.attach), "ms-to-attach")
			b.ReportMetric(median(p.detach), "ms-to-detach")
			if other := prices[peer]; other != nil && other != p {
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

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

// opening is the way of this tracer with the given options.
func opening(name string, options tracer.Options) way {
	return way{name, func(b *testing.B, pid int) func() {
		options.PID = pid
		s, err := tracer.Open(options)
		if err != nil {
			b.Fatalf("%+v", err)
		}
		return func() {
			if events := mustLoseNothing(b, s); events.Allocations == 0 {
				b.Error("no allocation was seen")
			}
			if err := s.Close(); err != nil {
				b.Fatal(err)
			}
		}
	}}
}

// startPair starts the program that measures pairs of malloc and free, and gives what asks it for one measurement.
func startPair(b *testing.B) (pid int, nsPerPair func() float64) {
	tracertest.NeedsRoot(b)
	target := tracertest.Start(b, tracertest.Build(b, "pair.c"))
	target.Await("ready")
	return target.PID(), func() float64 {
		target.Say("go")
		ns, err := strconv.ParseFloat(target.Await("done")[0], 64)
		if err != nil {
			b.Fatal(err)
		}
		return ns
	}
}

func BenchmarkAPairOfMallocAndFree(b *testing.B) {
	pid, nsPerPair := startPair(b)
	var ways []way
	for _, mode := range modes {
		if mode == probe.Session && !hasSessions() {
			b.Logf("no uprobe sessions in this kernel")
			continue
		}
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

func hasSessions() bool {
	for _, check := range tracer.Examine(0) {
		if strings.Contains(check.Finding, probe.Session.String()) {
			return true
		}
	}
	return false
}

// findMemleak gives the way of libbpf-tools' memleak, which testdata/fetch-memleak.sh gets where the system has none.
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
		// stdbuf, so that it says at once that it has attached.
		command := exec.Command("stdbuf", "-oL", path, "-p", strconv.Itoa(pid), quiet)
		lines, err := command.StdoutPipe()
		if err != nil {
			b.Fatal(err)
		}
		return startTool(b, command, bufio.NewScanner(lines), "Tracing")
	}}, nil
}

// startTool starts a command and waits until it says that it is tracing; stop interrupts it and waits for its end.
func startTool(b *testing.B, command *exec.Cmd, lines *bufio.Scanner, ready string) (stop func()) {
	if err := command.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { command.Process.Kill() })
	var said []string
	for !strings.HasPrefix(lines.Text(), ready) {
		if !lines.Scan() {
			b.Fatalf("%s ended and said %q", command, said)
		}
		said = append(said, lines.Text())
	}
	return func() {
		if err := command.Process.Signal(os.Interrupt); err != nil {
			b.Fatal(err)
		}
		for lines.Scan() {
			said = append(said, lines.Text())
		}
		if err := command.Wait(); err != nil {
			b.Fatalf("%s: %v; it said %q", command, err, said)
		}
	}
}

// An empty program, so that the difference is the site's alone.
func BenchmarkAProbeOfFreeByItsSite(b *testing.B) {
	pid, nsPerPair := startPair(b)
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.Kprobe, License: "Dual BSD/GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	if err != nil {
		b.Fatal(err)
	}
	defer program.Close()
	chosen, entry := sitesOfFree(b, pid)
	ways := []way{attaching("chosen", chosen, program), attaching("entry", entry, program)}
	report(b, ways, compare(b, ways, pid, nsPerPair), "ns/pair", "chosen")
}

func attaching(name string, target probe.Target, program *ebpf.Program) way {
	return way{name, func(b *testing.B, pid int) func() {
		links, err := probe.Attach(probe.Single, target, probe.Programs{Entry: program}, pid)
		if err != nil {
			b.Fatal(err)
		}
		return func() {
			if err := probe.Close(links); err != nil {
				b.Fatal(err)
			}
		}
	}}
}

// sitesOfFree gives free where the tracer probes it and where all others do.
func sitesOfFree(b *testing.B, pid int) (chosen, entry probe.Target) {
	p, err := process.Open(pid)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { p.Close() })
	maps, err := p.Maps()
	if err != nil {
		b.Fatal(err)
	}
	targets, err := probe.Resolve(p, maps)
	if err != nil {
		b.Fatal(err)
	}
	for _, target := range targets {
		for _, site := range target.Sites {
			if site.Function.Name == "free" {
				chosen, entry = target, target
				chosen.Sites = []probe.Site{site}
				site.Offset = entryOffset(b, target.Path, "free")
				entry.Sites = []probe.Site{site}
			}
		}
	}
	b.Logf("free: chosen %#x, entry %#x", chosen.Sites[0].Offset, entry.Sites[0].Offset)
	return chosen, entry
}

// entryOffset is where in the file an exported function starts.
func entryOffset(b *testing.B, path, name string) uint64 {
	file, err := elf.Open(path)
	if err != nil {
		b.Fatal(err)
	}
	defer file.Close()
	symbols, err := file.DynamicSymbols()
	if err != nil {
		b.Fatal(err)
	}
	for _, s := range symbols {
		if s.Name != name {
			continue
		}
		for _, segment := range file.Progs {
			if segment.Type == elf.PT_LOAD && s.Value-segment.Vaddr < segment.Filesz {
				return s.Value - segment.Vaddr + segment.Off
			}
		}
	}
	b.Fatalf("%s has no %s", path, name)
	return 0
}

const manyObjects = 100_000

func startLeak(b *testing.B) *tracertest.Target {
	tracertest.NeedsRoot(b)
	target := tracertest.Start(b, tracertest.Build(b, "leak.c", "-pthread"), "1", strconv.Itoa(manyObjects), "64", "0")
	target.Await("ready")
	return target
}

func BenchmarkASnapshotOf100000LiveSamples(b *testing.B) {
	target := startLeak(b)
	s := open(b, tracer.Options{PID: target.PID(), Interval: 1})
	target.Say("go")
	target.Await("done")
	var took []float64
	for range 3 * priceRounds {
		began := time.Now()
		if live := snapshot(b, s).LiveObjects; live < manyObjects {
			b.Fatalf("%d live samples", live)
		}
		took = append(took, milliseconds(began))
	}
	mustLoseNothing(b, s)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(took), "ms/snapshot")
}

func BenchmarkTheCommandAt100000LiveSamples(b *testing.B) {
	command := filepath.Join(b.TempDir(), "allocscope")
	if out, err := exec.Command("go", "build", "-o", command, "../cmd/allocscope").CombinedOutput(); err != nil {
		b.Fatalf("go build: %v\n%s", err, out)
	}
	metrics := make(map[string][]float64)
	for range 3 {
		for unit, value := range measureCommand(b, command) {
			metrics[unit] = append(metrics[unit], value)
		}
	}
	for unit, values := range metrics {
		b.ReportMetric(median(values), unit)
	}
	b.ReportMetric(0, "ns/op")
}

// measureCommand traces a program that leaks 100,000 objects, all of them sampled.
func measureCommand(b *testing.B, path string) map[string]float64 {
	target := startLeak(b)
	defer target.Hangup()
	folder := filepath.Join(b.TempDir(), "trace")
	command := exec.Command(path, "trace", "--pid", strconv.Itoa(target.PID()), "--interval", "1", "--output", folder)
	lines, err := command.StderrPipe()
	if err != nil {
		b.Fatal(err)
	}
	metrics := make(map[string]float64)
	began := time.Now()
	stop := startTool(b, command, bufio.NewScanner(lines), "tracing")
	metrics["ms-to-start"] = milliseconds(began)
	target.Say("go")
	target.Await("done")
	awaitSnapshots(b, folder, 3)
	metrics["MiB-RSS"] = statusMiB(b, command.Process.Pid, "VmRSS:")
	metrics["MiB-RSS-peak"] = statusMiB(b, command.Process.Pid, "VmHWM:")
	metrics["MiB-kernel-maps"] = mapsMiB(b, command.Process.Pid)
	began = time.Now()
	stop()
	metrics["ms-to-stop"] = milliseconds(began)
	metrics["s-CPU"] = (command.ProcessState.UserTime() + command.ProcessState.SystemTime()).Seconds()
	return metrics
}

func milliseconds(since time.Time) float64 { return float64(time.Since(since).Microseconds()) / 1000 }

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
	return number(b, fmt.Sprintf("/proc/%d/status", pid), field) / 1024
}

// mapsMiB is the kernel memory of the BPF maps that a process holds.
func mapsMiB(b *testing.B, pid int) (total float64) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", pid))
	if err != nil {
		b.Fatal(err)
	}
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
			total += number(b, file, "memlock:") / (1 << 20) // here it is bytes
		}
	}
	return total
}

// number reads what follows a field's name.
func number(b *testing.B, file, field string) float64 {
	content, err := os.ReadFile(file)
	if err != nil {
		b.Fatal(err)
	}
	_, after, found := strings.Cut(string(content), field)
	words := strings.Fields(after)
	if !found || len(words) == 0 {
		b.Fatalf("%s has no %s", file, field)
	}
	value, err := strconv.ParseFloat(words[0], 64)
	if err != nil {
		b.Fatal(err)
	}
	return value
}
