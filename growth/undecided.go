package growth

import (
	"math"
	"time"

	"gonum.org/v1/gonum/mathext"
)

// Evidence that a stack sampled in bursts needs. The thresholds are from simulated traces, see
// docs/measurement.md.
const (
	minSamplesToDecide = 20
	minBurstsToDecide  = 3
	// minAliveShare of the memory is alive, at SignificanceLevel, if the unseen deaths are as many
	// as can be.
	minAliveShare = 0.05
	// minUnchangedShare of the objects are those of their burst, at SignificanceLevel, by their
	// fingerprints.
	minUnchangedShare = 0.75
	// minHeapShare of a stack's growth must be growth of the resident heap.
	minHeapShare = 0.5
)

// undecided returns why growth proven by samples is undecided, and how many more seconds of the
// same would decide it; 0: watching does not help.
func (r *snapshotRange) undecided(h *stackSeries, c *stackChange) (reason Doubt, longer float64) {
	evidence := h.evidence()
	if evidence == nil {
		return "", 0
	}
	if r.end().Watch.Blind != "" {
		return DoubtBlind, 0
	}

	more := func(need, have float64) float64 { return r.seconds() * (need/have - 1) }
	if n := h.end.Samples; n < minSamplesToDecide {
		return DoubtSamples, more(minSamplesToDecide, max(1, float64(n)))
	}
	if n := evidence.Windows; n < minBurstsToDecide {
		return DoubtWindows, more(minBurstsToDecide, max(1, float64(n)))
	}
	if isUnchanged(evidence) {
		return "", 0
	}

	// The more bursts, the more exposure of each age.
	margin := evidence.Hazard.UnseenDeathsMargin(c.bornAgeSeconds, SignificanceLevel)
	if most := -math.Log(minAliveShare); margin > most {
		return DoubtExposure, more(min(margin, 10*most), most)
	}
	return "", 0
}

// isUnchanged is true where fingerprints prove that most objects are those of their burst.
func isUnchanged(evidence *Sighting) bool {
	return unchangedShare(evidence, SignificanceLevel) >= minUnchangedShare
}

// unchangedShare is the lower limit of the share of objects that are those of their burst, by the
// limit of Clopper and Pearson on unchanged fingerprints. Another object with the same contents
// goes unnoticed with probability 1 - Diversity.
func unchangedShare(e *Sighting, risk float64) float64 {
	if e.Same <= 0 || e.Same > e.Printed || !(e.Differ > 0) {
		return 0
	}
	same := mathext.InvRegIncBeta(float64(e.Same), float64(e.Printed-e.Same+1), risk)
	return max(0, 1-(1-same)/min(1, e.Differ))
}

// markUndecided takes back that a stack grows, if there is a reason.
func (t *StackTrend) markUndecided(reason Doubt, longerSeconds float64) {
	if reason == "" {
		return
	}
	t.Trend, t.Doubt = TrendUndecided, reason
	t.Longer = time.Duration(longerSeconds * float64(time.Second))
}

// crossCheck marks stacks as undecided because of other stacks: those whose chunks another may have
// reused, and those that grow more than the rest of the heap's growth. trends are in the order of
// suspicion; rssGrowth is in bytes.
func (r *snapshotRange) crossCheck(trends []StackTrend, rssGrowth float64) {
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
		if users[sizeClassOf(t)] != t && !isUnchanged(t.evidence) {
			t.markUndecided(DoubtClass, 0)
		}
	}

	unexplained := r.heapGrowth(rssGrowth)
	for _, isProven := range []bool{true, false} { // the better evidence first
		for i := range trends {
			t := &trends[i]
			switch {
			case t.evidence == nil || !t.Grows() || isUnchanged(t.evidence) != isProven:
			case unexplained < minHeapShare*t.Growth:
				t.markUndecided(DoubtHeap, 0)
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

// heapGrowth is the growth of the resident heap in bytes by the pages scanned, else that of the
// RSS; infinite where neither is known.
func (r *snapshotRange) heapGrowth(rssGrowth float64) float64 {
	start, startKnown := residentHeap(r.start())
	end, endKnown := residentHeap(r.end())
	switch {
	case startKnown && endKnown:
		return float64(end - start)
	case math.IsNaN(rssGrowth):
		return math.Inf(1)
	}
	return rssGrowth
}

// residentHeap is false where pages were not scanned. Memory from before tracing started is part of
// the heap as far as objects take its place.
func residentHeap(s *Snapshot) (bytes int64, known bool) {
	for i := range s.Holdings {
		switch h := &s.Holdings[i]; h.Kind {
		case KindHeap, KindRetained, KindUntold, KindMetadata, KindBefore:
			bytes += h.ResidentBytes
			known = known || h.ResidentBytes > 0
		}
	}
	return bytes, known
}
