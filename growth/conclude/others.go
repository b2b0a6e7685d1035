package conclude

import (
	"cmp"
	"math"
	"slices"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/judge"
	"github.com/allocscope/allocscope/growth/verdict"
)

// A Group of workers with the verdict on its sum.
type Group struct {
	growth.Group
	Verdict verdict.Verdict
	// Generations of workers that grew until others took their place; nil: none of them was traced.
	Generations *Generations
}

// minGroupGrowth is the growth of a group of workers, in bytes, from which the result is about it.
const minGroupGrowth = 16 << 20

// groups of workers, and whether the sum of each group grows.
func (t *Trace) groups(first growth.Headroom) []Group {
	var groups []Group
	for _, g := range t.History.Groups() {
		var setting verdict.Setting
		if n := len(g.History.Y); n > 0 && first.Of != "" {
			setting.Limit = g.History.Y[n-1] + float64(first.Left)
		}
		own := Group{Group: g}
		if g.GrowUntilReplaced() {
			own.Verdict = judgeReplaced(&g, setting, t.Criteria)
			own.Generations = generationsOf(t, g.GroupKey)
		} else {
			own.Verdict = verdict.Judge(g.History, setting, t.Criteria)
		}
		groups = append(groups, own)
	}
	return groups
}

// grows reports whether a group grows so much that it deserves a headline.
func (g *Group) grows() bool {
	return g.Verdict.Class.Grows() && g.Verdict.Rate*g.Verdict.Length >= minGroupGrowth
}

// addOthers decides whether other processes, or memory outside of processes, grow in place of the
// main process, and which others grow much.
func (t *Trace) addOthers(r *Result) {
	found := &r.Main.Findings
	for i := range r.Groups {
		g := &r.Groups[i]
		isWorse := found.Workers == nil || g.Verdict.Rate > found.Workers.Rate
		if g.grows() && isWorse {
			found.Workers = &g.Verdict
		}
		found.Replaced = found.Replaced || g.GrowUntilReplaced()
	}
	if t.IsIdle {
		found.Other = judge.OtherGrowth(t.ownRows(), t.Others, t.Criteria)
	}

	r.Outside = t.outside(r.Container)
	if found.Other != nil && r.Outside.isOfProcesses() { // it has started them
		r.Outside = nil
	}
	if r.Outside != nil {
		found.Outside, found.IsHeld = &r.Outside.Verdict, r.Outside.isOfProcesses()
	}
	r.Main.Decide()

	for _, o := range t.Others {
		isHeadline := r.Main.Other != nil && r.Main.Other.PID == o.PID ||
			r.Main.Reason == verdict.ReasonOutside && r.Outside.isOfProcesses() &&
				r.Outside.Process.PID == o.PID
		// A process that has nothing to do with the job matters as long as it goes on growing.
		matters := o.Relation != growth.RelationMachine || o.Rate > 0
		if !isHeadline && matters && float64(o.Growth) >= t.Criteria.MinOutsideGrowth {
			r.Related = append(r.Related, o)
		}
	}
}

// Together is the forecast for memory that several processes fill.
type Together struct {
	// Headroom of the memory that is full first, and seconds ToLimit by all that grows in it, at
	// Rate in bytes per second.
	Headroom      growth.Headroom
	ToLimit, Rate float64
	// With are the PIDs of the other processes that grow, the fastest first, and Workers the number
	// of other workers of the tree that do.
	With    []int
	Workers int
	// Outside is memory outside of the tree that grows besides; empty: there is none, or one of With has it.
	Outside OutsideKind
}

// A grower grows without slowing down: the main process, where it has neither a PID nor workers,
// another process, or workers.
type grower struct {
	pid, workers int
	outside      OutsideKind
	rate         float64
	// left is how many bytes are to come until it ends by itself; 0: its end is not known.
	left     float64
	inCgroup bool
}

// growerOf is the growth of a process of the tree; without a rate: it does not grow, or slows down.
func growerOf(v *verdict.Verdict) grower {
	switch {
	case v.Class == verdict.ClassFillsUp && v.Fill != nil && v.Fill.Left > 0:
		return grower{rate: max(0, v.Rate), left: v.Fill.Left, inCgroup: true}
	case v.Class.Grows():
		return grower{rate: max(0, v.Rate), inCgroup: true}
	}
	return grower{inCgroup: true}
}

// minTogether is how many times as fast as the main process all that grows must fill the memory to
// deserve a forecast of its own.
const minTogether = 1.1

