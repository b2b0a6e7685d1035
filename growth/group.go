package growth

import (
	"cmp"
	"slices"
	"time"

	"github.com/allocscope/allocscope/growth/verdict"
)

// A Group is the workers of one role that work for the same process. Sizes are in bytes.
type Group struct {
	GroupKey
	// Count of the processes in the last sample, and how many of them are Traced. Largest is the
	// PID of the one with the largest RSS.
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
	// growing counts the workers that grew until their end. grown and lives are of the latest ones.
	growing      int
	grown, lives []int64
}

// maxLives bounds the lives of which a group knows the growth.
const maxLives = 64

// end counts a worker that has ended.
func (g *Group) end(t *ProcessHistory) {
	g.ended++
	grown := t.grownUntilItsEnd()
	if grown == 0 {
		return
	}
	g.growing++
	g.grown, g.lives = append(g.grown, grown), append(g.lives, int64(t.Last-t.First))
	if len(g.lives) > maxLives {
		g.grown, g.lives = g.grown[1:], g.lives[1:]
	}
}

// A GroupKey identifies a group of workers.
type GroupKey struct {
	Role Role
	// Service and Parent of the processes that a server has forked: the members come and go, and
	// the service remains. Both are empty where the workers of all processes of the job are one
	// group: processes that load data or compile, the workers of several ranks, and commands.
	Service string
	Parent  int
}

// groupOf returns the group of a process.
func (h *History) groupOf(p *Process) GroupKey {
	key := GroupKey{Role: p.Role}
	if p.Role != RoleWorker {
		return key
	}
	key.Service = p.Service
	for _, t := range h.Processes {
		if t.PID == p.Parent && t.Role == RoleRank {
			return key
		}
	}
	key.Parent = p.Parent
	return key
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
		if g := h.groups[t.Group]; g != nil && h.alive[pid] != t && t.First < t.Last {
			g.end(t)
		}
	}
	for pid, t := range h.alive {
		if g := h.groups[t.Group]; g != nil && g.ended > 0 && before[pid] != t {
			g.startedLater++
		}
	}
}

// addGroups sums the workers of a sample by role.
func (h *History) addGroups(m TreeSample) {
	if h.groups == nil {
		h.groups = make(map[GroupKey]*Group)
	}
	h.forgetGroups()
	for _, g := range h.groups {
		g.Count, g.Traced, g.Largest, g.PSS, g.Private = 0, 0, 0, 0, 0
	}

	resident, largest := make(map[GroupKey][]int64), make(map[GroupKey]int64)
	for i, member := range m.Members {
		if !member.Role.IsWorker() || !h.serves(member) {
			continue
		}
		t := h.alive[member.PID]
		g := h.groups[t.Group]
		if g == nil {
			g = &Group{GroupKey: t.Group}
			h.groups[t.Group] = g
		}
		g.Count++
		g.PSS, g.Private = sumKnown(g.PSS, t.pss), sumKnown(g.Private, t.private)
		if t.Traced {
			g.Traced++
		}
		if rss := m.Processes[i].RSS; rss != Unknown {
			resident[t.Group] = append(resident[t.Group], rss)
			if rss > largest[t.Group] {
				g.Largest, largest[t.Group] = member.PID, rss
			}
		}
	}

	for key, g := range h.groups {
		g.RSS = medianSize(resident[key])
		if g.Private != Unknown {
			g.History.X = append(g.History.X, m.Elapsed.Seconds())
			g.History.Y = append(g.History.Y, float64(g.Private))
		}
	}
}

// maxGroups bounds the groups: any number of servers may come and go.
const maxGroups = 64

// forgetGroups drops groups without workers where there are too many, the ones with the fewest
// ended workers first.
func (h *History) forgetGroups() {
	for len(h.groups) > maxGroups {
		var least *Group
		for _, g := range h.groups {
			if g.Count == 0 && (least == nil || g.ended < least.ended) {
				least = g
			}
		}
		if least == nil {
			return
		}
		delete(h.groups, least.GroupKey)
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
			groups = append(groups, g.withReplaced())
		}
	}
	slices.SortFunc(groups, func(a, b Group) int {
		return cmp.Or(cmp.Compare(b.Private, a.Private), cmp.Compare(a.Role, b.Role),
			cmp.Compare(a.Service, b.Service), cmp.Compare(a.Parent, b.Parent))
	})
	return groups
}

// minReplaced is the number of replaced workers that grew from which on they show how all of them
// do.
const minReplaced = 3

// GrowUntilReplaced reports whether most workers of a server grew until others took their place.
func (g *Group) GrowUntilReplaced() bool {
	return g.Role != RoleOther && g.Growing >= minReplaced && 2*g.Growing > g.Replaced
}

// withReplaced adds the numbers of the workers that have been replaced.
func (g *Group) withReplaced() Group {
	with := *g
	with.Replaced = min(g.ended, g.startedLater)
	if with.Growing = min(g.growing, with.Replaced); with.Growing > 0 {
		with.Grown = medianSize(slices.Clone(g.grown))
		with.Life = time.Duration(medianSize(slices.Clone(g.lives)))
	}
	return with
}

// WasReplaced is true of a worker that has ended, and grew until then.
func (h *History) WasReplaced(t *ProcessHistory) bool {
	return t.Role.IsWorker() && t.hasEnded(h) && t.grownUntilItsEnd() > 0
}

// maxLifeFactor is how many times as long as the others a worker lives that is replaced as they
// were.
const maxLifeFactor = 2

// IsReplaced reports whether a process is a worker of a server that replaces its workers, and these
// grow until then. One that outlives the others is not.
func (h *History) IsReplaced(t *ProcessHistory) bool {
	g := h.groups[t.Group]
	if g == nil || !t.Role.IsWorker() {
		return false
	}
	with := g.withReplaced()
	return with.GrowUntilReplaced() && t.Last-t.First <= maxLifeFactor*with.Life
}

// hasEnded is true of a process that is not in the last sample.
func (t *ProcessHistory) hasEnded(h *History) bool {
	return t.End != 0 || t.Last < h.Rows[len(h.Rows)-1].Elapsed
}

// minLateShare is the share of its growth in the second half of its life from which on a process
// grew until its end: a worker reads its data and its code in the first half. minLifeGrowth is in
// bytes.
const (
	minLateShare  = 0.3
	minLifeGrowth = 4 << 20
)

// exitSamples is the number of samples within which a process that ends frees its memory.
const exitSamples = 3

// HeldUntil is the time at which a process held most shortly before its end.
func (t *ProcessHistory) HeldUntil() time.Duration {
	last := t.Timeline[max(0, len(t.Timeline)-exitSamples):]
	most := slices.MaxFunc(last, func(a, b Sample) int { return cmp.Compare(a.RSS, b.RSS) })
	return most.Elapsed
}

// grownUntilItsEnd is the growth of a process that has ended, in bytes; 0: it did not grow until
// then.
func (t *ProcessHistory) grownUntilItsEnd() int64 {
	if len(t.Timeline) == 0 {
		return 0
	}
	end := t.HeldUntil()
	most := t.Timeline.RSSAt(end)
	grown := most - t.Timeline.RSSAt(0)
	late := most - t.Timeline.RSSAt(t.First+(end-t.First)/2)
	if grown < minLifeGrowth || float64(late) < minLateShare*float64(grown) {
		return 0
	}
	return grown
}
