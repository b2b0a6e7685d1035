package keeper

import (
	"cmp"
	"slices"
	"time"
)

// AddGrowth sets PerMinute of the containers that an earlier search of the same program has read,
// too, and whether they have lost entries since. A container that was replaced meanwhile is
// known by its path: the same root and the same links lead to the same one, unless the samples were
// in different entries of a container before it.
func AddGrowth(before, after []Search) {
	readings := readingsOf(before)
	for i := range after {
		for j := range after[i].Paths {
			path := &after[i].Paths[j]
			addReplaced(before, &after[i], path)
			for n := range path.Links {
				path.Links[n].compare(readings, &after[i])
			}
		}
		after[i].joinPaths()
	}
}

// minStopped is how many entries a container would have gained at its earlier rate for a reading
// without any to show that it has stopped. Chance alone gives none of three in 5% of cases: e^-3.
const minStopped = 3

// AddEarlier sets the growth of the containers that the searches of an earlier trace of the process
// have read, where these have lost no entry since. The searches of this trace alone count where a
// container has lost entries, or has stopped to grow.
func AddEarlier(earlier, after []Search) {
	for i := range after {
		s := &after[i]
		ofProgram := slices.Clone(earlier)
		for j := range ofProgram {
			ofProgram[j].TracedSince = s.TracedSince
		}
		readings := readingsOf(ofProgram)

		for j := range s.Paths {
			for n := range s.Paths[j].Links {
				now := &s.Paths[j].Links[n]
				if now.Limit > 0 { // its end depends on the present rate
					continue
				}
				since := *now
				since.compare(readings, s)
				hasLost := now.GrowthS > 0 && !now.Steady && !now.AppendOnly
				hasStopped := now.Steady && since.PerMinute*now.GrowthS/60 >= minStopped
				if since.AppendOnly && since.GrowthS > now.GrowthS && !hasLost && !hasStopped {
					*now = since
				}
			}
		}
		s.joinPaths()
	}
}

// joinPaths joins the paths that lead through one container that grows: it keeps their objects,
// whatever the way is within it.
func (s *Search) joinPaths() {
	for i := 0; i < len(s.Paths); i++ {
		path := &s.Paths[i]
		at := path.GrowingLink()
		if at < 0 || slices.ContainsFunc(path.Links[:at+1], func(l Link) bool { return l.isAnyEntry() }) {
			continue
		}

		container := path.Links[:at+1]
		joined := s.Paths[:i+1]
		for _, p := range s.Paths[i+1:] {
			if !p.Root.is(path.Root) || !beginsWith(p.Links, container) {
				joined = append(joined, p)
				continue
			}
			path.Samples += p.Samples
			path.Complete = path.Complete && p.Complete
			for !beginsWith(p.Links, path.Links) {
				path.Links = path.Links[:len(path.Links)-1]
			}
		}
		s.Paths = joined
	}

	slices.SortStableFunc(s.Paths, func(a, b Path) int { return cmp.Compare(b.Samples, a.Samples) })
}

// addReplaced sets the growth of the containers of a path by an earlier search with the same path.
func addReplaced(before []Search, after *Search, path *Path) {
	for n := range path.Links {
		link := &path.Links[n]
		if link.isAnyEntry() {
			return
		}

		entries, at, ok := find(before, after, path, n)
		if minutes := (after.Elapsed - at).Minutes(); ok && link.Entries >= 0 && minutes > 0 {
			link.PerMinute = max(0, float64(link.Entries-entries)/minutes)
		}
	}
}

// find returns the entries of the container that a path's link n leads to in an earlier search, and
// when that was.
func find(
	before []Search, after *Search, path *Path, n int,
) (entries Entries, at time.Duration, ok bool) {
	for i := range before {
		if !before[i].IsOfProgram(after) {
			continue
		}

		for j := range before[i].Paths {
			p := &before[i].Paths[j]
			if p.Root.is(path.Root) && beginsWith(p.Links, path.Links[:n+1]) &&
				p.Links[n].Entries >= 0 {
				return p.Links[n].Entries, before[i].Elapsed, true
			}
		}
	}

	return 0, 0, false
}

// IsOfProgram reports whether two searches were in one process that executed the same program.
func (s *Search) IsOfProgram(other *Search) bool {
	return s.PID == other.PID && s.TracedSince == other.TracedSince
}

// isAnyEntry is true of a link from a container to entries that differ between the samples.
func (l *Link) isAnyEntry() bool {
	switch l.How {
	case HowItem, HowValue, HowKey, HowElement:
		return l.Name == ""
	}
	return l.Repeated
}

// is reports whether two roots are the same variable. A function may stand at another line.
func (r Root) is(other Root) bool {
	r.Line, other.Line = 0, 0
	return r == other
}

func beginsWith(links, with []Link) bool {
	if len(links) < len(with) {
		return false
	}

	for i, w := range with {
		l := links[i]
		if l.How != w.How || l.Name != w.Name || l.Type != w.Type || l.Repeated != w.Repeated {
			return false
		}
	}
	return true
}

// maxRemembered bounds the searches that AddFirst keeps, and maxAnswers the answers of Update.
const (
	maxRemembered = 64
	maxAnswers    = 8
)

// AddFirst adds to searches those that are the first of their suspect that have found a path:
// AddGrowth compares with them.
func AddFirst(first, now []Search) []Search {
	for i := range now {
		isKnown := slices.ContainsFunc(first, func(f Search) bool {
			return f.IsOfProgram(&now[i]) && f.Stack == now[i].Stack && f.Type == now[i].Type
		})
		if !isKnown && len(now[i].Paths) > 0 {
			first = append(first, now[i])
		}
	}
	return first[max(0, len(first)-maxRemembered):]
}

// Update returns the latest answers: of a search now, or of an earlier one where none was made now
// or its time was used up. stacks has the stacks of each suspect of the search now. A suspect may
// have another one first than before.
func Update(before, now []Search, stacks [][]uint64) []Search {
	isSame := func(b, n *Search) bool {
		if b.Stack == 0 || n.Stack == 0 {
			return b.Stack == n.Stack && b.Type == n.Type
		}
		return b.Stack == n.Stack || slices.ContainsFunc(stacks, func(of []uint64) bool {
			return slices.Contains(of, b.Stack) && slices.Contains(of, n.Stack)
		})
	}

	latest := slices.Clone(now)
	for i := range before {
		b := &before[i]
		at := slices.IndexFunc(latest, func(n Search) bool {
			return n.IsOfProgram(b) && isSame(b, &n)
		})
		switch {
		case at < 0:
			latest = append(latest, *b)
		case !latest[at].IsAnswer() && b.IsAnswer():
			latest[at] = *b
		}
	}

	return latest[:min(len(latest), maxAnswers)]
}

// IsAnswer is false of a search whose time was used up before it found anything.
func (s Search) IsAnswer() bool {
	return len(s.Paths) > 0 || s.Garbage > 0 || s.Reason != ReasonBudget
}
