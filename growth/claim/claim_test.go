package claim

import (
	"testing"

	"github.com/allocscope/allocscope/growth"
)

// lost has a column for each of Claims: x where the loss takes the claim away.
var lost = []struct {
	kind  growth.LossKind
	takes string
}{
	//                           free-memory, fragmentation, no-leak, live-objects, exact-counts, every-call
	{growth.LossLiveFull, "xxxxxx"},
	{growth.LossThreadState, "xxxxxx"},
	{growth.LossOutPointer, "xxxxxx"},
	{growth.LossMissedReturn, "xxxxxx"},
	{growth.LossMissedFree, "xxxxxx"},
	{growth.LossEvents, "xxx.xx"},
	{Bursts, "xx.xxx"},
	{Sampled, "....xx"},
	{growth.LossTallyFull, "....x."},
	{growth.LossNoMemory, "....x."},
	{growth.LossFaultsFull, "....x."},
	{growth.LossGPUFull, "....x."},
	{growth.LossIdleHoldings, "....x."},
	{growth.LossMappingStacks, "......"},
	{growth.LossSiteStacks, "......"},
	{growth.LossTruncatedStacks, "......"},
	{growth.LossPythonFrames, "......"},
	{growth.LossUnknownStacks, "......"},
	{growth.LossForgottenStacks, "......"},
	{growth.LossUnwindTables, "......"},
	{growth.LossUnwindMappings, "......"},
	{growth.LossProcesses, "......"},
	{"a kind that the table lacks", "xxxxxx"},
}

func TestLost(t *testing.T) {
	const own, other = 7, 8
	for _, c := range lost {
		for i, claim := range Claims {
			isTaken := c.takes[i] == 'x'
			for pid, takes := range map[int]bool{0: isTaken, own: isTaken, other: false} {
				loss := growth.Loss{Kind: c.kind, Count: 1, PID: pid}
				got, ok := May(claim, own, growth.Losses{loss})
				if ok == takes || takes && got != loss {
					t.Errorf("%s of PID %d, %s: may %t because of %+v", c.kind, pid, claim, ok, got)
				}
			}
			if _, ok := May(claim, 0, growth.Losses{{Kind: c.kind, PID: other}}); ok == isTaken {
				t.Errorf("%s of a process, %s of the tree: may %t", c.kind, claim, ok)
			}
		}
	}

	if known := len(lost) - 1; len(taken) != known {
		t.Errorf("the table has %d kinds of losses, this one %d", len(taken), known)
	}
}

func TestMay(t *testing.T) {
	losses := growth.Losses{
		{Kind: Sampled},
		{Kind: growth.LossTruncatedStacks, Count: 99},
		{Kind: growth.LossMissedFree, Count: 2},
		{Kind: growth.LossLiveFull, Count: 5},
		{Kind: growth.LossEvents, Count: 5},
		{Kind: growth.LossLiveFull, Count: 9, PID: 8},
	}
	if got, ok := May(EveryCall, 7, losses); ok || got != losses[3] {
		t.Errorf("may %t because of %+v, want the first of the most frequent ones", ok, got)
	}

	if got, ok := May(EveryCall, 7, nil); !ok || got != (growth.Loss{}) {
		t.Errorf("may %t because of %+v without losses", ok, got)
	}
}

func TestMayRow(t *testing.T) {
	losses := growth.Losses{{Kind: growth.LossLiveFull, Count: 5, PID: 7}}
	for kind, want := range map[growth.Kind]bool{
		growth.KindHeap: false, growth.KindMetadata: false, growth.KindRetained: false,
		growth.KindUnclassified: false, growth.KindMmap: true, growth.KindFile: true,
		growth.KindUnexplained: true,
	} {
		if _, ok := MayRow(kind, 7, losses); ok != want {
			t.Errorf("%s: %t", kind, ok)
		}
		if _, ok := MayRow(kind, 8, losses); !ok {
			t.Errorf("%s of another process", kind)
		}
	}
}

func TestMissing(t *testing.T) {
	s := &growth.Snapshot{Interval: 1, Losses: growth.Losses{{Kind: growth.LossEvents, Count: 3}}}
	if got := Missing(s); len(got) != 1 || got[0] != s.Losses[0] {
		t.Errorf("%+v, want the loss", got)
	}

	s.Interval, s.Heap.Bursts = 512<<10, 2
	got := Missing(s)
	if len(got) != 3 || got[1].Kind != Bursts || got[2].Kind != Sampled || len(s.Losses) != 1 {
		t.Errorf("%+v, want the loss, bursts and sampling", got)
	}
}
