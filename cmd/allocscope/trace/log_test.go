package trace

import (
	"bytes"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/growth"
)

// inStorm is the overhead of a trace whose heap is sampled in bursts.
func inStorm() *summary.Overhead {
	slowdown, inProbes := 0.019, 2.5
	return &summary.Overhead{
		Limit: 0.03, Slowdown: &slowdown, InProbesS: &inProbes, OwnS: 0.4, OwnLimitS: 2, TracedS: 50,
		Mode: summary.HeapBursts, Bursts: 11, OpenS: 5.5, LagS: 60, IntervalBytes: 64 << 10,
	}
}

func TestOverheadResult(t *testing.T) {
	var out bytes.Buffer
	s := &summary.Summary{
		DurationS: 300, Overhead: inStorm(),
		Accumulating: []summary.Accumulation{{Function: "leak", Kind: growth.KindHeap}},
	}

	if err := PrintDetails(&out, s, "folder"); err != nil {
		t.Fatal(err)
	}

	mustSay(t, "the result", out.String(), append(words.OverheadLines(s),
		"Stacks that grew since the baseline (heap from "+words.FromBursts(s.Overhead)+"):")...)
	out.Reset()
	s.Overhead = &summary.Overhead{Mode: summary.HeapFull}
	if err := PrintDetails(&out, s, "folder"); err != nil || strings.Contains(out.String(),
		"overhead") || !strings.Contains(out.String(), "since the baseline:\n") {
		t.Errorf("without a limit prints %v\n%s", err, out.String())
	}
}
