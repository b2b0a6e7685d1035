package trend

import (
	"cmp"
	"math"
	"slices"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/component"
)

// minInclusiveShare of its component's growth lies below a suspect's frame, where any frame has as
// much.
const minInclusiveShare = 0.8

// A Suspect is the code behind most of the growth of one component.
type Suspect struct {
	// Component of the stacks.
	Component string
	// Frame is the lowest common frame: the one nearest to the leaf below which lies at least 80%
	// of the component's growth, or as much as below any frame. On stacks with Python frames it is
	// one of these. It is as on the stack that grew most.
	Frame growth.Frame
	// Inclusive is the share of the component's growth below Frame, 0 to 1.
	Inclusive float64
	// Growth of all the component's stacks in bytes, and the lower end of its 95% confidence
	// interval. Rate in bytes per second.
	Growth, Low, Rate float64
	// Share of the RSS growth that they explain; NaN where the RSS did not grow.
	Share float64
	// Stacks is their number.
	Stacks int
	// Path is the way from Frame to the leaf along which most was allocated, Frame first, without
	// the allocator. Above is the callers of Frame on the stack that grew most, nearest first.
	Path, Above []growth.Frame
	// Trend of most of the growth.
	Trend growth.Trend
}

// Suspects returns for each component with growing stacks the code that they have in common. The
// result is sorted by Growth, largest first.
func Suspects(trends []StackTrend, rules *component.Rules) []Suspect {
	byComponent := make(map[string][]StackTrend)
	for _, t := range trends {
		if t.Grows() {
			component := rules.Of(t.Stack)
			byComponent[component] = append(byComponent[component], t)
		}
	}

	suspects := make([]Suspect, 0, len(byComponent))
	for component, grown := range byComponent {
		suspects = append(suspects, suspectOf(component, grown))
	}
	slices.SortFunc(suspects, func(a, b Suspect) int {
		return cmp.Or(cmp.Compare(b.Growth, a.Growth), cmp.Compare(a.Component, b.Component))
	})

	return suspects
}

func suspectOf(component string, grown []StackTrend) Suspect {
	slices.SortFunc(grown, func(a, b StackTrend) int {
		return cmp.Or(
			cmp.Compare(b.Growth, a.Growth), cmp.Compare(a.Stack.ID, b.Stack.ID),
			cmp.Compare(a.Stack.PID, b.Stack.PID), cmp.Compare(a.Kind, b.Kind),
		)
	})

	c := Suspect{Component: component, Stacks: len(grown)}
	var margin float64 // below Growth; of independent errors, squared
	byTrend := make(map[growth.Trend]float64)
	for _, t := range grown {
		c.Growth += t.Growth
		c.Rate += t.Rate
		c.Share += t.Share
		margin += (t.Growth - t.Low) * (t.Growth - t.Low)
		byTrend[t.Trend] += t.Growth
		if byTrend[t.Trend] > byTrend[c.Trend] {
			c.Trend = t.Trend
		}
	}
	c.Low = c.Growth - math.Sqrt(margin)

	paths := callPathsOf(grown)
	points := pointsThrough(paths, lowestCommonFrame(paths, c.Growth))
	c.Frame, c.Above = points[0].frame(), points[0].frames[points[0].at+1:]
	var inclusive float64
	for _, p := range points {
		inclusive += p.growth
	}
	c.Inclusive = inclusive / c.Growth
	c.Path = descend(points)

	return c
}
