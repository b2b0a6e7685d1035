package trend

import (
	"cmp"
	"slices"

	"github.com/allocscope/allocscope/growth"
)

// A callPath is a growing stack without its allocator.
type callPath struct {
	StackTrend // Growth is above 0
	// frames, leaf first, never empty. Frames with one id are the same function.
	frames []growth.Frame
	ids    []int
	ranks  []codeRank
	// code is the highest of ranks.
	code codeRank
}

// A codeRank orders code by how well the user can change it. Last are the functions that only
// allocate for others or start a thread, and code without a name.
type codeRank int

const (
	wrapperCode codeRank = iota
	unnamedCode
	nativeCode
	pythonCode
	ownCode
	userCode
)

func rankOf(f *growth.Frame) codeRank {
	switch {
	case f.IsUserCode():
		return userCode
	case f.Python:
		return pythonCode
	case f.Module != nil && !f.HasName():
		return unnamedCode
	case f.IsOwnNative():
		return ownCode
	case f.Module != nil && f.IsRoot():
		return wrapperCode
	}
	return nativeCode
}

// A functionIdentity is equal for frames of different stacks that are the same function. place is
// the source file of Python and of generated code, and the module of native code. Functions of one
// name in one file differ by their first line.
type functionIdentity struct {
	function, place string
	startLine       int
	python          bool
}

func identityOf(f *growth.Frame) functionIdentity {
	switch {
	case f.Python || f.File != "":
		return functionIdentity{f.Function, f.File, f.StartLine, f.Python}
	case f.Module != nil:
		return functionIdentity{function: f.Function, place: f.Module.Path}
	}
	return functionIdentity{function: f.Function}
}

// callPathsOf keeps the order of the stacks.
func callPathsOf(grown []StackTrend, wrap wrappers) []*callPath {
	ids := make(map[functionIdentity]int)
	paths := make([]*callPath, len(grown))
	for i, t := range grown {
		p := &callPath{StackTrend: t, frames: namedFrames(t.Stack)}
		p.ids, p.ranks = make([]int, len(p.frames)), make([]codeRank, len(p.frames))
		wrapping := wrap.count(p.frames)
		for j := range p.frames {
			f := &p.frames[j]
			id, ok := ids[identityOf(f)]
			if !ok {
				id = len(ids)
				ids[identityOf(f)] = id
			}
			p.ids[j] = id
			if j >= wrapping {
				p.ranks[j] = rankOf(f)
			}
			p.code = max(p.code, p.ranks[j])
		}
		paths[i] = p
	}

	return paths
}

// namedFrames is never empty: a lost stack gets a frame for its root or for the reason.
func namedFrames(s *growth.Stack) []growth.Frame {
	switch {
	case len(s.Frames) > 0:
		return growth.WithoutAllocator(s.Frames)
	case s.Root != "":
		return []growth.Frame{{Function: s.Root}}
	}
	return []growth.Frame{s.LostFrame()}
}

// each calls f for every frame that may be a suspect's, leaf first, until it returns false. These
// are frames of the user's Python code where the path has any, else the program's own native code,
// else of Python, else native ones, else code without a name: not a library's function that all
// allocations go through, nor a wrapper of malloc. A root counts only as the first of them, where
// the allocation is its own.
func (p *callPath) each(f func(at, id int) bool) {
	first := true
	for at, id := range p.ids {
		frame := &p.frames[at]
		if frame.Function == growth.FramesLeftOut {
			continue
		}
		if p.ranks[at] == p.code && (first || !frame.IsRoot()) {
			if !f(at, id) {
				return
			}
			first = false
		}
	}
}

// outermost returns the id of the function nearest to the root that may be a suspect's.
func (p *callPath) outermost() (outermost int) {
	p.each(func(_, id int) bool {
		outermost = id
		return true
	})
	return outermost
}

func growthOf(paths []*callPath) (total float64) {
	for _, p := range paths {
		total += p.Growth
	}
	return total
}

// eachOwn calls f for every frame of the user's own code, leaf first, until it returns false.
func (p *callPath) eachOwn(f func(at, id int) bool) {
	for at, id := range p.ids {
		if p.ranks[at] >= ownCode && !f(at, id) {
			return
		}
	}
}

