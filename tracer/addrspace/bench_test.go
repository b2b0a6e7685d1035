package addrspace

import (
	"math/rand/v2"
	"testing"

	"github.com/allocscope/allocscope/bpf"
)

// BenchmarkApply applies as many calls as a Journal keeps to an address space of 60,000 mappings,
// nearly as many as Linux allows by default.
func BenchmarkApply(b *testing.B) {
	const mappings = 60_000
	calls := make([]bpf.Event, 0, MaxCalls)
	for random := rand.New(rand.NewPCG(1, 1)); len(calls) < MaxCalls; {
		start := at(2 * random.Uint64N(mappings))
		calls = append(calls,
			bpf.Event{Kind: bpf.EventMunmap, Start: start, Length: page},
			bpf.Event{
				Kind: bpf.EventMmap, Start: start, Length: page, Flags: private, Descriptor: noFile,
			})
	}

	for b.Loop() {
		b.StopTimer()
		s := &IntervalSet{}
		for n := range uint64(mappings) {
			s.Mmap(by(1), at(2*n), page, private, noFile)
		}
		b.StartTimer()
		s.Apply(calls, nil, nil)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(calls)), "ns/call")
}
