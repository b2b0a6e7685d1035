package trend

import (
	"github.com/allocscope/allocscope/growth"
)

// A callPath is a growing stack without its allocator.
type callPath struct {
	// frames, leaf first, never empty. Frames with one id are the same function, or line of Python.
	frames []growth.Frame
	ids    []int
	// hasPython is true where there are frames of Python.
	hasPython bool
	// growth in bytes, above 0.
	growth float64
}

// A frameIdentity is equal for frames of different stacks that are the same. place is the file of
// Python code, which also has a line, and the module of native code.
type frameIdentity struct {
	function, place string
	line            int
	python          bool
}

func identityOf(f *growth.Frame) frameIdentity {
	switch {
	case f.Python:
		return frameIdentity{f.Function, f.File, f.Line, true}
	case f.Module != nil:
		return frameIdentity{function: f.Function, place: f.Module.Path}
	}
	return frameIdentity{function: f.Function}
}

// callPathsOf keeps the order of the stacks.
func callPathsOf(grown []StackTrend) []callPath {
	ids := make(map[frameIdentity]int)
	paths := make([]callPath, len(grown))
	for i, t := range grown {
		p := callPath{frames: namedFrames(t.Stack), growth: t.Growth}
		p.ids = make([]int, len(p.frames))
		for j := range p.frames {
			f := &p.frames[j]
			id, ok := ids[identityOf(f)]
			if !ok {
				id = len(ids)
				ids[identityOf(f)] = id
			}
			p.ids[j] = id
			p.hasPython = p.hasPython || f.Python
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

// each calls f for every frame that may be a suspect's, leaf first, until it returns false. With
// Python frames on the path, those alone may: they are lines that the user can change, not a
// library function that all allocations go through.
func (p *callPath) each(f func(id int) bool) {
	for i, id := range p.ids {
		if p.frames[i].Python == p.hasPython && !f(id) {
			return
		}
	}
}

// lowestCommonFrame returns the id of a suspect's frame. Each path votes with its growth for the
// frame nearest to its leaf that explains enough of the total. So neither recursion nor other ways
// to the same leaf matter.
func lowestCommonFrame(paths []callPath, total float64) int {
	inclusive := inclusiveGrowth(paths)
	enough := 0.0
	for _, growth := range inclusive {
		enough = max(enough, growth)
	}
	enough = min(enough, minInclusiveShare*total)

	votes := make(map[int]float64)
	best := -1
	for i := range paths {
		paths[i].each(func(id int) bool {
			if inclusive[id] < enough {
				return true
			}
			votes[id] += paths[i].growth
			if best < 0 || votes[id] > votes[best] {
				best = id
			}
			return false
		})
	}

	return best
}

// inclusiveGrowth returns by frame the growth of the paths that contain it, in bytes. A path counts
// once for a recursive frame.
func inclusiveGrowth(paths []callPath) map[int]float64 {
	inclusive := make(map[int]float64)
	last := make(map[int]int) // path that counted last, from 1
	for i := range paths {
		paths[i].each(func(id int) bool {
			if last[id] != i+1 {
				last[id] = i + 1
				inclusive[id] += paths[i].growth
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

// pointsThrough returns the points nearest to the leaf where the paths contain a frame, in their
// order.
func pointsThrough(paths []callPath, frame int) []callPoint {
	var points []callPoint
	for i := range paths {
		for at, id := range paths[i].ids {
			if id == frame {
				points = append(points, callPoint{&paths[i], at})
				break
			}
		}
	}
	return points
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
		growth[callee] += p.growth
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
