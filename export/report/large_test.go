package report

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// largeTrace is the trace of four hours of a large program: 60 snapshots, a row a second, 2,000
// stacks of 60 frames. The stacks share their callers as in a program: each leaves another one
// somewhere.
func largeTrace(t testing.TB) *Trace {
	t.Helper()
	s := leakingSummary()
	s.DurationS, s.SnapshotsS = 14_400, nil
	for i := range 60 {
		s.SnapshotsS = append(s.SnapshotsS, float64(i)*244)
	}
	one := s.Accumulating[0]
	one.Stack, one.HistoryBytes = nil, nil
	for d := range 60 {
		one.Stack = append(one.Stack, fmt.Sprintf("a_function_with_a_long_name_%d (/usr/lib/python3/dist-packages/torch/nn/modules/module_%d.py:%d)",
			d, d, d))
		one.HistoryBytes = append(one.HistoryBytes, int64(d)*mib)
	}
	s.Accumulating = nil
	for range 50 {
		s.Accumulating = append(s.Accumulating, one)
	}
	random := rand.New(rand.NewPCG(1, 2))
	list := timelineRows(14_400)
	for i := range list {
		list[i].RSS += random.Int64N(mib)
		list[i].Tree.RSS += random.Int64N(mib)
	}
	return &Trace{Summary: s, Rows: list, Growth: built(t, manyHoldings(random)...)}
}

func manyHoldings(random *rand.Rand) []growth.Holding {
	const stacks, depth = 2000, 60
	held := []growth.Holding{
		{Stack: stackOf(0, depth), Kind: growth.KindHeap, InuseObjects: 1, ResidentBytes: 1 << 20},
	}
	for id := 1; id < stacks; id++ {
		own := stackOf(id, depth)
		// Frames of its own; it shares the outer ones with an earlier stack.
		leaves := random.IntN(depth) + 1
		copy(own.Frames[leaves:], held[random.IntN(id)].Stack.Frames[leaves:])
		held = append(held, growth.Holding{
			Stack: own, Kind: growth.KindHeap, InuseObjects: float64(random.IntN(1000)),
			ResidentBytes: 4096 + random.Int64N(8*mib),
		})
	}
	return held
}

func TestReportSize(t *testing.T) {
	var out bytes.Buffer
	tracertest.NoError(t, Write(&out, largeTrace(t)))
	// The rest is for the script and the style.
	if out.Len() > 4_500_000 || out.Len() < 500_000 {
		t.Errorf("it has %d bytes", out.Len())
	}
}

func BenchmarkReport(b *testing.B) {
	dir := folderOf(b, written(b, largeTrace(b)))
	for b.Loop() {
		trace, err := Read(dir)
		tracertest.NoError(b, err)
		err = dir.WriteFile(folder.ReportFile, func(w io.Writer) error { return Write(w, trace) })
		tracertest.NoError(b, err)
	}
}
