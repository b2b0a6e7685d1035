package growth

import "fmt"

// A callPath is a growing stack without its allocator.
type callPath struct {
	// frames, leaf first, never empty; same has the number of each: frames with one number are the same.
	frames []Frame
	same   []int
	// python is true where there are frames of Python.
	python bool
	// growth in bytes, above 0.
	growth float64
}

// A frameIdentity is what makes frames of different stacks the same: place is the file of Python code, with the line, and the
// module of any other.
type frameIdentity struct {
	function, place string
	line            int
	python          bool
}

func identityOf(f *Frame) frameIdentity {
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
	numbers := make(map[frameIdentity]int)
	paths := make([]callPath, len(grown))
	for i, t := range grown {
		p := callPath{frames: namedFrames(t.Stack), growth: t.Growth}
		p.same = make([]int, len(p.frames))
		for j := range p.frames {
			f := &p.frames[j]
			number, ok := numbers[identityOf(f)]
			if !ok {
				number = len(numbers)
				numbers[identityOf(f)] = number
			}
			p.same[j] = number
			p.python = p.python || f.Python
		}
		paths[i] = p
	}
	return paths
}

// namedFrames is never empty: a stack that was not kept has a made-up frame, or its root.
func namedFrames(s *Stack) []Frame {
	switch {
	case len(s.Frames) > 0:
		return WithoutAllocator(s.Frames)
	case s.Root != "":
		return []Frame{{Function: s.Root}}
	case s.Truncated != "":
		return []Frame{{Function: fmt.Sprintf("[stack not kept: %s]", s.Truncated)}}
	}
	return []Frame{{Function: "[stack unknown]"}}
}

// each calls f for every frame that may be a culprit, the deepest first, until it returns false. Where there is Python, its
// frames alone may: a line that can be changed, not the function of a library that all allocations go through.
func (p *callPath) each(f func(number int) bool) {
	for i, number := range p.same {
		if p.frames[i].Python == p.python && !f(number) {
			return
		}
	}
}

// commonFrame is the number of the culprit. For each path, the deepest of the frames that explain enough of the total counts
// with the path's growth; the one that is it for the most is the culprit. So recursion, and other ways to the same leaf, do
// not matter.
func commonFrame(paths []callPath, total float64) int {
	inclusive := inclusiveGrowth(paths)
	enough := 0.0
	for _, growth := range inclusive {
		enough = max(enough, growth)
	}
	enough = min(enough, explains*total)
	deepest := make(map[int]float64)
	best := -1
	for i := range paths {
		paths[i].each(func(number int) bool {
			if inclusive[number] < enough {
				return true
			}
			deepest[number] += paths[i].growth
			if best < 0 || deepest[number] > deepest[best] {
				best = number
			}
			return false
		})
	}
	return best
}

// inclusiveGrowth is for each frame the growth of the paths that it is on, once for each path, in bytes.
func inclusiveGrowth(paths []callPath) map[int]float64 {
	inclusive := make(map[int]float64)
	last := make(map[int]int) // the path that counted last, from 1
	for i := range paths {
		paths[i].each(func(number int) bool {
			if last[number] != i+1 {
				last[number] = i + 1
				inclusive[number] += paths[i].growth
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

func (p callPoint) frame() Frame { return p.frames[p.at] }

// pointsThrough is where the paths go through a frame, at its deepest. The order is kept.
func pointsThrough(paths []callPath, number int) []callPoint {
	var points []callPoint
	for i := range paths {
		for at, n := range paths[i].same {
			if n == number {
				points = append(points, callPoint{&paths[i], at})
				break
			}
		}
	}
	return points
}

// descend is the heaviest way from a frame, which is its first, to a leaf.
func descend(points []callPoint) []Frame {
	var way []Frame
	for len(points) > 0 {
		way = append(way, points[0].frame())
		points = heaviestBelow(points)
	}
	return way
}

// heaviestBelow is the callees of points that have the most growth together; none where more of it ends here.
func heaviestBelow(points []callPoint) []callPoint {
	const ends = -1
	below := func(p callPoint) int {
		if p.at == 0 {
			return ends
		}
		return p.same[p.at-1]
	}
	growth := make(map[int]float64)
	heaviest := ends
	for _, p := range points {
		growth[below(p)] += p.growth
		if growth[below(p)] > growth[heaviest] {
			heaviest = below(p)
		}
	}
	var callees []callPoint
	for _, p := range points {
		if heaviest != ends && below(p) == heaviest {
			callees = append(callees, callPoint{p.callPath, p.at - 1})
		}
	}
	return callees
}
