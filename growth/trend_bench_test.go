package growth

import (
	"math/rand/v2"
	"testing"
	"time"
)

// BenchmarkJudgeStacks judges 2,000 stacks of 40 frames over 60 snapshots, and names the culprits.
func BenchmarkJudgeStacks(b *testing.B) {
	random := rand.New(rand.NewPCG(1, 1))
	var sampled [][]simulatedObject
	for i := range 2000 {
		draw := simulatedFamilies[i%len(simulatedFamilies)].draw
		sampled = append(sampled, sampledBytewise(random, draw(random, logUniform(random, 8<<10, 1<<20)), 512<<10))
	}
	trace := simulatedTrace(sampled, 512<<10)[20:]
	stacks := make(map[*Stack]bool)
	for _, s := range trace {
		for _, h := range s.Holdings {
			stacks[h.Stack] = true
		}
	}
	for stack := range stacks {
		for depth := range 40 {
			stack.Frames = append(stack.Frames, pythonFrame("f", "/src/train.py", random.IntN(1+1000>>(depth/4))))
		}
	}
	var judging, naming time.Duration
	for b.Loop() {
		start := time.Now()
		trends := JudgeStacks(trace, simulatedWindow, 1e6)
		judging += time.Since(start)
		Culprits(trends, nil)
		naming += time.Since(start)
	}
	naming -= judging
	b.ReportMetric(float64(len(stacks)), "stacks")
	b.ReportMetric(float64(len(trace)), "snapshots")
	b.ReportMetric(judging.Seconds()*1000/float64(b.N), "ms/judging")
	b.ReportMetric(naming.Seconds()*1000/float64(b.N), "ms/naming")
}
