// Package trend judges the growth of stacks over a window of time, and finds the code behind their
// growth.
package trend

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/allocscope/allocscope/growth"
)

// A StackTrend is the judgement of one stack and kind over a window.
type StackTrend struct {
	Stack *growth.Stack
	Kind  growth.Kind
	GPU   string // as in a Holding
	// Growth in bytes over the window: bytes born in it and alive, less bytes from before that were
	// freed. Low and High are its 95% confidence interval, both Growth where it is exact.
	Growth, Low, High float64
	// Age is how evenly in time the remaining memory was born: about 1 for a leak, about 0 for
	// transient memory. 0 where no snapshot lies within the window.
	Age float64
	// Trend is empty where growth is proven and no snapshot lies within the window, which would
	// tell a leak from transient memory.
	Trend growth.Trend
	// Undecided is why Trend is TrendUndecided, else empty. Longer is about how much longer to
	// watch until it is decided; 0: watching does not help.
	Undecided growth.UndecidedReason
	Longer    time.Duration
	// Rate is Growth in bytes per second. Score orders suspects: the rate that is proven, less the
	// more the growth lies in one half of the window.
	Rate, Score float64
	// Share of the RSS growth that it explains; NaN where the RSS did not grow.
	Share float64

	// Objects are how many objects are replaced by larger ones, and Now their bytes at the end; 0
	// unless Trend is TrendReplaced.
	Objects, Now float64

	evidence *growth.BurstEvidence // nil where every call was probed
	// isSteady: each half of the window has a third of the growth. Set where Trend is
	// TrendReplaced.
	isSteady bool
}

// Grows is true of memory that may be leaked: neither transient, refilled nor undecided.
func (t *StackTrend) Grows() bool {
	switch t.Trend {
	case growth.TrendNoGrowth, growth.TrendTransient, growth.TrendRefilled, growth.TrendUndecided:
		return false
	}
	return t.Growth > 0
}

// A Window is the part of a trace over which stacks are judged.
type Window struct{ From, To time.Duration }

// JudgeStacks judges every stack and kind that holds memory at either end of a window. The
// snapshots are of one trace, in the order of time. The window begins at the snapshot nearest to
// From and ends at the last one up to To, which must have Births. Of the others, only totals count.
// rssRate is the growth of the RSS over the window in bytes per second.
//
// A stack sampled in bursts is undecided where the evidence does not prove its growth. With bursts
// at the end, the window begins no earlier than HeapCoverage.Settled.
//
// The result is sorted by Score, then Growth, largest first; nil where the window does not span two
// snapshots.
func JudgeStacks(snapshots []*growth.Snapshot, window Window, rssRate float64) []StackTrend {
	r, ok := rangeOf(snapshots, window)
	if !ok {
		return nil
	}

	stacks := r.stacks()
	trends := make([]StackTrend, len(stacks))
	risk := growth.SignificanceLevel / float64(len(stacks)) // Bonferroni
	for i := range stacks {
		trends[i] = r.judge(&stacks[i], risk)
		trends[i].Share = math.NaN()
		if rssRate > 0 {
			trends[i].Share = trends[i].Rate / rssRate
		}
	}
	r.judgeOrigins(stacks, trends, risk)

	slices.SortFunc(trends, func(a, b StackTrend) int {
		return cmp.Or(
			cmp.Compare(b.Score, a.Score), cmp.Compare(b.Growth, a.Growth),
			cmp.Compare(a.Stack.ID, b.Stack.ID), cmp.Compare(a.Stack.PID, b.Stack.PID),
			cmp.Compare(a.Kind, b.Kind),
		)
	})
	r.crossCheck(trends, r.heapGrowth(rssRate*r.seconds())-exactGrowth(stacks))

	return trends
}

// Label gives each holding the trend of its stack, kind and GPU; none where it was not judged.
func Label(grown []growth.Holding, trends []StackTrend) {
	labels := make(map[growth.Key]*StackTrend, len(trends))
	for i := range trends {
		t := &trends[i]
		labels[growth.KeyOf(t.Stack, t.Kind, t.GPU)] = t
	}

	for i := range grown {
		h := &grown[i]
		h.Trend, h.Undecided, h.Longer = "", "", 0
		if t, ok := labels[h.Key()]; ok {
			h.Trend, h.Undecided, h.Longer = t.Trend, t.Undecided, t.Longer
		}
	}
}

// A snapshotRange is a window whose ends and middle are snapshots.
type snapshotRange struct {
	// snapshots from its start to its end, at least two.
	snapshots []*growth.Snapshot
	// middle is the index of the snapshot nearest to the middle; 0 without one between the ends.
	middle int
	// startBin and middleBin are the last of the end's Bins before the start and the middle; -1
	// without one.
	startBin, middleBin int
}

