package tracer_test

import (
	"testing"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer"
)

// probesRun is how many probes have been run for sources heap and tensor, at entries and at returns.
func probesRun(s *tracer.Session) float64 {
	return float64(s.Counted(bpf.CountEntries) + s.Counted(bpf.CountReturns))
}

// What source tensor costs a trainer, beside source heap, and how many probes each runs.
func BenchmarkTensorsOfATrainer(b *testing.B) {
	const warmup, steps = 50, 20
	trainer := startTrainer(b)
	trainer.train(warmup, nothing)
	perStep := make(map[string]float64)
	var ways []way
	for _, source := range []string{"tensor", "heap"} {
		options := tracer.Options{PID: trainer.PID(), Sources: []string{source}}
		s := open(b, options)
		before := probesRun(s)
		trainer.train(steps, nothing)
		perStep[source] = (probesRun(s) - before) / steps
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
		ways = append(ways, opening(source, options))
	}
	b.Run("probes", func(b *testing.B) {
		b.ReportMetric(0, "ns/op") // leaves it out
		b.ReportMetric(perStep["tensor"], "tensor/step")
		b.ReportMetric(perStep["heap"], "heap/step")
	})
	msPerStep := func() float64 {
		began := cpuTime(b, trainer.PID())
		trainer.train(steps, nothing)
		return float64((cpuTime(b, trainer.PID()) - began).Microseconds()) / 1000 / steps
	}
	report(b, ways, compare(b, ways, trainer.PID(), msPerStep), "ms-CPU/step", "heap")
}

// What it costs to sum up as many tensors as are followed at most, once a second.
func BenchmarkTotalsOfTensors(b *testing.B) {
	s := open(b, tracer.Options{PID: startTrainer(b).PID()})
	tensors := s.Maps()[bpf.MapTensors]
	for i := range tensors.MaxEntries() {
		if err := tensors.Put(bpf.Address{Address: 1 + uint64(i), Tgid: 1}, bpf.Allocation{Size: 4096, Interval: 1}); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		s.TensorTotals()
	}
}
