package tracer_test

// What tracing costs, as ratios of things measured in turns in one run: `make bench`. docs/performance.md says what the
// numbers mean. Nothing here asserts a time.

import (
	"bufio"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/doctor"
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
		s, err := tracer.Open(b.Context(), options)
		if err != nil {
			b.Fatalf("%+v", err)
		}
		s.AwaitTables()
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
func startPair(b *testing.B, flags ...string) (pid int, nsPerPair func() float64) {
	tracertest.NeedsRoot(b)
	target := tracertest.Start(b, tracertest.Build(b, "pair.c", flags...))
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
	for _, check := range doctor.Check(0) {
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