// rangeOf returns false where the window does not span two snapshots of different times.
func rangeOf(snapshots []*growth.Snapshot, window Window) (snapshotRange, bool) {
	end := -1
	for i, s := range snapshots {
		if s.Elapsed <= window.To {
			end = i
		}
	}

	start := -1
	distance := func(i int) time.Duration { return (snapshots[i].Elapsed - window.From).Abs() }
	for i, s := range snapshots[:end+1] {
		isSettled := s.Elapsed >= snapshots[end].Heap.Settled()
		if isSettled && (start < 0 || distance(i) < distance(start)) {
			start = i
		}
	}
	if start < 0 || end <= start || snapshots[end].Elapsed <= snapshots[start].Elapsed {
		return snapshotRange{}, false
	}

	r := snapshotRange{snapshots: snapshots[start : end+1]}
	r.middle = r.nearestToMiddle()
	r.startBin = growth.LastBin(r.end().Bins, r.start().Elapsed)
	r.middleBin = growth.LastBin(r.end().Bins, r.snapshots[r.middle].Elapsed)

	return r, true
}

func (r *snapshotRange) start() *growth.Snapshot { return r.snapshots[0] }

func (r *snapshotRange) end() *growth.Snapshot { return r.snapshots[len(r.snapshots)-1] }

func (r *snapshotRange) seconds() float64 { return (r.end().Elapsed - r.start().Elapsed).Seconds() }

func (r *snapshotRange) nearestToMiddle() int {
	from, to := r.start().Elapsed, r.end().Elapsed
	middle := from + (to-from)/2
	distance := func(i int) time.Duration { return (r.snapshots[i].Elapsed - middle).Abs() }

	best := 0
	for i, s := range r.snapshots {
		isWithin := s.Elapsed > from && s.Elapsed < to
		if isWithin && (best == 0 || distance(i) < distance(best)) {
			best = i
		}
	}
	return best
}

// A stackSeries is the memory of one stack and kind over a window.
type stackSeries struct {
	stack *growth.Stack
	kind  growth.Kind
	gpu   string
	// start and end are its holdings there; middle is in bytes.
	start, end growth.Holding
	middle     int64
	// peak and lowest of its bytes; drawdown is the deepest fall.
	peak, lowest, drawdown int64
	// snapshots included in peak, lowest and drawdown: up to the last that has the stack.
	snapshots int
	sizes     objectSizes
}

// stacks returns all that held memory at the start or the end. Memory that no source saw being
// allocated is left to the breakdown.
func (r *snapshotRange) stacks() []stackSeries {
	index := make(map[growth.Key]int, len(r.end().Holdings))
	var stacks []stackSeries
	for _, s := range []*growth.Snapshot{r.start(), r.end()} {
		for i := range s.Holdings {
			h := &s.Holdings[i]
			if _, ok := index[h.Key()]; !ok && !h.IsResidentOnly() {
				index[h.Key()] = len(stacks)
				stacks = append(stacks, stackSeries{stack: h.Stack, kind: h.Kind, gpu: h.GPU})
			}
		}
	}

	for at, s := range r.snapshots {
		for i := range s.Holdings {
			h := &s.Holdings[i]
			if known, ok := index[h.Key()]; ok {
				r.add(&stacks[known], at, h)
			}
		}
	}

	return stacks
}

// add adds the holding of the snapshot at an index. Snapshots before it that do not have the stack
// count as 0 bytes. All bytes are by the slowdown of the end: its first estimates may be many times
// too much, which is no fall.
func (r *snapshotRange) add(stack *stackSeries, at int, h *growth.Holding) {
	for stack.snapshots < at {
		stack.addBytes(0)
	}
	bytes := h.RescaledInuse(&r.snapshots[at].Heap, &r.end().Heap)
	stack.addBytes(bytes)
	stack.sizes.add(h, bytes, r.middle != 0 && at > r.middle)

	switch at {
	case 0:
		stack.start = *h
	case r.middle:
		stack.middle = bytes
	case len(r.snapshots) - 1:
		stack.end = *h
	}
}

func (h *stackSeries) addBytes(bytes int64) {
	if h.snapshots == 0 {
		h.peak, h.lowest = bytes, bytes
	}
	h.peak, h.lowest = max(h.peak, bytes), min(h.lowest, bytes)
	h.drawdown = max(h.drawdown, h.peak-bytes)
	h.snapshots++
}

// isRefilled is true of a sawtooth: it fell by more than half of its range.
func (h *stackSeries) isRefilled() bool { return h.drawdown > (h.peak-h.lowest)/2 }

// evidence at the end, or at the start of a stack that is gone; nil where every call was probed.
func (h *stackSeries) evidence() *growth.BurstEvidence {
	if h.end.Evidence != nil {
		return h.end.Evidence
	}
	return h.start.Evidence
}
