package growth

import (
	"math"
	"math/rand/v2"
	"testing"
)

func BenchmarkJudge14400(b *testing.B) { benchmarkJudge(b, 14_400) }

func BenchmarkJudge10Million(b *testing.B) { benchmarkJudge(b, 10_000_000) }

// A watch of 4 hours: warm-up, plateau, spikes and a leak.
func benchmarkJudge(b *testing.B, n int) {
	random := rand.New(rand.NewPCG(1, 2))
	s := Series{X: make([]float64, n), Y: make([]float64, n)}
	for i := range n {
		x := 14_400 * float64(i) / float64(n)
		y := 8e9*math.Min(1, 0.2+x/2000) + 1e5*x + 3e7*random.NormFloat64()
		if math.Mod(x, 300) < 60 {
			y += 2e9
		}
		s.X[i], s.Y[i] = x, y
	}
	b.ResetTimer()
	for b.Loop() {
		if v := Judge(s, Setting{}, InSeconds()); v.Class != ClassLeak {
			b.Fatalf("%s (%s), want a leak", v.Class, v.Why)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N), "ms/judgement")
}
