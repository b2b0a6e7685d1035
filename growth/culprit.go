package growth

import (
	"cmp"
	"math"
	"slices"
)

// explains is the share of its owner's growth that a culprit has below it, where any frame has as much.
const explains = 0.8

// A Culprit is the code behind most of the growth of one owner.
type Culprit struct {
	// Owner of the stacks, as Owners tell it.
	Owner string
	// Frame is the deepest one, nearest to the leaf, that explains at least 80 % of the owner's growth; where there is none,
	// one that explains the most. Of stacks with frames of Python, it is one of these. It is as on the heaviest stack.
	Frame Frame
	// Inclusive is the share of the owner's growth that lies below Frame, 0 to 1.
	Inclusive float64
	// Growth of all the owner's stacks in bytes, and the lower end of its 95 % interval; Rate in bytes per second.
	Growth, Low, Rate float64
	// Share of the resident growth that they explain; NaN where nothing resident grew.
	Share float64
	// Stacks is how many there are.
	Stacks int
	// Path is the heaviest way from Frame down to the leaf, Frame first, without the allocator. Above is the callers of Frame
	// on the heaviest stack, nearest first.
	Path, Above []Frame
	// Trend that most of the growth has.
	Trend Trend
}

// Culprits names for each owner of growing stacks the code that they have in common. What churns, refills, is not proven
// to grow or is undecided does not count. The result is sorted by Growth, largest first.
func Culprits(trends []StackTrend, owners *Owners) []Culprit {
	owned := make(map[string][]StackTrend)
	for _, t := range trends {
		if t.grows() {
			owner := owners.Of(t.Stack)
			owned[owner] = append(owned[owner], t)
		}
	}
	culprits := make([]Culprit, 0, len(owned))
	for owner, grown := range owned {
		culprits = append(culprits, culpritOf(owner, grown))
	}
	slices.SortFunc(culprits, func(a, b Culprit) int {
		return cmp.Or(cmp.Compare(b.Growth, a.Growth), cmp.Compare(a.Owner, b.Owner))
	})
	return culprits
}

func (t *StackTrend) grows() bool {
	switch t.Trend {
	case TrendNoGrowth, TrendChurn, TrendRefill, TrendUndecided:
		return false
	}
	return t.Growth > 0
}

func culpritOf(owner string, grown []StackTrend) Culprit {
	c := Culprit{Owner: owner, Stacks: len(grown)}
	slices.SortFunc(grown, func(a, b StackTrend) int {
		return cmp.Or(cmp.Compare(b.Growth, a.Growth), cmp.Compare(a.Stack.ID, b.Stack.ID),
			cmp.Compare(a.Stack.PID, b.Stack.PID), cmp.Compare(a.Kind, b.Kind))
	})
	var below float64 // what the growth may be less, squared
	byTrend := make(map[Trend]float64)
	for _, t := range grown {
		c.Growth += t.Growth
		c.Rate += t.Rate
		c.Share += t.Share
		below += (t.Growth - t.Low) * (t.Growth - t.Low)
		byTrend[t.Trend] += t.Growth
		if byTrend[t.Trend] > byTrend[c.Trend] {
			c.Trend = t.Trend
		}
	}
	c.Low = c.Growth - math.Sqrt(below)
	paths := callPathsOf(grown)
	at := pointsThrough(paths, commonFrame(paths, c.Growth))
	c.Frame, c.Above = at[0].frame(), at[0].frames[at[0].at+1:]
	var inclusive float64
	for _, a := range at {
		inclusive += a.growth
	}
	c.Inclusive = inclusive / c.Growth
	c.Path = descend(at)
	return c
}
