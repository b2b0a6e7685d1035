//go:build gpu

// The whole command on a PyTorch trainer on a real GPU: `make test-gpu`.

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/growth/gpu"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// keepsTensors is an error unless a trace says of its only process with a GPU that it retains
// tensors, and names the line that does, "(FILE:LINE)", first.
func keepsTensors(s *summary.Summary, line string) error {
	if len(s.GPUMemory) != 1 {
		return fmt.Errorf("%d processes with a GPU, want one", len(s.GPUMemory))
	}

	d := s.GPUMemory[0]
	if d.Diagnosis != string(gpu.DiagnosisTensors) {
		return fmt.Errorf("the diagnosis is %q (verdict %s, judged by %s), want %q", d.Diagnosis,
			d.Class, d.Judged, string(gpu.DiagnosisTensors))
	}

	if len(d.Suspects) == 0 {
		return errors.New("no suspect is named")
	}

	first := d.Suspects[0]
	if !slices.ContainsFunc(slices.Concat(first.Path, first.Callers, []string{first.Function}),
		func(f string) bool { return strings.HasSuffix(f, line) }) {
		return fmt.Errorf("%s is not in the first suspect: %+v", line, first)
	}

	return nil
}

// spread is the median of some numbers and their quartiles.
type spread struct{ low, median, high float64 }

func spreadOf(numbers []float64) spread {
	sorted := slices.Sorted(slices.Values(numbers))
	at := func(q float64) float64 {
		place := q * float64(len(sorted)-1)
		below := int(place)
		above := min(below+1, len(sorted)-1)
		return sorted[below] + (sorted[above]-sorted[below])*(place-float64(below))
	}
	return spread{at(0.25), at(0.5), at(0.75)}
}

// String is of ratios, as added percent.
func (s spread) String() string {
	percent := func(ratio float64) float64 { return 100 * (ratio - 1) }
	return fmt.Sprintf("%.2f %% (%.2f to %.2f)", percent(s.median), percent(s.low), percent(s.high))
}

// paired compares each traced stretch with the mean of the native ones before and after it, of
// which there is one more.
func paired(native, traced []float64) []float64 {
	ratios := make([]float64, len(traced))
	for i := range traced {
		ratios[i] = traced[i] / ((native[i] + native[i+1]) / 2)
	}
	return ratios
}

// unrest compares each native stretch with the mean of its neighbours: the result of paired without
// any trace.
func unrest(native []float64) []float64 {
	ratios := make([]float64, 0, len(native))
	for i := 1; i < len(native)-1; i++ {
		ratios = append(ratios, native[i]/((native[i-1]+native[i+1])/2))
	}
	return ratios
}

func TestOnAGPUALeakOfTensorsIsNamedByItsLine(t *testing.T) {
	trainer := tracertest.StartGPUTrainer(t, "--leak", "1024")
	trainer.Do("context", "build", "train 2")
	trainer.Say("work 180") // longer than the trace
	dir := newFolder(t)
	c := begin(t, allocscope(t, "trace", "--pid", fmt.Sprint(trainer.PID()), "--duration", "2m",
		"--json", "--output", dir))
	c.mustEnd(0)
	s, err := summary.Read(strings.NewReader(c.stdout.String()))
	if err != nil {
		t.Fatalf("read the summary: %v\n%s", err, c.stderr.String())
	}

	line := fmt.Sprintf("(%s:%d)", tracertest.GPUTrainerSource(), tracertest.GPULeakLine(t))
	found := "**no**"
	if err := keepsTensors(s, line); err != nil {
		t.Error(err)
	} else {
		d := s.GPUMemory[0]
		found = fmt.Sprintf("yes: %s, %s, %.0f MiB/min", d.Class, d.Diagnosis,
			float64(d.Suspects[0].BytesPerMin)/(1<<20))
	}

	tracertest.MeasuredOnGPU(t, "an injected leak of tensors is named by its line", "%s", found)

	kept := keeperOfTensors(s)
	if !strings.Contains(kept, ".kept (list") {
		t.Errorf("the tensors are kept by %q", kept)
	}
	tracertest.MeasuredOnGPU(t, "and by the variable that keeps them", "%s", kept)
	if t.Failed() {
		t.Logf("the summary: %s\n%s", c.stdout.String(), c.stderr.String())
	}
}

// keeperOfTensors describes the first path to tensors that was found; empty: none was.
func keeperOfTensors(s *summary.Summary) string {
	for _, k := range s.Keepers {
		if k.Type == "torch.Tensor" && len(k.Paths) > 0 {
			return words.KeeperHead(k.Paths[0], 80)
		}
	}
	return ""
}

// The stretches are long enough for the effects of traces at default settings to come and go.
const (
	slowRounds  = 4
	slowSeconds = 10
)

// BenchmarkOnAGPU measures steps that are bound by the CPU, which launches many small kernels, and
// steps that are bound by the GPU.
func BenchmarkOnAGPU(b *testing.B) {
	for name, flags := range map[string][]string{
		"6 layers of width 512":   nil,
		"24 layers of width 1024": {"--width", "1024", "--layers", "24", "--batch", "16"},
	} {
		b.Run(name, func(b *testing.B) { benchmarkStep(b, name, flags...) })
	}
}

func benchmarkStep(b *testing.B, name string, flags ...string) {
	tracertest.NeedsRoot(b)
	trainer := tracertest.StartGPUTrainer(b, flags...)
	trainer.Do("context", "build", "train 2")
	native, traced := []float64{trainer.Work(slowSeconds)}, []float64{}

	for range slowRounds {
		traced = append(traced, tracedStep(b, trainer))
		native = append(native, trainer.Work(slowSeconds))
	}

	slow, step := spreadOf(paired(native, traced)), spreadOf(native)
	tracertest.MeasuredOnGPU(b, "slow-down of a step, "+name,
		"%s, by %d pairs; without a trace %s; a step takes %.1f ms",
		slow, slowRounds, spreadOf(unrest(native)), step.median)

	b.Logf("slow-down of a step: %.2f %%", 100*(slow.median-1))
	b.ReportMetric(0, "ns/op") // leaves it out
	b.ReportMetric(slow.median, "x-native")
	b.ReportMetric(step.median, "ms/step")
}

// tracedStep is how long a step takes while the command traces the trainer with its defaults, in
// milliseconds.
func tracedStep(b *testing.B, trainer tracertest.GPUTrainer) float64 {
	b.Helper()
	ctx, stop := context.WithTimeout(b.Context(), 10*time.Minute)
	defer stop()
	trace := exec.CommandContext(ctx, binary, "trace", "--pid", fmt.Sprint(trainer.PID()),
		"--no-tui", "--output", filepath.Join(b.TempDir(), "out"))
	said := tracertest.Must(trace.StderrPipe())(b)

	must(b, trace.Start())

	awaitTrace(b, bufio.NewScanner(said))
	ms := trainer.Work(slowSeconds)
	must(b, trace.Process.Signal(os.Interrupt))

	if err := trace.Wait(); err != nil {
		b.Fatalf("the trace ends with: %v", err)
	}

	return ms
}

// awaitTrace waits until the command says that it traces, and reads on so that it can write.
func awaitTrace(b *testing.B, lines *bufio.Scanner) {
	b.Helper()
	var before []string
	for lines.Scan() {
		if strings.Contains(lines.Text(), "Tracing ") {
			go func() {
				for lines.Scan() { // until it ends
				}
			}()
			return
		}
		before = append(before, lines.Text())
	}

	b.Fatalf("allocscope has ended before it traced: %q", before)
}
