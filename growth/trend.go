package growth

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// A Trend is what a stack does over a window of time.
type Trend string

// The trends of stacks.
const (
	TrendAccumulating Trend = "accumulating" // keeps what it allocates, at a pace that lasts
	TrendFilling      Trend = "filling"      // grew in the first half of the window, and hardly since
	TrendChurn        Trend = "churn"        // what is alive is young: allocated and freed
	TrendRefill       Trend = "refill"       // falls and rises again
	TrendNoGrowth     Trend = "no-growth"    // growth is not proven
	TrendUndecided    Trend = "undecided"    // grows, and it cannot be told yet whether what it holds is a cache or a leak
)

// A StackTrend is the judgement of one stack and kind over a window.
type StackTrend struct {
	Stack *Stack
	Kind  Kind
	GPU   string // as that of a Holding
	// Growth in bytes over the window: what was born in it and is alive, less what was alive before and has been freed. Low
	// and High are its 95 % interval; of what is not sampled, they are Growth.
	Growth, Low, High float64
	// Age is how evenly in time what has stayed was born: about 1 for a leak, about 0 for churn. 0 where no snapshot lies
	// within the window.
	Age float64
	// Trend is empty where growth is proven and no snapshot lies within the window, which tells a leak from churn.
	Trend Trend
	// Doubt is why Trend is undecided, else empty. Longer is about how much more watching of the same would end it; 0: none will.
	Doubt  Doubt
	Longer time.Duration
	// Rate is Growth in bytes per second; Score is the rate that is proven, less the more one half of the window had of it than
	// the other: the order of suspicion.
	Rate, Score float64
	// Share of the resident growth that it explains; NaN where nothing resident grew.
	Share float64

	seen *Sighting // nil: every call was watched
}

// A Window is the stretch of a trace over which stacks are judged.
type Window struct{ From, To time.Duration }

// JudgeStacks judges every stack and kind that holds memory at either end of a window. The snapshots are of one trace, in the
// order of time. The window begins at the one nearest to From and ends at the last one up to To, which must have Births. Of
// the others, only totals count. rssRate is the growth of resident memory over the window in bytes per second.
//
// What was watched in windows is undecided where the evidence for its growth does not carry it. Where the end has windows, it begins no
// earlier than when all growth came from windows.
//
// The result is sorted by Score, then Growth, largest first; nil where the window does not span two snapshots.
func JudgeStacks(snapshots []*Snapshot, window Window, rssRate float64) []StackTrend {
	w, ok := snapWindow(snapshots, window)
	if !ok {
		return nil
	}
	histories := w.histories()
	trends := make([]StackTrend, len(histories))
	for i := range histories {
		trends[i] = w.judge(&histories[i], oneInTwenty/float64(len(histories)))
		trends[i].Share = math.NaN()
		if rssRate > 0 {
			trends[i].Share = trends[i].Rate / rssRate
		}
	}
	slices.SortFunc(trends, func(a, b StackTrend) int {
		return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(b.Growth, a.Growth), cmp.Compare(a.Stack.ID, b.Stack.ID),
			cmp.Compare(a.Stack.PID, b.Stack.PID), cmp.Compare(a.Kind, b.Kind))
	})
	w.compare(trends, rssRate*w.seconds())
	return trends
}

// Label gives each holding the trend of its stack and kind, with the doubt of it; empty where none was judged.
func Label(grown []Holding, trends []StackTrend) {
	labels := make(map[holder]*StackTrend, len(trends))
	for i := range trends {
		labels[holderOf(trends[i].Stack, trends[i].Kind, trends[i].GPU)] = &trends[i]
	}
	for i := range grown {
		h := &grown[i]
		h.Trend, h.Doubt, h.Longer = "", "", 0
		if t, ok := labels[holderOf(h.Stack, h.Kind, h.GPU)]; ok {
			h.Trend, h.Doubt, h.Longer = t.Trend, t.Doubt, t.Longer
		}
	}
}
