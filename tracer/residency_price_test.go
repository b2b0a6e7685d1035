package tracer_test

// What it costs a trainer that its page faults are followed and that its pages are looked at: `make bench`.

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// stretchSteps take a trainer about as long as passes between two snapshots of a trace of five minutes.
const stretchSteps = 120

// A stretch of training.
type stretch struct {
	cpu, wall float64 // ms a step
	looked    float64 // ms of our own CPU that the snapshot took; 0: there was none
	handled   float64 // ms a step in the program on page faults, those of other processes included
	faults    float64 // page faults a step
	samples   float64 // of them, a step
}

// The loader is a trainer with DataLoader workers that leaks. A stretch has one snapshot where there are any. Each stands
// between two of the cheap sources, and is compared with their mean, since a process that grows is never twice the same. What
// this says of the cheap ones themselves is the noise. The parts of the price are measured apart from that, each by itself:
// they hold on a busy machine too.
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
	target.Hangup()
	event := eventPrice(b)
	b.Run("price", func(b *testing.B) { reportAmid(b, with, without[:rounds], without[1:]) })
	b.Run("noise", func(b *testing.B) { reportAmid(b, without[1:rounds], without[:rounds-1], without[2:]) })
	b.Run("parts", func(b *testing.B) { reportParts(b, with, event) })
}

// stretch trains under a trace with these sources.
func (g trainer) stretch(b *testing.B, sources []string, looks bool) (took stretch) {
	s, err := tracer.Open(b.Context(), tracer.Options{PID: g.PID(), Sources: sources})
	if err != nil {
		b.Fatal(err)
	}
	s.AwaitTables()
	handled := func() (ns float64) { return 0 }
	if looks {
		read := runTime(b, s.Programs()["on_fault"])
		handled = func() float64 { ns, _ := read(); return ns }
	}
	began, cpu, faults, inProgram := time.Now(), cpuTime(b, g.PID()), faultsSoFar(b, g.PID()), handled()
	g.train(stretchSteps, func() {
		if looks {
			time.Sleep(2 * time.Second) // in the midst of it
			took.looked = float64(process.MeasureCPUTime(func() { snapshot(b, s) }).Microseconds()) / 1000
		}
	})
	took.cpu = float64((cpuTime(b, g.PID()) - cpu).Microseconds()) / 1000 / stretchSteps
	took.wall = milliseconds(began) / stretchSteps
	took.faults = float64(faultsSoFar(b, g.PID())-faults) / stretchSteps
	took.samples = float64(sampledFaults(b, s)) / stretchSteps // nearly: it counts since the attach
	took.handled = (handled() - inProgram) / 1e6 / stretchSteps
	mustLoseNothing(b, s)
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
	return took
}

// eventPrice is what a page fault costs more for the event, in ms: that of a process that is not traced, with the program
// called as often as otherwise.
func eventPrice(b *testing.B) float64 {
	target, _, _ := startFaults(b)
	other := tracertest.Start(b, tracertest.Build(b, "pair.c"))
	other.Await("ready")
	untraced := sampling("", open(b, tracer.Options{PID: other.PID(), Sources: []string{"mapping"}}), kernel.DefaultInterval)
	price := compare(b, []way{untraced}, target.PID(), func() float64 { return nsPerFault(b, target) })[""]
	var more []float64
	for i, ns := range price.traced {
		more = append(more, ns-price.native[i])
	}
	return median(more) / 1e6
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

// reportParts gives what the price is made of, in percent of the trainer's CPU: the event on each fault, the program on some,
// and our own CPU for looks.
func reportParts(b *testing.B, stretches []stretch, event float64) {
	percent := func(part func(stretch) float64) float64 {
		return 100 * medianOf(stretches, func(s stretch) float64 { return part(s) / s.cpu })
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(medianOf(stretches, func(s stretch) float64 { return s.faults }), "faults/step")
	b.ReportMetric(1e6*event, "ns-event/fault")
	b.ReportMetric(1e3*medianOf(stretches, func(s stretch) float64 { return s.handled / s.samples }), "µs-program/sample")
	b.ReportMetric(percent(func(s stretch) float64 { return s.faults * event }), "%-events")
	b.ReportMetric(percent(func(s stretch) float64 { return s.handled }), "%-program")
	b.ReportMetric(percent(func(s stretch) float64 { return s.looked / stretchSteps }), "%-looks")
	b.ReportMetric(medianOf(stretches, func(s stretch) float64 { return s.looked }), "ms-CPU/look")
}

func medianOf(stretches []stretch, number func(stretch) float64) float64 {
	var numbers []float64
	for _, s := range stretches {
		numbers = append(numbers, number(s))
	}
	return median(numbers)
}
