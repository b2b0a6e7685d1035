package trend

import (
	"slices"

	"github.com/allocscope/allocscope/growth"
)

// A branch is paths that meet in a function. Where they are spread over more call sites than can be
// named, sites is how many, and function is the one of the largest.
type branch struct {
	function int
	paths    []*callPath
	growth   float64 // of all paths
	sites    int
}

// branchesOf returns one branch where the paths have a lowest common function. Otherwise they part
// below the root: each function that is called there heads a branch, whose lowest common function
// is found in it. Branches with the same one are joined. It returns the branches with
// minBranchShare, in the order of the paths, and then the others as one that is spread, where they
// have minSpreadShare.
func branchesOf(paths []*callPath) []branch {
	total := growthOf(paths)
	if function, ok := lowestCommonFunction(paths, (*callPath).each); ok {
		all := branch{function: function, paths: paths, growth: total}
		return []branch{all.spread()}
	}

	functions := make(map[int]int) // lowest common function by outermost one
	heads := make(map[int][]*callPath)
	for _, p := range paths {
		heads[p.outermost()] = append(heads[p.outermost()], p)
	}

	for head, below := range heads {
		functions[head], _ = lowestCommonFunction(below, (*callPath).each) // at least head is
	}

	var branches []branch
	for _, p := range paths {
		function := functions[p.outermost()]
		i := slices.IndexFunc(branches, func(b branch) bool { return b.function == function })
		if i < 0 {
			i = len(branches)
			branches = append(branches, branch{function: function})
		}
		branches[i].paths = append(branches[i].paths, p)
		branches[i].growth += p.Growth
	}

	var large []branch
	var rest branch
	for _, b := range branches {
		if b.growth >= minBranchShare*total {
			large = append(large, b.spread())
			continue
		}
		rest.paths = append(rest.paths, b.paths...)
		rest.growth += b.growth
	}
	if rest.growth >= minSpreadShare*total {
		rest.function, rest.sites, _ = sitesOf(rest.paths)
		large = append(large, rest)
	}
	return large
}

// spread is the branch, spread over its call sites where it is code of the user's own and none of
// them has minBranchShare: then it is no use to name what they meet in alone.
func (b branch) spread() branch {
	isOwn := func(p *callPath) bool { return p.code >= ownCode }

	function, sites, largest := sitesOf(b.paths)
	if largest < minBranchShare*b.growth && slices.ContainsFunc(b.paths, isOwn) {
		b.function, b.sites = function, sites
	}
	return b
}

// sitesOf returns how many call sites the paths have: lines of functions, of the frames nearest to
// the leaf that may be a suspect's. function is the one of the largest, which has so much growth.
func sitesOf(paths []*callPath) (function, sites int, largest float64) {
	type site struct{ id, line int }
	byGrowth := make(map[site]float64)
	for _, p := range paths {
		p.each(func(at, id int) bool {
			own := site{id, p.frames[at].Line}
			byGrowth[own] += p.Growth
			if byGrowth[own] > largest {
				function, largest = id, byGrowth[own]
			}
			return false
		})
	}

	return function, len(byGrowth), largest
}

// commonCaller returns the function of the user's own code nearest to the leaf that most of the
// growth leads through, the start of a thread or program included, without its line where there are
// several. ok is false if there is none.
func commonCaller(paths []*callPath) (caller growth.Frame, ok bool) {
	common, ok := lowestCommonFunction(paths, (*callPath).eachOwn)
	if !ok {
		return caller, false
	}

	isFirst := true
	for _, p := range paths {
		p.eachOwn(func(at, id int) bool {
			switch {
			case id != common:
				return true
			case isFirst:
				caller, isFirst = p.frames[at], false
			case p.frames[at].Line != caller.Line:
				caller.Line = 0
			}
			return true
		})
	}

	return caller, true
}
