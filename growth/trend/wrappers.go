package trend

import (
	"slices"

	"github.com/allocscope/allocscope/growth"
)

// A function is an allocation wrapper where so many callers allocate through it without growth, and
// at least as many as grow: it serves the whole program.
const minOtherCallers = 4

// maxWrappers bounds the wrappers that call each other.
const maxWrappers = 3

// wrappers are functions that do little but allocate for their callers. They are known by their
// names (growth.IsAllocationWrapper), or by how many callers they have.
type wrappers map[functionIdentity]bool

// has reports whether a frame is a wrapper, if those below it are.
func (w wrappers) has(f *growth.Frame) bool {
	return !f.Python && (growth.IsAllocationWrapper(f.Function) || w[identityOf(f)])
}

// count is how many of a stack's frames, from the leaf on, are wrappers.
func (w wrappers) count(frames []growth.Frame) int {
	for i := range frames {
		if !w.has(&frames[i]) {
			return i
		}
	}
	return len(frames)
}

// wrappersOf finds wrappers without such names by all stacks, those that do not grow included.
func wrappersOf(trends []StackTrend) wrappers {
	found := make(wrappers)
	for range maxWrappers {
		if !found.addLevel(trends) {
			break
		}
	}
	return found
}

// callersOf are the functions that call a function, by whether some of its growth is theirs.
type callersOf map[functionIdentity]bool

// areServed reports whether the callers decide what becomes of the memory, and not the function.
func (c callersOf) areServed() bool {
	growing := 0
	for _, grows := range c {
		if grows {
			growing++
		}
	}
	return len(c)-growing >= max(minOtherCallers, growing)
}

// addLevel adds the functions that call the wrappers so far, and are wrappers themselves, with the
// functions through which they alone allocate.
func (w wrappers) addLevel(trends []StackTrend) (isMore bool) {
	callers := make(map[functionIdentity]callersOf)
	for i := range trends {
		frames := namedFrames(trends[i].Stack)
		for k := w.count(frames); k+1 < len(frames); k++ {
			own, caller := identityOf(&frames[k]), identityOf(&frames[k+1])
			if callers[own] == nil {
				callers[own] = make(callersOf)
			}
			callers[own][caller] = callers[own][caller] || trends[i].Grows()
		}
	}

	chains := make(map[functionIdentity][]functionIdentity) // from the innermost on
	isElse := make(wrappers)                                // does more than to allocate
	for i := range trends {
		frames := namedFrames(trends[i].Stack)
		chain := w.chainOf(frames, callers)
		if len(chain) == 0 {
			continue
		}
		last := chain[len(chain)-1]
		if before := chains[last]; before != nil && !slices.Equal(before, chain) {
			isElse[last] = true
		}
		chains[last] = chain
		for k := w.count(frames) + len(chain); k < len(frames); k++ {
			isElse[identityOf(&frames[k])] = true
		}
	}

	for last, chain := range chains {
		if callers[last].areServed() && !isElse[last] {
			for _, function := range chain {
				w[function], isMore = true, true
			}
		}
	}
	return isMore
}

// chainOf are the functions of a stack from the first that is no wrapper up to one with several
// callers: each of them is called by the next one alone.
func (w wrappers) chainOf(frames []growth.Frame, callers map[functionIdentity]callersOf) (chain []functionIdentity) {
	for k := w.count(frames); k+1 < len(frames); k++ {
		f := &frames[k]
		if f.Python || !f.HasName() {
			return nil
		}
		chain = append(chain, identityOf(f))
		if len(callers[identityOf(f)]) > 1 {
			return chain
		}
	}
	return nil
}
