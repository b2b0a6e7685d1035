package conclude

import (
	"slices"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/census"
	"github.com/allocscope/allocscope/growth/diagnosis"
	"github.com/allocscope/allocscope/growth/keeper"
	"github.com/allocscope/allocscope/growth/trend"
	"github.com/allocscope/allocscope/growth/verdict"
)

const (
	// minKeptShare is the share of the growth that one keeper must hold before anything about the
	// keeper is said of the process.
	minKeptShare = 0.5
	// minBoundSamples is the share of the samples that a container with a limit must keep.
	minBoundSamples = 0.8
	// minAppendTime is the time between two readings of a container, and minAppended the entries
	// that it has gained meanwhile, from which on it says something that it has lost none.
	minAppendTime = 20 * time.Second
	minAppended   = 32
	// A series is flat at its end if it grows by no more than maxFlatShare of its rate in the last
	// flatTime, with so many samples at least.
	flatTime       = 20 * time.Second
	minFlatSamples = 4
	maxFlatShare   = 0.1
	// minWriteOnlyTime is the time between two readings of a container that nothing reads, from
	// which on it is a leak.
	minWriteOnlyTime = 2 * time.Minute
)

// keptGrowth is growth that a container may keep: its halves as in verdict.Shape, its suspects, and
// the present size, in bytes; growth.Unknown where there is none.
type keptGrowth struct {
	halves   float64
	suspects []trend.Suspect
	now      float64
	hasEnded bool // the series is flat at its end
}

// addKept adds the findings on the containers that keep the growth of a process.
func (t *Trace) addKept(p *Process) {
	if p.History == nil {
		return
	}

	keepers := t.KeepersOf(p.History)
	g := keptGrowth{halves: p.Judged.Shape.Halves, suspects: p.Suspects, now: growth.Unknown}
	if series := p.History.Timeline.Series(); len(series.Y) > 0 {
		g.now = series.Y[len(series.Y)-1]
		g.hasEnded = isFlatAtEnd(series, p.Judged.Rate)
	}
	g.addTo(&p.Findings, mainSearch(p, keepers), garbageSearch(p, keepers))
}

// addTo adds the findings of two searches, each nil where there is none: the one of which the first
// path explains most of the growth, and the one that found most of it to be garbage.
func (g keptGrowth) addTo(f *verdict.Findings, found, waiting *keeper.Search) {
	f.Garbage = waiting != nil && waiting.Waits.For != ""
	if found == nil {
		return
	}

	path := &found.Paths[0]
	if at := path.GrowingLink(); at >= 0 {
		l := &path.Links[at]
		isWhole := float64(path.Samples) >= minBoundSamples*float64(found.Samples)
		f.AppendOnly = isAppendOnly(l)
		f.WriteOnly = isWriteOnly(l) && isWhole
		if b := g.boundOf(path, at); b != nil && isWhole {
			f.Bound = b
		}
	}
}

// isFlatAtEnd reports whether a series that has grown at a rate, by the second, grows by a tenth of
// that at most in the last flatTime.
func isFlatAtEnd(s verdict.Series, rate float64) bool {
	last := len(s.X) - 1
	from := s.X[last] - flatTime.Seconds()
	i := slices.IndexFunc(s.X, func(x float64) bool { return x >= from })
	return i > 0 && last-i >= minFlatSamples &&
		s.Y[last]-s.Y[i] <= maxFlatShare*rate*(s.X[last]-s.X[i])
}

