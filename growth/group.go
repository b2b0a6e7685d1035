package growth

import (
	"cmp"
	"slices"
	"time"

	"github.com/allocscope/allocscope/growth/verdict"
)

// A Group is the workers of one role. Sizes are in bytes.
type Group struct {
	Role Role
	// Count of the processes in the last sample, and how many of them are Traced. Largest is the PID of
	// the one with the largest RSS.
	Count, Traced, Largest int
	// Replaced counts the workers that have ended while others of the role lived on or took their
	// place. Growing counts the ones that grew until their end, by the median Grown in a Life.
	Replaced, Growing int
	Grown             int64
	Life              time.Duration
	// RSS is the median RSS of one process. Unknown if none could be read.
	RSS int64
	// PSS and Private are sums over the processes, by the latest reading of each; Unknown until all
	// have been read.
	PSS, Private int64
	// History of Private, X in seconds since the start of the trace.
	History verdict.Series

	ended, startedLater int // workers, and of them the ones that started after another had ended
}

// serves reports whether a worker belongs to another process of the history. A worker that the user
// has named is judged by itself.
func (h *History) serves(worker Member) bool {
	return !worker.Traced || slices.ContainsFunc(h.Processes,
		func(t *ProcessHistory) bool { return t.PID == worker.Parent })
}

// countReplaced counts the workers that have come and gone between two samples.
func (h *History) countReplaced(before map[int]*ProcessHistory) {
	for pid, t := range before {
		if g := h.groups[t.Role]; g != nil && h.alive[pid] != t && t.First < t.Last {
			g.ended++
		}
	}
	for pid, t := range h.alive {
		if g := h.groups[t.Role]; g != nil && g.ended > 0 && before[pid] != t {
			g.startedLater++
		}
	}
}

// addGroups sums the workers of a sample by role.
func (h *History) addGroups(m TreeSample) {
	if h.groups == nil {
		h.groups = make(map[Role]*Group)
	}
	for _, g := range h.groups {
		g.Count, g.Traced, g.Largest, g.PSS, g.Private = 0, 0, 0, 0, 0
	}

	resident, largest := make(map[Role][]int64), make(map[Role]int64)
	for i, member := range m.Members {
		if !member.Role.IsWorker() || !h.serves(member) {
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
		if t.Traced {
			g.Traced++
		}
		if rss := m.Processes[i].RSS; rss != Unknown {
			resident[member.Role] = append(resident[member.Role], rss)
			if rss > largest[member.Role] {
				g.Largest, largest[member.Role] = member.PID, rss
			}
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

// medianSize is the median of sizes, the upper of two; Unknown without sizes.
func medianSize(sizes []int64) int64 {
	if len(sizes) == 0 {
		return Unknown
	}
	slices.Sort(sizes)
	return sizes[len(sizes)/2]
}

// Groups returns the groups that have workers in the last sample, the largest first.
func (h *History) Groups() []Group {
	var groups []Group
	for _, g := range h.groups {
		if g.Count > 0 {
			groups = append(groups, h.withReplaced(*g))
		}
	}
	slices.SortFunc(groups, func(a, b Group) int {
		return cmp.Or(cmp.Compare(b.Private, a.Private), cmp.Compare(a.Role, b.Role))
	})
	return groups
}

// withReplaced adds the numbers of the workers that have been replaced.
func (h *History) withReplaced(g Group) Group {
	g.Replaced = min(g.ended, g.startedLater)
	if g.Replaced == 0 {
		return g
	}

	var grown, lives []int64
	for _, t := range h.Processes {
		if t.Role == g.Role && t.hasEnded(h) && t.grewUntilItsEnd() {
			grown, lives = append(grown, t.growth()), append(lives, int64(t.Last-t.First))
		}
	}
	if g.Growing = len(grown); g.Growing > 0 {
		g.Grown, g.Life = medianSize(grown), time.Duration(medianSize(lives))
	}
	return g
}

// hasEnded is true of a process that is not in the last sample.
func (t *ProcessHistory) hasEnded(h *History) bool {
	return t.End != 0 || t.Last < h.Rows[len(h.Rows)-1].Elapsed
}

// minLateShare is the share of its growth in the second half of its life from which on a process grew
// until its end: a worker reads its data and its code in the first half. minLifeGrowth is in bytes.
const (
	minLateShare  = 0.3
	minLifeGrowth = 4 << 20
)

func (t *ProcessHistory) grewUntilItsEnd() bool {
	grown := t.growth()
	if len(t.Timeline) == 0 || grown < minLifeGrowth {
		return false
	}
	late := t.Timeline.RSSAt(t.Last) - t.Timeline.RSSAt(t.First+(t.Last-t.First)/2)
	return float64(late) >= minLateShare*float64(grown)
}