// framesOf calls f for some frames of a path, leaf first, until it returns false.
type framesOf func(p *callPath, f func(at, id int) bool)

// lowestCommonFunction returns the id of the function nearest to the leaf that most of the growth
// leads through, of some frames of the paths. Each path votes with its growth for the one nearest
// to its leaf. So neither recursion nor other ways to the same leaf matter. ok is false if there is
// none.
func lowestCommonFunction(paths []*callPath, frames framesOf) (function int, ok bool) {
	inclusive := inclusiveGrowth(paths, frames)
	enough := minInclusiveShare * growthOf(paths)

	votes := make(map[int]float64)
	for _, p := range paths {
		frames(p, func(_, id int) bool {
			if inclusive[id] < enough {
				return true
			}
			votes[id] += p.Growth
			if !ok || votes[id] > votes[function] {
				function, ok = id, true
			}
			return false
		})
	}

	return function, ok
}

// inclusiveGrowth returns by function the growth of the paths that contain it, in bytes. A path
// counts once for a recursive function.
func inclusiveGrowth(paths []*callPath, frames framesOf) map[int]float64 {
	inclusive := make(map[int]float64)
	last := make(map[int]*callPath) // path that counted last
	for _, p := range paths {
		frames(p, func(_, id int) bool {
			if last[id] != p {
				last[id] = p
				inclusive[id] += p.Growth
			}
			return true
		})
	}
	return inclusive
}

// A callPoint is a frame of a path.
type callPoint struct {
	*callPath
	at int
}

func (p callPoint) frame() growth.Frame { return p.frames[p.at] }

// pointsThrough returns the points nearest to the leaf where the paths contain a function, in their
// order.
func pointsThrough(paths []*callPath, function int) (points []callPoint) {
	for _, p := range paths {
		p.each(func(at, id int) bool {
			if id == function {
				points = append(points, callPoint{p, at})
			}
			return id != function
		})
	}
	return points
}

// linesOf returns the lines of a function that the growth of its points passes through, the largest
// share first: one where most passes through it or none has minBranchShare, else those that have.
// It also returns the points of the first. There are no lines where they are unknown.
func linesOf(points []callPoint) (lines []LineShare, top []callPoint) {
	byLine := make(map[int]float64)
	total := 0.0
	for _, p := range points {
		byLine[p.frame().Line] += p.Growth
		total += p.Growth
	}

	for line, growth := range byLine {
		lines = append(lines, LineShare{line, growth / total})
	}
	slices.SortFunc(lines, func(a, b LineShare) int {
		return cmp.Or(cmp.Compare(b.Share, a.Share), cmp.Compare(a.Line, b.Line))
	})

	for _, p := range points {
		if p.frame().Line == lines[0].Line {
			top = append(top, p)
		}
	}

	if lines[0].Share >= minInclusiveShare || lines[0].Share < minBranchShare {
		lines = lines[:1]
	}
	lines = slices.DeleteFunc(lines, func(l LineShare) bool {
		return l.Line == 0 || len(lines) > 1 && l.Share < minBranchShare
	})
	return lines, top
}

// descend follows the callees with the most growth from a frame, which it returns first, to a leaf.
func descend(points []callPoint) []growth.Frame {
	var path []growth.Frame
	for len(points) > 0 {
		path = append(path, points[0].frame())
		points = topCallee(points)
	}
	return path
}

// topCallee returns the callees of points that have the most growth together; none where more of it
// ends at the points.
func topCallee(points []callPoint) []callPoint {
	const leaf = -1
	calleeOf := func(p callPoint) int {
		if p.at == 0 {
			return leaf
		}
		return p.ids[p.at-1]
	}

	growth := make(map[int]float64)
	top := leaf
	for _, p := range points {
		callee := calleeOf(p)
		growth[callee] += p.Growth
		if growth[callee] > growth[top] {
			top = callee
		}
	}

	var callees []callPoint
	for _, p := range points {
		if top != leaf && calleeOf(p) == top {
			callees = append(callees, callPoint{p.callPath, p.at - 1})
		}
	}
	return callees
}
