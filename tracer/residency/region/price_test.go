package region

import (
	"testing"

	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

const trainer = `
import sys, torch
model = torch.nn.Sequential(*[torch.nn.Linear(2048, 2048) for _ in range(8)])
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(2):
    model(torch.randn(64, 2048)).sum().backward()
    optimizer.step()
kept = [torch.randn(300_000) for _ in range(100)] + [[object() for _ in range(1000)] for _ in range(1000)]
print("ready", flush=True)
sys.stdin.readline()
`

// BenchmarkClassify tells the price for a process that trains, and for maps of many pieces and of much memory in one, all of
// it resident and full of headers that lead nowhere, read at no cost.
func BenchmarkClassify(b *testing.B) {
	b.Run("torch", func(b *testing.B) {
		running := tracertest.Start(b, "/usr/bin/python3", "-c", trainer)
		running.Await("ready")
		target := openTarget(b, running.PID())
		maps := target.maps()
		Classify(maps, nil, target)
		target.peeks, target.calls = 0, 0
		var regions []Region
		for b.Loop() {
			regions = Classify(maps, nil, target)
		}
		b.ReportMetric(float64(target.peeks)/float64(b.N), "peeks/op")
		b.ReportMetric(float64(target.calls)/float64(b.N), "reads/op")
		b.Log("MiB in memory: ", target.residentMiB(regions))
	})
	b.Run("60000-mappings", func(b *testing.B) { benchmarkOn(b, pieces(60_000, 1<<20, 2<<20)) })
	b.Run("50-GB", func(b *testing.B) { benchmarkOn(b, pieces(1, 50<<30, 0)) })
}

// residentMiB sums the pages in memory by class, but for those of files.
func (g *target) residentMiB(regions []Region) map[Class]float64 {
	sums := make(map[Class]float64)
	for _, r := range regions {
		if r.Class == File || r.Class == Kernel {
			continue
		}
		for page := r.Start; page < r.End; page += pageSize {
			if g.Resident(page) {
				sums[r.Class] += float64(pageSize) / (1 << 20)
			}
		}
	}
	return sums
}

// pieces are anonymous mappings of a size, at a distance from each other.
func pieces(count int, size, distance uint64) []process.Mapping {
	var maps []process.Mapping
	for at := uint64(1 << 40); count > 0; count-- {
		maps = append(maps, process.Mapping{Start: at, End: at + size, Read: true, Write: true})
		at += distance
	}
	return maps
}

func benchmarkOn(b *testing.B, maps []process.Mapping) {
	memory := &forged{chunk: 1 << 20}
	for b.Loop() {
		Classify(maps, nil, memory)
	}
	b.ReportMetric(float64(memory.peeks)/float64(b.N), "peeks/op")
	b.ReportMetric(float64(memory.calls)/float64(b.N), "reads/op")
}

// forged is memory in which every page begins as a chunk of malloc does.
type forged struct {
	chunk        uint64
	peeks, calls int
}

func (m *forged) Resident(uint64) bool { return true }

func (m *forged) Peek(addresses []uint64, size int) [][]byte {
	m.calls++
	m.peeks += len(addresses)
	content := make([]byte, size)
	for i := 0; i < 8; i++ {
		content[8+i] = byte((m.chunk | 2) >> (8 * i))
	}
	contents := make([][]byte, len(addresses))
	for i := range contents {
		contents[i] = content
	}
	return contents
}
