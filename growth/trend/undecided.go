package trend

import (
	"math"
	"time"

	"gonum.org/v1/gonum/mathext"

	"github.com/allocscope/allocscope/growth"
)

// Evidence that a stack sampled in bursts needs. The thresholds are from simulated traces, see
// docs/internals/measurement.md.
const (
	minSamplesToDecide = 20
	minBurstsToDecide  = 3
	// minAliveShare of the memory is alive, at SignificanceLevel, if the unseen deaths are as many
	// as can be.
	minAliveShare = 0.05
	// minUnchangedShare of the objects are still the objects of their burst, at SignificanceLevel,
	// by their fingerprints.
	minUnchangedShare = 0.75
	// minHeapShare of a stack's growth must be growth of the resident heap.
	minHeapShare = 0.5
)

// undecided returns why growth proven by samples is undecided, and how many more seconds of the
// same would decide it; 0: watching does not help.
func (r *snapshotRange) undecided(
	h *stackSeries, c *stackChange,
) (reason growth.UndecidedReason, longer float64) {
	evidence := h.evidence()
	if evidence == nil {
		return "", 0
	}
	if r.end().Heap.Untrackable != "" {
		return growth.UndecidedUntrackable, 0
	}

	more := func(need, have float64) float64 { return r.seconds() * (need/have - 1) }
	if n := h.end.Samples; n < minSamplesToDecide {
		return growth.UndecidedFewSamples, more(minSamplesToDecide, max(1, float64(n)))
	}
	if n := evidence.Bursts; n < minBurstsToDecide {
		return growth.UndecidedFewBursts, more(minBurstsToDecide, max(1, float64(n)))
	}
	if isUnchanged(evidence) {
		return "", 0
	}

	// The more bursts, the more exposure of each age.
	margin := evidence.HazardRate.UnseenDeathsMargin(c.bornAgeSeconds, growth.SignificanceLevel)
	if most := -math.Log(minAliveShare); margin > most {
		return growth.UndecidedUnseenDeaths, more(min(margin, 10*most), most)
	}
	return "", 0
}

// isUnchanged is true where fingerprints prove that most objects are still the objects of their
// burst.
func isUnchanged(evidence *growth.BurstEvidence) bool {
	return unchangedShare(evidence, growth.SignificanceLevel) >= minUnchangedShare
}

// unchangedShare is the lower limit of the share of objects that are still the objects of their
// burst, by the limit of Clopper and Pearson on unchanged fingerprints. Another object with the
// same contents goes unnoticed with probability 1 - Diversity.
func unchangedShare(e *growth.BurstEvidence, risk float64) float64 {
	if e.Unchanged <= 0 || e.Unchanged > e.Fingerprinted || !(e.Diversity > 0) {
		return 0
	}
	unchanged, changed := float64(e.Unchanged), float64(e.Fingerprinted-e.Unchanged)
	same := mathext.InvRegIncBeta(unchanged, changed+1, risk)
	return max(0, 1-(1-same)/min(1, e.Diversity))
}

// markUndecided takes back that a stack grows, if there is a reason.
func (t *StackTrend) markUndecided(reason growth.UndecidedReason, longerSeconds float64) {
	if reason == "" {
		return
	}
	t.Trend, t.Undecided = growth.TrendUndecided, reason
	t.Longer = time.Duration(longerSeconds * float64(time.Second))
}

// crossCheck marks stacks as undecided because of other stacks: stacks whose chunks a stack of
// another origin may have reused, and stacks that grow more than the rest of the heap's growth. trends are in the
// order of suspicion; heapGrowth is in bytes.
func (r *snapshotRange) crossCheck(trends []StackTrend, heapGrowth float64) {
	users := make(map[sizeClass]*StackTrend) // the likeliest to have reused chunks
	for i := range trends {
		t := &trends[i]
		if t.evidence != nil && t.Grows() && t.isLikelierReuse(users[sizeClassOf(t)]) {
			users[sizeClassOf(t)] = t
		}
	}
	for i := range trends {
		t := &trends[i]
		if t.evidence == nil || !t.Grows() || t.evidence.SizeClass == 0 {
			continue
		}
		if users[sizeClassOf(t)].evidence != t.evidence && !isUnchanged(t.evidence) {
			t.markUndecided(growth.UndecidedSizeClass, 0)
		}
	}

	unexplained := heapGrowth
	for _, isProven := range []bool{true, false} { // the better evidence first
		for i := range trends {
			t := &trends[i]
			switch {
			case t.evidence == nil || !t.Grows() || isUnchanged(t.evidence) != isProven:
			case unexplained < minHeapShare*t.Growth:
				t.markUndecided(growth.UndecidedHeapGrowth, 0)
			default:
				unexplained -= max(0, t.Low)
			}
		}
	}
}

// isLikelierReuse is true where of two stacks of a size class this one rather has reused the
// other's chunks: by its fingerprints, else because it grew more.
func (t *StackTrend) isLikelierReuse(other *StackTrend) bool {
	if other == nil {
		return true
	}
	if isUnchanged(t.evidence) != isUnchanged(other.evidence) {
		return isUnchanged(t.evidence)
	}
	return t.Growth > other.Growth
}

// A sizeClass is the chunks of one size class in a process.
type sizeClass struct {
	pid  int
	size uint64
}

func sizeClassOf(t *StackTrend) sizeClass { return sizeClass{t.Stack.PID, t.evidence.SizeClass} }

// heapGrowth is the growth of the resident heap in bytes by the pages scanned, else the growth of
// RSS; infinite where neither is known.
func (r *snapshotRange) heapGrowth(rssGrowth float64) float64 {
	start, startKnown := r.start().ResidentHeap()
	end, endKnown := r.end().ResidentHeap()
	switch {
	case startKnown && endKnown:
		return float64(end - start)
	case math.IsNaN(rssGrowth):
		return math.Inf(1)
	}
	return rssGrowth
}

// exactGrowth is the growth of the resident heap in bytes that stacks explain without bursts: large
// objects that malloc has mapped.
func exactGrowth(stacks []stackSeries) (bytes float64) {
	for i := range stacks {
		if h := &stacks[i]; h.kind == growth.KindHeap && h.evidence() == nil {
			bytes += max(0, float64(h.end.ResidentBytes-h.start.ResidentBytes))
		}
	}
	return bytes
}
