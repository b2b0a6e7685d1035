package growth

import "time"

// A Trend is what a stack does over a window of time.
type Trend string

// The trends of stacks.
const (
	TrendAccumulating Trend = "accumulating" // keeps what it allocates, at a pace that lasts
	TrendFilling      Trend = "filling"      // grew in the first half of the window, and hardly since
	TrendChurn        Trend = "churn"        // what is alive is young: allocated and freed
	TrendRefill       Trend = "refill"       // falls and rises again
	TrendNoGrowth     Trend = "no-growth"    // growth is not proven
)

// A StackTrend is the judgement of one stack and kind over a window.
type StackTrend struct {
	Stack *Stack
	Kind  Kind
	// Growth in bytes over the window: what was born in it and is alive, less what was alive before and has been freed. Low
	// and High are its 95 % interval.
	Growth, Low, High float64
	// Age is how evenly in time what has stayed was born: about 1 for a leak, about 0 for churn.
	Age   float64
	Trend Trend
	// Rate is Growth in bytes per second; Score is the rate that is proven, discounted by Age: the order of suspicion.
	Rate, Score float64
	// Share of the resident growth that it explains; NaN where nothing resident grew.
	Share float64
}

// A Window is the stretch of a trace over which stacks are judged.
type Window struct{ From, To time.Duration }
