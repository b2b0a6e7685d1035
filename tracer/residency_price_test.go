package tracer_test

// What it costs a trainer that its page faults are followed and that its pages are looked at: `make bench`.

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// A stretch of training, by its steps.
type stretch struct {
	cpu, wall float64 // ms a step
	looked    float64 // ms that the snapshot took; 0: there was none
}

// The loader is a trainer with DataLoader workers that leaks. A stretch takes about as long as passes between two snapshots
// of a trace of five minutes, and has one snapshot where there are any. Each stands between two of the cheap sources, and is
// compared with their mean, since a process that grows is never twice the same. What this says of the cheap ones themselves
// is the noise.
func BenchmarkWhatFaultsAndResidencyCostATrainer(b *testing.B) {
	const warmup, rounds, workers = 100, 10, 2
	tracertest.NeedsRoot(b)
	target := trainer{tracertest.Start(b, python, tracertest.Source("loader.py"), strconv.Itoa(workers))}
	target.Await("ready")
	target.train(warmup, nothing)
	cheap, full := []string{"mapping", "step"}, []string{"mapping", "step", "fault"}
	without := []stretch{target.stretch(b, cheap, false)}
	var with []stretch
	for range rounds {
		with = append(with, target.stretch(b, full, true))
		without = append(without, target.stretch(b, cheap, false))
	}
	b.Run("price", func(b *testing.B) { reportAmid(b, with, without[:rounds], without[1:]) })
	b.Run("noise", func(b *testing.B) { reportAmid(b, without[1:rounds], without[:rounds-1], without[2:]) })
}

// stretch trains under a trace with these sources.
func (g trainer) stretch(b *testing.B, sources []string, looks bool) (took stretch) {
	const steps = 120
	s, err := tracer.Open(tracer.Options{PID: g.PID(), Sources: sources})
	if err != nil {
		b.Fatal(err)
	}
	s.AwaitTables()
	began, cpu := time.Now(), cpuTime(b, g.PID())
	g.train(steps, func() {
		if looks {
			time.Sleep(2 * time.Second) // in the midst of it
			took.looked = float64(snapshot(b, s).Took.Microseconds()) / 1000
		}
	})
	took.cpu = float64((cpuTime(b, g.PID()) - cpu).Microseconds()) / 1000 / steps
	took.wall = milliseconds(began) / steps
	mustLoseNothing(b, s)
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
	return took
}

// reportAmid compares stretches with the means of those before and after them: the median of the ratios, and their quartiles.
func reportAmid(b *testing.B, stretches, before, after []stretch) {
	amid := func(number func(stretch) float64) (ratios []float64) {
		for i, s := range stretches {
			ratios = append(ratios, 2*number(s)/(number(before[i])+number(after[i])))
		}
		slices.Sort(ratios)
		return ratios
	}
	var ms, looked []float64
	for i, s := range stretches {
		ms, looked = append(ms, before[i].cpu), append(looked, s.looked)
	}
	cpu := amid(func(s stretch) float64 { return s.cpu })
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(ms), "ms-CPU/step")
	b.ReportMetric(median(cpu), "x-CPU")
	b.ReportMetric(cpu[len(cpu)/4], "x-CPU-lower-quartile")
	b.ReportMetric(cpu[len(cpu)*3/4], "x-CPU-upper-quartile")
	b.ReportMetric(median(amid(func(s stretch) float64 { return s.wall })), "x-wall")
	b.ReportMetric(median(looked), "ms/snapshot")
}
