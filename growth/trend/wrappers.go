package trend

import "github.com/allocscope/allocscope/growth"

// A function is an allocation wrapper where so many callers allocate through it, and at most half of
// them grow: it serves the whole program.
const minWrapperCallers = 8

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

// addLevel adds the functions that call the wrappers so far, and are wrappers themselves.
func (w wrappers) addLevel(trends []StackTrend) (isMore bool) {
	callers := make(map[functionIdentity]map[functionIdentity]bool) // which of them grow
	isElse := make(wrappers)                                        // does more than to allocate

	for i := range trends {
		frames := namedFrames(trends[i].Stack)
		at := w.count(frames)
		for k := at; k < len(frames); k++ {
			if own := identityOf(&frames[k]); k > at {
				isElse[own] = true
			} else if f := &frames[k]; !f.Python && f.HasName() && k+1 < len(frames) {
				if callers[own] == nil {
					callers[own] = make(map[functionIdentity]bool)
				}
				caller := identityOf(&frames[k+1])
				callers[own][caller] = callers[own][caller] || trends[i].Grows()
			}
		}
	}

	for function, all := range callers {
		growing := 0
		for _, grows := range all {
			if grows {
				growing++
			}
		}
		if len(all) >= minWrapperCallers && 2*growing <= len(all) && !isElse[function] {
			w[function], isMore = true, true
		}
	}

	return isMore
}
