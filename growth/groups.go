package growth

import (
	"cmp"
	"slices"
)

// A Group is the workers of one role that are not traced themselves. Sizes are in bytes.
type Group struct {
	Role Role
	// Count of the processes at the last moment.
	Count int
	// RSS is the median of their resident memory: of one process. Unknown if none could be read.
	RSS int64
	// PSS and Private are what they hold together, by the latest reading of each; Unknown unless all have been read.
	PSS, Private int64
	// History of Private, X in seconds since the start of the trace.
	History Series
}

// addGroups sums up the workers of a moment by role.
func (h *History) addGroups(m Moment) {
	if h.groups == nil {
		h.groups = make(map[Role]*Group)
	}
	resident := make(map[Role][]int64)
	for _, g := range h.groups {
		g.Count, g.PSS, g.Private = 0, 0, 0
	}
	for i, member := range m.Members {
		if member.Traced || !member.Role.IsWorker() {
			continue
		}
		g := h.groups[member.Role]
		if g == nil {
			g = &Group{Role: member.Role}
			h.groups[member.Role] = g
		}
		t := h.alive[member.PID]
		g.Count++
		g.PSS, g.Private = sumKnown(g.PSS, t.pss), sumKnown(g.Private, t.private)
		if rss := m.Processes[i].RSS; rss != Unknown {
			resident[member.Role] = append(resident[member.Role], rss)
		}
	}
	for role, g := range h.groups {
		g.RSS = medianSize(resident[role])
		if g.Private != Unknown {
			g.History.X = append(g.History.X, m.Elapsed.Seconds())
			g.History.Y = append(g.History.Y, float64(g.Private))
		}
	}
}

// medianSize is the median of sizes, the upper of two; Unknown of none.
func medianSize(sizes []int64) int64 {
	if len(sizes) == 0 {
		return Unknown
	}
	slices.Sort(sizes)
	return sizes[len(sizes)/2]
}

// Groups are the workers at the last moment, those that hold most first; roles that nobody has any more are left out.
func (h *History) Groups() []Group {
	var groups []Group
	for _, g := range h.groups {
		if g.Count > 0 {
			groups = append(groups, *g)
		}
	}
	slices.SortFunc(groups, func(a, b Group) int {
		return cmp.Or(cmp.Compare(b.Private, a.Private), cmp.Compare(a.Role, b.Role))
	})
	return groups
}
