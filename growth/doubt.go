package growth

import (
	"math"
	"time"
)

// A Doubt is why it cannot be told whether a stack whose calls were watched in windows keeps what it holds.
type Doubt string

// The doubts, in the order in which they are asked for.
const (
	DoubtBlind    Doubt = "blind"         // whether its objects are alive cannot be seen from outside
	DoubtSamples  Doubt = "few-samples"   // too few objects
	DoubtWindows  Doubt = "few-windows"   // born in too few windows
	DoubtExposure Doubt = "few-sightings" // most of it may have been freed unseen
	DoubtClass    Doubt = "size-class"    // another of the same size class may have taken the place of its objects
	DoubtHeap     Doubt = "heap-growth"   // the heap has not grown by as much
)

// What a rate must have to be believed: from simulated traces, see docs/measurement.md.
const (
	believedSamples = 20
	believedWindows = 3
	// believedAlive is the share of what is held that is alive even if more have died unseen than were seen to: as many as can
	// be, but for a risk of one in twenty.
	believedAlive = 0.05
	// believedSame is the share that is so by what is in them, likewise.
	believedSame = 0.75
	// believedRoom is the share of its growth that a stack must find in the growth of the heap.
	believedRoom = 0.5
)

// doubt of growth that is proven by what is sampled; longer is how many more seconds of the same would end it, 0: none will.
func (w *snappedWindow) doubt(h *stackHistory, c *stackChange) (doubt Doubt, longer float64) {
	seen := h.sighting()
	if seen == nil {
		return "", 0
	}
	if w.end().Watch.Blind != "" {
		return DoubtBlind, 0
	}
	more := func(need, have float64) float64 { return w.seconds() * (need/have - 1) }
	if n := h.end.Samples; n < believedSamples {
		return DoubtSamples, more(believedSamples, max(1, float64(n)))
	}
	if seen.Windows < believedWindows {
		return DoubtWindows, more(believedWindows, max(1, float64(seen.Windows)))
	}
	if seen.stays() {
		return "", 0
	}
	// The more windows, the more is seen of each age.
	if unseen, most := seen.Hazard.unsure(c.bornAge, oneInTwenty), -math.Log(believedAlive); unseen > most {
		return DoubtExposure, more(min(unseen, 10*most), most)
	}
	return "", 0
}

// sighting at the end, or at the start of what is gone; nil: every call was watched.
func (h *stackHistory) sighting() *Sighting {
	if h.end.Sighting != nil {
		return h.end.Sighting
	}
	return h.start.Sighting
}

// undecide takes back that a stack grows, if there is a doubt.
func (t *StackTrend) undecide(doubt Doubt, longer float64) {
	if doubt == "" {
		return
	}
	t.Trend, t.Doubt, t.Longer = TrendUndecided, doubt, time.Duration(longer*float64(time.Second))
}

// compare doubts what is only doubtful beside others: of trends in the order of suspicion, those whose place another may have
// taken, and those that the growth of the heap has no room for. rssGrowth is that of all resident memory, in bytes.
func (w *snappedWindow) compare(trends []StackTrend, rssGrowth float64) {
	takers := make(map[chunks]*StackTrend)
	for i := range trends {
		if t := &trends[i]; t.seen != nil && t.grows() && t.takesFrom(takers[chunksOf(t)]) {
			takers[chunksOf(t)] = t
		}
	}
	for i := range trends {
		if t := &trends[i]; t.seen != nil && t.grows() && t.seen.SizeClass != 0 && takers[chunksOf(t)] != t && !t.seen.stays() {
			t.undecide(DoubtClass, 0)
		}
	}
	room := w.heapGrowth(rssGrowth)
	for _, stays := range []bool{true, false} { // the better evidence first
		for i := range trends {
			switch t := &trends[i]; {
			case t.seen == nil || !t.grows() || t.seen.stays() != stays:
			case room < believedRoom*t.Growth:
				t.undecide(DoubtHeap, 0)
			default:
				room -= max(0, t.Low)
			}
		}
	}
}

// takesFrom tells whether of two stacks of a size class it is rather the objects of this one that have taken the places of the
// other's: because what is in them proves that they stay, else because there are more.
func (t *StackTrend) takesFrom(other *StackTrend) bool {
	if other == nil || t.seen.stays() != other.seen.stays() {
		return other == nil || t.seen.stays()
	}
	return t.Growth > other.Growth
}

// chunks are those of one size class in a process.
type chunks struct {
	pid  int
	size uint64
}

func chunksOf(t *StackTrend) chunks { return chunks{t.Stack.PID, t.seen.SizeClass} }

// heapGrowth is what the resident heap has grown by, in bytes: as the ledger tells, else no more than all that is resident.
// Infinite: it is not known.
func (w *snappedWindow) heapGrowth(rssGrowth float64) float64 {
	start, startKnown := residentHeap(w.start())
	end, endKnown := residentHeap(w.end())
	switch {
	case startKnown && endKnown:
		return float64(end - start)
	case math.IsNaN(rssGrowth):
		return math.Inf(1)
	}
	return rssGrowth
}

// residentHeap is false where pages were not looked at. What was there before the attach is of the heap as well, as far as
// objects take its place.
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
