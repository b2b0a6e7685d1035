package keeper

import "time"

// AddGrowth sets PerMinute of the containers that an earlier search of the same process had on its way,
// too. The same root and the same links up to a container lead to the same one, unless the samples were
// in different entries of a container before it.
func AddGrowth(before, after []Search) {
	for i := range after {
		for j := range after[i].Paths {
			path := &after[i].Paths[j]
			for n := range path.Links {
				link := &path.Links[n]
				if link.isAnyEntry() {
					break
				}
				entries, at, ok := find(before, after[i].PID, path, n)
				if minutes := (after[i].Elapsed - at).Minutes(); ok && link.Entries >= 0 && minutes > 0 {
					link.PerMinute = max(0, float64(link.Entries-entries)/minutes)
				}
			}
		}
	}
}

// find returns the entries of the container that a path's link n leads to in an earlier search, and
// when that was.
func find(before []Search, pid int, path *Path, n int) (entries int64, at time.Duration, ok bool) {
	for i := range before {
		if before[i].PID != pid {
			continue
		}
		for j := range before[i].Paths {
			p := &before[i].Paths[j]
			if p.Root.is(path.Root) && beginsWith(p.Links, path.Links[:n+1]) && p.Links[n].Entries >= 0 {
				return p.Links[n].Entries, before[i].Elapsed, true
			}
		}
	}
	return 0, 0, false
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
