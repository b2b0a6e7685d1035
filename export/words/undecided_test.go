package words

import (
	"slices"
	"testing"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
)

func TestUndecided(t *testing.T) {
	undecided := func(
		reason growth.UndecidedReason, why string, longerS *float64,
	) summary.Accumulation {
		return summary.Accumulation{
			Function: "f", Kind: growth.KindHeap, Bytes: 12 << 20, Trend: growth.TrendUndecided,
			UndecidedReason: reason, Untrackable: why, LongerS: longerS,
		}
	}
	all := []summary.Accumulation{
		undecided(growth.UndecidedFewSamples, "", known(230.0)),
		{Function: "leak", Kind: growth.KindHeap, Bytes: 11 << 20, Trend: growth.TrendAccumulating},
		undecided(growth.UndecidedUntrackable, "the allocator is jemalloc", nil),
		undecided(growth.UndecidedUnseenDeaths, "", known(2.0)),
		undecided(growth.UndecidedUntrackable, "", nil),
	}
	const begin = "cache or leak, undecided: f +12.0 MiB: "
	want := []string{
		begin + "too few of its objects were seen; trace 3.9 min more, or with a larger --overhead; full tracing (--overhead off) decides it",
		begin + "the allocator is jemalloc; only full tracing (--overhead off) decides it",
		begin + "most of it may have been freed unseen; trace 60 s more, or with a larger --overhead; full tracing (--overhead off) decides it",
		begin + "whether its objects are alive cannot be seen from outside; only full tracing (--overhead off) decides it",
	}

	if got := Undecided(all, 10); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if got := Undecided(all, 2); !slices.Equal(got, want[:2]) {
		t.Errorf("the largest two: %q", got)
	}
	if got := Undecided(all[1:2], 2); got != nil {
		t.Errorf("of what accumulates: %q", got)
	}
}
