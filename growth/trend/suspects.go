package trend

import (
	"cmp"
	"math"
	"regexp"
	"slices"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/component"
)

const (
	// minInclusiveShare of a growth is most of it.
	minInclusiveShare = 0.8
	// minBranchShare of a component's growth makes a branch a suspect, and of a suspect's growth a
	// line one of its lines.
	minBranchShare = 0.1
	// minSpreadShare of a component's growth, in branches that are smaller, is a suspect that is
	// spread.
	minSpreadShare = 0.2
	// maxStackIDs bounds Suspect.StackIDs.
	maxStackIDs = 64
)

// A Suspect is the code behind most of the growth of one component, or of a branch of it.
type Suspect struct {
	// Component of the stacks.
	Component string
	// Frame is the lowest common function: the one nearest to the leaf below which lies at least
	// 80% of the growth. It is the user's code where the stacks have any, else Python's where they
	// have it. It is as on the stack that grew most of those through the first of Lines.
	Frame growth.Frame
	// Lines of the function that its growth passes through, the largest share first: one through
	// which 80% does, or all with 10% each, at least one. None where lines are unknown.
	Lines []LineShare
	// Inclusive is the share of Growth below Frame, 0 to 1.
	Inclusive float64
	// Growth of all stacks of the component, or of the branch, in bytes, and the lower end of its
	// 95% confidence interval. Rate in bytes per second.
	Growth, Low, Rate float64
	// Share of the RSS growth that they explain; NaN where the RSS did not grow.
	Share float64
	// Stacks is their number, and StackIDs are those that grew most, the first one most.
	Stacks   int
	StackIDs []uint64
	// Sites are how many call sites the growth is spread over, none of which has 10% of it; 0 where
	// it is not. Frame is then the function of the largest. Common is the user's own function
	// nearest to the leaf that most of the growth leads through; its Function is empty where there
	// is none.
	Sites  int
	Common growth.Frame
	// Path is the way from Frame to the leaf along which most was allocated, Frame first, without
	// the allocator. Above is the callers of Frame on the same stack, nearest first.
	Path, Above []growth.Frame
	// Trend of most of the growth. Where that is TrendReplaced, Objects are how many objects are
	// replaced by larger ones, and Now their bytes at the end; else both are 0.
	Trend        growth.Trend
	Objects, Now float64
	// NewCode is how many executable files the process maps newly, per second, where Path leads
	// through PyTorch's compiler: kernels of recompilations. 0 elsewhere.
	NewCode float64
}

var compilerFile = regexp.MustCompile(`/torch/_(dynamo|inductor)/`)

// ThroughCompiler reports whether Path leads through PyTorch's compiler.
func (s *Suspect) ThroughCompiler() bool {
	return slices.ContainsFunc(s.Path, func(f growth.Frame) bool {
		return compilerFile.MatchString(f.File)
	})
}

// IsAt reports whether two suspects, of two processes, have the call site in common: a line of one
// function.
func (s Suspect) IsAt(other Suspect) bool {
	if s.Frame.Function != other.Frame.Function || s.Frame.File != other.Frame.File {
		return false
	}
	return len(s.Lines) == 0 || slices.ContainsFunc(other.Lines,
		func(l LineShare) bool { return l.Line == s.Lines[0].Line })
}

// A LineShare is a line of a function, and its share of the function's growth, 0 to 1.
type LineShare struct {
	Line  int     `json:"line"`
	Share float64 `json:"share"`
}

// Suspects returns for each component with growing stacks the code that they have in common. Where
// no function below the root explains most of it, there is a suspect for each branch. The result is
// sorted by Growth, largest first.
func Suspects(trends []StackTrend, rules *component.Rules) []Suspect {
	byComponent := make(map[string][]StackTrend)
	for _, t := range trends {
		if t.Grows() {
			component := rules.Of(t.Stack)
			byComponent[component] = append(byComponent[component], t)
		}
	}

	wrap := wrappersOf(trends)
	suspects := make([]Suspect, 0, len(byComponent))
	for component, grown := range byComponent {
		slices.SortFunc(grown, compareGrowth)
		for _, b := range branchesOf(callPathsOf(grown, wrap)) {
			suspects = append(suspects, suspectOf(component, b))
		}
	}
	slices.SortStableFunc(suspects, func(a, b Suspect) int {
		return cmp.Or(cmp.Compare(b.Growth, a.Growth), cmp.Compare(a.Component, b.Component))
	})

	return suspects
}

// compareGrowth puts the stack that grew most first.
func compareGrowth(a, b StackTrend) int {
	return cmp.Or(
		cmp.Compare(b.Growth, a.Growth), cmp.Compare(a.Stack.ID, b.Stack.ID),
		cmp.Compare(a.Stack.PID, b.Stack.PID), cmp.Compare(a.Kind, b.Kind),
	)
}

func suspectOf(component string, b branch) Suspect {
	c := Suspect{Component: component, Stacks: len(b.paths), Growth: b.growth}
	var margin float64 // below Growth; of independent errors, squared
	byTrend := make(map[growth.Trend]float64)
	for _, p := range b.paths {
		if len(c.StackIDs) < maxStackIDs {
			c.StackIDs = append(c.StackIDs, p.Stack.ID)
		}
		c.Rate += p.Rate
		c.Share += p.Share
		margin += (p.Growth - p.Low) * (p.Growth - p.Low)
		c.Objects, c.Now = c.Objects+p.Objects, c.Now+p.Now
		byTrend[p.Trend] += p.Growth
		if byTrend[p.Trend] > byTrend[c.Trend] {
			c.Trend = p.Trend
		}
	}
	c.Low = c.Growth - math.Sqrt(margin)
	if c.Trend != growth.TrendReplaced {
		c.Objects, c.Now = 0, 0
	}

	if b.sites > 0 {
		c.Sites = b.sites
		c.Common, _ = commonCaller(b.paths)
	}

	points := pointsThrough(b.paths, b.function)
	var inclusive float64
	for _, p := range points {
		inclusive += p.Growth
	}
	c.Inclusive = inclusive / c.Growth

	var top []callPoint
	c.Lines, top = linesOf(points)
	c.Frame, c.Above = top[0].frame(), top[0].frames[top[0].at+1:]
	c.Path = descend(top)

	return c
}
