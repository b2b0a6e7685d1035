package words

import (
	"slices"
	"testing"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
)

func TestUndecided(t *testing.T) {
	longer := func(seconds float64) *float64 { return &seconds }
	all := []summary.Accumulation{
		{
			Function:        "a",
			Kind:            growth.KindHeap,
			Bytes:           12 << 20,
			Trend:           growth.TrendUndecided,
			UndecidedReason: growth.UndecidedFewSamples,
			LongerS:         longer(230),
		},
		{Function: "leak", Kind: growth.KindHeap, Bytes: 11 << 20, Trend: growth.TrendAccumulating},
		{
			Function:        "b",
			Kind:            growth.KindHeap,
			Bytes:           10 << 20,
			Trend:           growth.TrendUndecided,
			UndecidedReason: growth.UndecidedUntrackable,
			Untrackable:     "the allocator is jemalloc",
		},
		{
			Function:        "c",
			Kind:            growth.KindHeap,
			Bytes:           9 << 20,
			Trend:           growth.TrendUndecided,
			UndecidedReason: growth.UndecidedUnseenDeaths,
			LongerS:         longer(2),
		},
		{
			Function:        "d",
			Kind:            growth.KindHeap,
			Bytes:           8 << 20,
			Trend:           growth.TrendUndecided,
			UndecidedReason: growth.UndecidedHeapGrowth,
		},
		{
			Function:        "e",
			Kind:            growth.KindHeap,
			Bytes:           7 << 20,
			Trend:           growth.TrendUndecided,
			UndecidedReason: growth.UndecidedSizeClass,
		},
		{
			Function:        "f",
			Kind:            growth.KindHeap,
			Bytes:           6 << 20,
			Trend:           growth.TrendUndecided,
			UndecidedReason: growth.UndecidedFewBursts,
			LongerS:         longer(7000),
		},
		{
			Function:        "g",
			Kind:            growth.KindHeap,
			Bytes:           5 << 20,
			Trend:           growth.TrendUndecided,
			UndecidedReason: growth.UndecidedUntrackable,
		},
	}
	want := []string{
		"cache or leak, undecided: a +12.0 MiB: too few of its objects were seen; trace 3.9 min more, or with a larger --overhead; full tracing (--overhead off) decides it",
		"cache or leak, undecided: b +10.0 MiB: the allocator is jemalloc; only full tracing (--overhead off) decides it",
		"cache or leak, undecided: c +9.00 MiB: most of it may have been freed unseen; trace 60 s more, or with a larger --overhead; full tracing (--overhead off) decides it",
		"cache or leak, undecided: d +8.00 MiB: the heap has not grown by as much; only full tracing (--overhead off) decides it",
		"cache or leak, undecided: e +7.00 MiB: other growing objects of the same size may have taken their place; only full tracing (--overhead off) decides it",
		"cache or leak, undecided: f +6.00 MiB: all objects that were seen come from one or two bursts; trace 117 min more, or with a larger --overhead; full tracing (--overhead off) decides it",
		"cache or leak, undecided: g +5.00 MiB: whether its objects are alive cannot be seen from outside; only full tracing (--overhead off) decides it",
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
