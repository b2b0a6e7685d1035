package conclude

import (
	"slices"
	"time"

	"github.com/allocscope/allocscope/growth/census"
	"github.com/allocscope/allocscope/growth/diagnosis"
	"github.com/allocscope/allocscope/growth/keeper"
	"github.com/allocscope/allocscope/growth/trend"
)

const (
	// minKeptShare is the share of the growth that one keeper must hold before anything about the
	// keeper is said of the process.
	minKeptShare = 0.5
	// minAppendTime is the time between two looks at a container, and minAppended the entries that
	// it has gained meanwhile, from which on it says something that it has lost none.
	minAppendTime = 20 * time.Second
	minAppended   = 32
	// maxKeptTypes is how many of the types that grow most may be the kept ones.
	maxKeptTypes = 3
)

// addKept adds what the containers show that keep the growth of a process.
func (t *Trace) addKept(p *Process) {
	path := t.mainPath(p)
	if path == nil {
		return
	}
	if at := path.GrowingLink(); at >= 0 {
		l := &path.Links[at]
		gained := l.PerMinute * l.GrowthS / time.Minute.Seconds()
		p.Findings.AppendOnly = l.AppendOnly && gained >= minAppended &&
			l.GrowthS >= minAppendTime.Seconds()
	}
}

// mainPath is the path to most samples of what grows most in a process; nil: it is not known, or
// what it leads to is not most of the growth.
func (t *Trace) mainPath(p *Process) *keeper.Path {
	for _, s := range t.KeepersOf(p.History) {
		isMain := s.Stack != 0 && isOfMainStack(p.Suspects, s.Stack) ||
			s.Stack == 0 && t.isMainType(p, s.Type)
		if isMain && len(s.Paths) > 0 && 2*s.Paths[0].Samples >= s.Samples {
			return &s.Paths[0]
		}
	}
	return nil
}

// isOfMainStack reports whether a stack is one of the first suspect, which is most of the growth.
func isOfMainStack(suspects []trend.Suspect, stack uint64) bool {
	return len(suspects) > 0 && suspects[0].Share >= minKeptShare &&
		slices.Contains(suspects[0].StackIDs, stack)
}

// isMainType reports whether small objects are most of the growth, and a type is one of those that
// grow most.
func (t *Trace) isMainType(p *Process, name string) bool {
	isMain := slices.ContainsFunc(p.Diagnoses, func(d diagnosis.Diagnosis) bool {
		return d.Cause == diagnosis.PythonObjects && d.Share >= minKeptShare
	})
	before, after := t.CensusesOf(p.History, 0)
	if !isMain || before == nil || after == nil {
		return false
	}

	grown := census.Grown(before, after)
	return slices.ContainsFunc(grown[:min(maxKeptTypes, len(grown))],
		func(g census.TypeGrowth) bool { return g.Type == name })
}
