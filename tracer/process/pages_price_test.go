package process

// What it costs to look at pages: `make bench`.

import (
	"slices"
	"testing"
	"time"
)

const (
	priceBytes  = 1 << 30
	priceRounds = 9
)

// BenchmarkLookingAtAResidentGibibyte measures in turns, and gives milliseconds of processor time a resident GiB, and how
// many times that is what reading smaps_rollup costs.
func BenchmarkLookingAtAResidentGibibyte(b *testing.B) {
	for _, c := range []struct {
		name string
		fill func(b *testing.B) []byte
	}{
		{"small pages", func(b *testing.B) []byte { return fill(mapPages(b, priceBytes/pageBytes), pageBytes) }},
		{"every other page", func(b *testing.B) []byte { return fill(mapPages(b, 2*priceBytes/pageBytes), 2*pageBytes) }},
		{"huge pages", func(b *testing.B) []byte { return fill(mapHuge(b, priceBytes/hugeBytes), pageBytes) }},
	} {
		b.Run(c.name, func(b *testing.B) { lookPrices(b, c.fill(b)) })
	}
}

// fill touches memory in steps of so many bytes.
func fill(memory []byte, step int) []byte {
	for i := 0; i < len(memory); i += step {
		memory[i] = 1
	}
	return memory
}

func lookPrices(b *testing.B, memory []byte) {
	p := openSelf(b)
	pages, start, end := pagesOf(b, p), addressOf(memory), addressOf(memory)+uint64(len(memory))
	found := make([]PageRun, 0, 1<<20)
	var err error
	took := make(map[string][]float64)
	for range priceRounds {
		for name, look := range map[string]func(){
			"scan":      func() { pages.scan = true; _, err = pages.Runs(found, start, end) },
			"anonymous": func() { pages.scan = true; _, err = pages.AnonymousRuns(found, start, end) },
			"read":      func() { pages.scan = false; _, err = pages.Runs(found, start, end) },
			"shared":    func() { pages.scan = true; _, err = pages.Shared(found, start, end) },
			"rollup":    func() { _, _, err = p.Rollup() },
		} {
			took[name] = append(took[name], float64(ProcessorTime(look))/float64(time.Millisecond))
			if err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(0, "ns/op")
	for name, times := range took {
		b.ReportMetric(middle(times), name+"-ms/GiB")
		if name != "rollup" {
			b.ReportMetric(middle(times)/middle(took["rollup"]), name+"-x-rollup")
		}
	}
}

// BenchmarkReadingAtManyAddresses compares with opening the memory for each.
func BenchmarkReadingAtManyAddresses(b *testing.B) {
	const count, size = 20_000, 48
	memory := fill(mapPages(b, count), pageBytes)
	p, addresses, buffer := openSelf(b), make([]uint64, count), make([]byte, size)
	for i := range addresses {
		addresses[i] = addressOf(memory) + uint64(i*pageBytes)
	}
	var peek, each []float64
	for range priceRounds {
		peek = append(peek, float64(ProcessorTime(func() { p.Peek(addresses, size) }))/count)
		each = append(each, float64(ProcessorTime(func() {
			for _, a := range addresses {
				p.ReadMemory(a, buffer)
			}
		}))/count)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(middle(peek), "ns/address")
	b.ReportMetric(middle(each)/middle(peek), "x-cheaper-than-one-by-one")
}

func middle(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}
