package process

// Costs of reading.

import (
	"slices"
	"testing"
	"time"

	"github.com/allocscope/allocscope/tracer/mem"
)

const (
	benchBytes  = 1 << 30
	benchRounds = 9
)

// BenchmarkPagemap reports milliseconds of CPU time for each resident GiB, and the ratio to reading
// smaps_rollup. The ways alternate in one run.
func BenchmarkPagemap(b *testing.B) {
	for _, c := range []struct {
		name string
		fill func(b *testing.B) []byte
	}{
		{"small pages", func(b *testing.B) []byte {
			return touch(mapPages(b, benchBytes/pageBytes), pageBytes)
		}},
		{"every other page", func(b *testing.B) []byte {
			return touch(mapPages(b, 2*benchBytes/pageBytes), 2*pageBytes)
		}},
		{"huge pages", func(b *testing.B) []byte {
			return touch(mapHuge(b, benchBytes/hugeBytes), pageBytes)
		}},
	} {
		b.Run(c.name, func(b *testing.B) { benchmarkPagemap(b, c.fill(b)) })
	}
}

func benchmarkPagemap(b *testing.B, memory []byte) {
	p := openSelf(b)
	pagemap, start := openPagemap(b, p), addressOf(memory)
	end := start + uint64(len(memory))
	found := make([]mem.Run, 0, 1<<20)

	costs := make(map[string][]float64)
	for range benchRounds {
		for name, read := range map[string]func(){
			"scan":      func() { pagemap.canScan = true; must(pagemap.Runs(found, start, end)) },
			"anonymous": func() { pagemap.canScan = true; must(pagemap.AnonymousRuns(found, start, end)) },
			"read":      func() { pagemap.canScan = false; must(pagemap.Runs(found, start, end)) },
			"shared":    func() { pagemap.canScan = true; must(pagemap.SharedRuns(found, start, end)) },
			"rollup":    func() { must(p.read("smaps_rollup")) },
		} {
			costs[name] = append(costs[name], float64(MeasureCPUTime(read))/float64(time.Millisecond))
		}
	}

	b.ReportMetric(0, "ns/op")
	for name, cost := range costs {
		b.ReportMetric(median(cost), name+"-ms/GiB")
		if name != "rollup" {
			b.ReportMetric(median(cost)/median(costs["rollup"]), name+"-x-rollup")
		}
	}
}

// touch writes to memory in steps of some bytes.
func touch(memory []byte, step int) []byte {
	for i := 0; i < len(memory); i += step {
		memory[i] = 1
	}
	return memory
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}