// together adds up all growth in the memory of the machine and in the memory of the cgroup; nil:
// the main process is most of it.
func (t *Trace) together(r *Result) *Together {
	if len(t.History.Rows) == 0 || t.HasEnded {
		return nil
	}

	all := t.growers(r)
	var first *Together
	for _, h := range t.History.Rows[len(t.History.Rows)-1].System.Headrooms() {
		sum := togetherIn(h, all)
		if sum.Rate > 0 && (first == nil || sum.ToLimit < first.ToLimit) {
			first = sum
		}
	}

	own := 0.0
	if r.Main.Class.Grows() {
		own = r.Main.Rate
	}
	isAlone := first != nil && len(first.With)+first.Workers == 0 && first.Outside == ""
	if first == nil || first.Rate < minTogether*own || isAlone {
		return nil
	}
	return first
}

// nameOthers adds the processes outside the tree that the forecast counts to the related ones.
func (t *Trace) nameOthers(r *Result) {
	if r.Together == nil {
		return
	}
	for _, o := range t.Others {
		isKnown := r.Main.Other != nil && r.Main.Other.PID == o.PID || slices.ContainsFunc(r.Related,
			func(k growth.OtherProcess) bool { return k.PID == o.PID })
		if !isKnown && slices.Contains(r.Together.With, o.PID) {
			r.Related = append(r.Related, o)
		}
	}
}

// minGrowerShare is the share of the fastest grower's rate below which another one is left out of a
// forecast: it changes nothing.
const minGrowerShare = 0.05

func togetherIn(h growth.Headroom, all []grower) *Together {
	sum := &Together{Headroom: h}
	var counted []grower
	for _, g := range all {
		if g.rate < minGrowerShare*all[0].rate {
			break // they are in order
		}
		if h.Of != growth.LimitMachine && !g.inCgroup {
			continue
		}
		counted = append(counted, g)
		sum.Rate += g.rate
		sum.Workers += g.workers
		if g.pid != 0 {
			sum.With = append(sum.With, g.pid)
		}
		sum.Outside = cmp.Or(sum.Outside, g.outside)
	}
	if sum.ToLimit = timeToFill(float64(h.Left), counted); math.IsInf(sum.ToLimit, 1) {
		sum.Rate = 0
	}
	return sum
}

// timeToFill is when growers have filled so many bytes, in seconds; infinite: those that end by
// themselves leave room.
func timeToFill(left float64, all []grower) (seconds float64) {
	rate := 0.0
	var ending []grower
	for _, g := range all {
		rate += g.rate
		if g.left > 0 {
			ending = append(ending, g)
		}
	}
	slices.SortFunc(ending, func(a, b grower) int { return cmp.Compare(a.left/a.rate, b.left/b.rate) })

	for i, g := range ending {
		end := g.left / g.rate
		if left <= rate*(end-seconds) {
			break
		}
		left -= rate * (end - seconds)
		seconds, rate = end, rate-g.rate
		if i+1 == len(all) { // the last one, but for rounding
			rate = 0
		}
	}
	if rate <= 0 {
		return math.Inf(1)
	}
	return seconds + left/rate
}

// growers are all that grow, the fastest first.
func (t *Trace) growers(r *Result) []grower {
	var all []grower
	if main := growerOf(&r.Main.Verdict); main.rate > 0 {
		all = append(all, main)
	}

	inGroups := make(map[growth.GroupKey]bool)
	for i := range r.Groups {
		g := &r.Groups[i]
		if !g.grows() {
			continue
		}
		inGroups[g.GroupKey] = true
		others := grower{workers: g.Count, rate: g.Verdict.Rate, inCgroup: true}
		if main := r.Main.History; main != nil && main.Group == g.GroupKey {
			others.workers, others.rate = g.Count-1, g.Verdict.Rate-r.Main.Rate
		}
		isMain := r.Main.Findings.Workers == &g.Verdict && r.Main.Reason == verdict.ReasonWorkers
		if !isMain && others.workers > 0 && others.rate > 0 {
			all = append(all, others)
		}
	}

	for _, p := range r.All {
		isOther := p.History != r.Main.History && !inGroups[p.History.Group] && !p.IsReplaced
		isAlive := p.History.Last >= t.lastElapsed()
		if g := growerOf(&p.Verdict); isOther && isAlive && g.rate > 0 {
			g.pid = p.History.PID
			all = append(all, g)
		}
	}
	// Files in RAM may be mapped, and count as RSS.
	if o := r.Outside; o != nil && r.Main.Reason != verdict.ReasonOutside && o.Kind != OutsideFiles {
		g := grower{outside: o.Kind, rate: max(0, o.Verdict.Rate), inCgroup: o.InCgroup}
		if o.isOfOne() {
			g.pid, g.outside = o.Process.PID, ""
		}
		all = append(all, g)
	}
	for _, o := range t.Others {
		isCounted := o.InCgroup && r.Outside != nil && r.Outside.HasOthers
		if o.Rate > 0 && !isCounted {
			all = append(all, grower{pid: o.PID, rate: o.Rate, inCgroup: o.InCgroup})
		}
	}

	slices.SortStableFunc(all, func(a, b grower) int { return cmp.Compare(b.rate, a.rate) })
	return all
}
