//go:build gpu

package main

// The whole command on a PyTorch trainer on a real GPU: `make test-gpu`.

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

func TestOnAGPUALeakOfTensorsIsNamedByItsLine(t *testing.T) {
	trainer := tracertest.StartGPUTrainer(t, "--leak", "1024")
	trainer.Do("context", "build", "train 2")
	trainer.Say("work 180") // longer than the trace
	folder := newFolder(t)
	c := begin(t, allocscope(t, "trace", "--pid", fmt.Sprint(trainer.PID()), "--duration", "2m", "--json", "--output", folder))
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
		found = fmt.Sprintf("yes: %s, %s, %.0f MiB/min", d.Class, d.Diagnosis, float64(d.Suspects[0].BytesPerMin)/(1<<20))
	}
	tracertest.MeasuredOnGPU(t, "a planted leak of tensors is named by its line", "%s", found)
}

// The stretches are long enough for what traces at default settings to come and go.
const (
	slowRounds  = 8
	slowSeconds = 20
)

func BenchmarkOnAGPUAStepWhileItIsTraced(b *testing.B) {
	tracertest.NeedsRoot(b)
	trainer := tracertest.StartGPUTrainer(b)
	trainer.Do("context", "build", "train 2")
	native, traced := []float64{trainer.Work(slowSeconds)}, []float64{}
	for range slowRounds {
		traced = append(traced, tracedStep(b, trainer))
		native = append(native, trainer.Work(slowSeconds))
	}
	slow, step := spreadOf(paired(native, traced)), spreadOf(native)
	tracertest.MeasuredOnGPU(b, "slow-down of a step", "%s, by %d pairs; without a trace %s; a step takes %.1f ms",
		slow, slowRounds, spreadOf(unrest(native)), step.median)
	b.Logf("slow-down of a step: %.2f %%", 100*(slow.median-1))
	b.ReportMetric(0, "ns/op") // leaves it out
	b.ReportMetric(slow.median, "x-native")
	b.ReportMetric(step.median, "ms/step")
}

// tracedStep is how long a step takes while the command traces the trainer with its defaults, in milliseconds.
func tracedStep(b *testing.B, trainer tracertest.GPUTrainer) float64 {
	b.Helper()
	ctx, stop := context.WithTimeout(b.Context(), 10*time.Minute)
	defer stop()
	trace := exec.CommandContext(ctx, binary, "trace", "--pid", fmt.Sprint(trainer.PID()), "--no-tui", "--output", filepath.Join(b.TempDir(), "out"))
	said, err := trace.StderrPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := trace.Start(); err != nil {
		b.Fatal(err)
	}
	awaitTrace(b, bufio.NewScanner(said))
	ms := trainer.Work(slowSeconds)
	if err := trace.Process.Signal(os.Interrupt); err != nil {
		b.Fatal(err)
	}
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
		if strings.Contains(lines.Text(), "tracing ") {
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