// boundOf is the end of growth that a container with a limit keeps; nil: it has none, or has met
// it while the growth goes on, or its entries become larger. An entry takes as much as the growth
// of the first suspect says.
func (g keptGrowth) boundOf(path *keeper.Path, at int) *verdict.Bound {
	l := &path.Links[at]
	isLarger := g.halves > sameHalves || slices.ContainsFunc(path.Links[at+1:],
		func(within keeper.Link) bool { return within.PerMinute > 0 })
	isOver := l.Limit <= int64(l.Entries) && !g.hasEnded
	if l.Limit == 0 || isLarger || isOver || len(g.suspects) == 0 || g.now == growth.Unknown {
		return nil
	}

	first := &g.suspects[0]
	perEntry := first.Rate / (l.PerMinute / time.Minute.Seconds())
	return &verdict.Bound{
		Of: verdict.BoundContainer, Share: min(1, first.Share), Now: g.now,
		Left: perEntry * float64(max(0, l.Limit-int64(l.Entries))),
	}
}

// withoutRates returns searches whose containers have no rates: a mean rate over growth and the time
// after it would be neither.
func withoutRates(keepers []keeper.Search) []keeper.Search {
	keepers = slices.Clone(keepers)
	for i := range keepers {
		s := &keepers[i]
		s.Paths = slices.Clone(s.Paths)
		for j := range s.Paths {
			p := &s.Paths[j]
			p.Links = slices.Clone(p.Links)
			for n := range p.Links {
				p.Links[n].PerMinute, p.Links[n].GrowthS, p.Links[n].AppendOnly = 0, 0, false
			}
		}
	}
	return keepers
}

// isAppendOnly reports whether a container has gained entries for a while, and lost none.
func isAppendOnly(l *keeper.Link) bool {
	return l.AppendOnly && gained(l) >= minAppended && l.GrowthS >= minAppendTime.Seconds()
}

// gained is the number of entries that a container has gained between its readings.
func gained(l *keeper.Link) float64 { return l.PerMinute * l.GrowthS / time.Minute.Seconds() }

// isWriteOnly reports whether a container without a limit has lost no entry for minutes, and no
// code of the program reads it, removes from it or replaces it.
func isWriteOnly(l *keeper.Link) bool {
	return l.WriteOnly && l.Limit == 0 && isAppendOnly(l) && l.GrowthS >= minWriteOnlyTime.Seconds()
}

// mainSearch is the search of which the first path explains the largest part of the growth of a
// process; nil: there is none.
func mainSearch(p *Process, keepers []keeper.Search) *keeper.Search {
	return searchThat(p, keepers, isExplained)
}

// isExplained reports whether the first path leads to half of the samples of a search.
func isExplained(s *keeper.Search) bool {
	return len(s.Paths) > 0 && 2*s.Paths[0].Samples >= s.Samples
}

// garbageSearch is the search that has found most of the growth of a process to be garbage; nil:
// there is none.
func garbageSearch(p *Process, keepers []keeper.Search) *keeper.Search {
	return searchThat(p, keepers, isGarbage)
}

// isGarbage reports whether most samples of a search are garbage.
func isGarbage(s *keeper.Search) bool { return 2*s.Garbage > s.Samples }

// searchThat is the search for the largest part of the growth of a process: for the first suspect,
// or for a type where most growth is small Python objects or tensors, with an answer that explains
// it. nil: there is none, or none of these is most of the growth.
func searchThat(
	p *Process, keepers []keeper.Search, explains func(*keeper.Search) bool,
) *keeper.Search {
	var stacks []uint64
	if len(p.Suspects) > 0 && p.Suspects[0].Share >= minKeptShare {
		stacks = slices.Clone(p.Suspects[0].StackIDs)
	}
	isMost := func(cause diagnosis.Cause) bool {
		return slices.ContainsFunc(p.Diagnoses, func(d diagnosis.Diagnosis) bool {
			return d.Cause == cause && d.Share >= minKeptShare
		})
	}
	areObjects, areTensors := isMost(diagnosis.PythonObjects), isMost(diagnosis.Tensors)

	for i := range keepers {
		s := &keepers[i]
		isOfType := s.Stack == 0 && (areObjects || areTensors && census.IsTensor(s.Type))
		if explains(s) && (isOfType || slices.Contains(stacks, s.Stack)) {
			return s
		}
	}
	return nil
}
