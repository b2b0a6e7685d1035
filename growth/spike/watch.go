package spike

import (
	"slices"
	"time"

	"github.com/allocscope/allocscope/growth"
)

const (
	// minGain is how much higher than the last snapshot of a spike the next one has to be, and
	// minGainAtTop where RSS does not rise any more.
	minGain, minGainAtTop = 1.25, 1.05

	// The first spikeSnapshots spikes get snapshots in any case. Later ones have to be higher than
	// these by minNewHeight.
	spikeSnapshots = 3
	minNewHeight   = 1.1

	// maxExtra bounds the snapshots that were taken for spikes alone. Beyond it each has to be higher
	// than all before by minGain, so that neither steps nor ramps take many.
	maxExtra = 12

	// maxStarts are the latest spikes of which the period is found.
	maxStarts = 64
)

// A Watch follows the RSS of one process, and keeps the snapshots in its highest spike and around
// it. The zero value needs a PID.
type Watch struct {
	PID int

	detector Detector
	usual    *growth.Snapshot // the latest outside spikes
	current  *Capture         // of the spike that goes on; nil: none was taken
	highest  *Capture         // of the spikes that have passed; nil: none was taken in any

	count, captured int
	peak            int64           // above the level, of all spikes
	starts          []time.Duration // of the latest spikes
	extra           int             // snapshots that were taken for spikes alone
	highestExtra    int64           // above the level
}

// A Capture is the snapshots of one spike, with the memory of one process alone.
type Capture struct {
	// At is within the spike. Before and After are the nearest ones outside; After is nil where the
	// trace ended before.
	Before, At, After *growth.Snapshot
	// Height is the RSS at At above the level before, in bytes.
	Height int64
}

// Add adds a sample of the process.
func (w *Watch) Add(s growth.Sample) {
	if s.RSS == growth.Unknown {
		return
	}

	switch w.detector.Add(s.Elapsed, s.RSS) {
	case Ended:
		w.count++
		w.peak = max(w.peak, w.detector.height(w.detector.peak))
		w.starts = append(w.starts, w.detector.from)
		w.starts = w.starts[max(0, len(w.starts)-maxStarts):]
		w.keepCurrent()
	case Abandoned:
		w.current = nil
	}
}

// keepCurrent keeps the capture of the spike that has passed if it is the highest.
func (w *Watch) keepCurrent() {
	if w.current == nil {
		return
	}
	w.captured++
	if w.highest == nil || w.current.Height > w.highest.Height {
		w.highest = w.current
	}
	w.current = nil
}

// InSpike reports whether RSS is in a possible spike.
func (w *Watch) InSpike() bool { return w.detector.InSpike() }

// HasSpike reports whether a snapshot that was taken now lies in a possible spike, which may have
// begun since the last sample.
func (w *Watch) HasSpike(s *growth.Snapshot) bool {
	rss, d := rssOf(s, w.PID), &w.detector
	return d.inSpike || rss != growth.Unknown && d.height(rss) > d.threshold()
}

// IsDue reports whether a snapshot now would show more of a spike than those that there are.
func (w *Watch) IsDue() bool {
	d := &w.detector
	if !d.inSpike || d.isFalling() || w.usual == nil {
		return false
	}

	height := float64(d.height(d.last))
	if w.current != nil {
		gain := minGain
		if d.hasRisen() {
			gain = minGainAtTop
		}
		if height < gain*float64(w.current.Height) {
			return false
		}
	}
	if w.captured >= spikeSnapshots && height < minNewHeight*float64(w.highest.Height) {
		return false
	}
	return w.extra < maxExtra || height > minGain*float64(w.highestExtra)
}

// AddSnapshot adds a snapshot of the trace. isExtra is true of one that was taken for a spike
// alone.
func (w *Watch) AddSnapshot(s *growth.Snapshot, isExtra bool) {
	rss := rssOf(s, w.PID)
	if rss == growth.Unknown {
		return
	}

	d := &w.detector
	height := d.height(rss)
	if isExtra {
		w.extra++
		w.highestExtra = max(w.highestExtra, height)
	}

	switch {
	case d.inSpike:
		isAsHigh := w.current == nil || 50*height > 49*w.current.Height // the later, the more settled
		if w.usual != nil && isAsHigh && 2*height > d.height(d.peak) {
			w.current = &Capture{Before: w.only(w.usual), At: w.only(s), Height: height}
		}
	case w.HasSpike(s): // it has begun since the last sample
	default:
		w.usual = s
		if w.highest != nil && w.highest.After == nil {
			w.highest.After = w.only(s)
		}
	}
}

// only returns the process's memory in RAM at a snapshot.
func (w *Watch) only(s *growth.Snapshot) *growth.Snapshot {
	own := s.Of(w.PID)
	isElsewhere := func(h growth.Holding) bool { return h.ResidentBytes == 0 }
	own.Holdings = slices.Clip(slices.DeleteFunc(own.Holdings, isElsewhere))
	own.GPUHoldings, own.Others = nil, nil
	return own
}

// Spikes are the spikes of one process, and the live memory in the highest one that has a snapshot.
type Spikes struct {
	Count int
	// Peak is the highest RSS of a sample above the level before, in bytes.
	Peak int64
	// Period is the median time between the beginnings of two; 0 where they come irregularly.
	Period time.Duration
	// Extra snapshots were taken for spikes alone.
	Extra int
	// Highest of which there is a snapshot; nil: of none.
	Highest *Capture
}

// Spikes returns those that have passed.
func (w *Watch) Spikes() Spikes {
	return Spikes{
		Count: w.count, Peak: w.peak, Period: periodOf(w.starts), Extra: w.extra, Highest: w.highest,
	}
}

// periodOf returns the median distance of moments; 0 where their number is less than three, or a
// distance is off by more than a quarter.
func periodOf(moments []time.Duration) time.Duration {
	if len(moments) < 3 {
		return 0
	}

	var distances []time.Duration
	for i := range moments[1:] {
		distances = append(distances, moments[i+1]-moments[i])
	}
	slices.Sort(distances)

	median := distances[len(distances)/2]
	if distances[0] < median*3/4 || distances[len(distances)-1] > median*5/4 {
		return 0
	}
	return median
}
