package conclude

import (
	"slices"
	"time"

	"github.com/allocscope/allocscope/growth/diagnosis"
	"github.com/allocscope/allocscope/growth/keeper"
)

const (
	// minKeptShare is the share of the growth that one keeper must hold before anything about the
	// keeper is said of the process.
	minKeptShare = 0.5
	// minAppendTime is the time between two looks at a container, and minAppended the entries that
	// it has gained meanwhile, from which on it says something that it has lost none.
	minAppendTime = 20 * time.Second
	minAppended   = 32
)

// addKept adds what the containers show that keep the growth of a process.
func (t *Trace) addKept(p *Process) {
	path := mainPath(p, t.KeepersOf(p.History))
	if path == nil {
		return
	}
	if at := path.GrowingLink(); at >= 0 {
		p.Findings.AppendOnly = isAppendOnly(&path.Links[at])
	}
}

// isAppendOnly reports whether a container has gained entries for a while, and lost none.
func isAppendOnly(l *keeper.Link) bool {
	gained := l.PerMinute * l.GrowthS / time.Minute.Seconds()
	return l.AppendOnly && gained >= minAppended && l.GrowthS >= minAppendTime.Seconds()
}

// mainPath is the path to most samples of what grows most in a process: of the first suspect, or of
// a type where most growth is small Python objects. nil: it is not known, or neither is most of the
// growth.
func mainPath(p *Process, keepers []keeper.Search) *keeper.Path {
	var stacks []uint64
	if len(p.Suspects) > 0 && p.Suspects[0].Share >= minKeptShare {
		stacks = slices.Clone(p.Suspects[0].StackIDs)
	}
	isOfObjects := func(d diagnosis.Diagnosis) bool {
		return d.Cause == diagnosis.PythonObjects && d.Share >= minKeptShare
	}
	if slices.ContainsFunc(p.Diagnoses, isOfObjects) {
		stacks = append(stacks, 0) // of the types that grow most
	}

	for i := range keepers {
		s := &keepers[i]
		if len(s.Paths) > 0 && 2*s.Paths[0].Samples >= s.Samples && slices.Contains(stacks, s.Stack) {
			return &s.Paths[0]
		}
	}
	return nil
}
