// Package spike finds spikes of RSS while a trace runs, decides when a snapshot within one is worth
// its cost, and says what is alive in a spike only.
package spike

import (
	"slices"
	"time"

	"github.com/allocscope/allocscope/growth"
)

const (
	// levelSamples are the latest samples outside spikes, whose lower quartile is the level.
	levelSamples = 15
	// noiseSamples is the number of samples whose median above the level is noise: half of them may
	// lie in spikes that began before spikes were known.
	noiseSamples = 120
	// minLevelSamples and minNoiseSamples are needed before anything is a spike.
	minLevelSamples = 5
	minNoiseSamples = 14

	// A spike is higher than minHeight, than a share of the level, and than the noise. In a process
	// that grows evenly, all samples are above the level by as much, and the noise is no more.
	minHeight      = 32 << 20 // bytes
	minHeightShare = 0.05
	noiseFactor    = 10 // median absolute deviations above the median

	// A rise longer than minLongest samples and than longestShare of all is no spike, but another
	// level. The verdict's lower envelope follows such a rise, too.
	minLongest   = 60
	longestShare = 1.0 / 6
)

// A Detector finds the spikes of a series of RSS as it comes: excursions above the recent level that
// fall back. The zero value is ready.
type Detector struct {
	recent, noise ring
	samples       int
	at            time.Duration // of the last sample

	// The rest is of the excursion that goes on.
	inSpike           bool
	from, before      time.Duration // its first sample, and the one before
	length            int           // samples
	level             int64
	peak, last, prior int64 // RSS: the highest, of the last sample and of the one before
}

// An Event is the news of a sample.
type Event int

// The events.
const (
	Nothing   Event = iota
	Begun           // RSS is above the level
	Ended           // it has fallen back by half: that was a spike
	Abandoned       // it has stayed for too long: a step or a ramp
)

// Add adds a sample. RSS is in bytes, not Unknown.
func (d *Detector) Add(at time.Duration, rss int64) Event {
	d.samples++
	d.prior, d.last = d.last, rss
	prior := d.at
	d.at = at
	if d.inSpike {
		return d.addInSpike(rss)
	}

	d.level = d.recent.quantile(0.25)
	isKnown := len(d.recent.values) >= minLevelSamples && len(d.noise.values) >= minNoiseSamples
	if isKnown && rss > d.level+minHeight && rss > d.level+d.threshold() {
		d.inSpike, d.from, d.before, d.length, d.peak = true, at, prior, 1, rss
		return Begun
	}

	d.recent.add(rss, levelSamples)
	d.noise.add(max(0, rss-d.level), noiseSamples)
	return Nothing
}

func (d *Detector) addInSpike(rss int64) Event {
	d.length++
	d.peak = max(d.peak, rss)
	isOver := rss <= d.level+(d.peak-d.level)/2
	isLong := d.length > max(minLongest, int(longestShare*float64(d.samples)))
	if !isOver && !isLong {
		return Nothing
	}

	d.inSpike = false
	isOld := d.length > levelSamples                    // the process may have grown meanwhile
	if isLong || isOld || rss > d.level+d.threshold() { // or part of it stays
		d.recent = ring{}
	}
	d.recent.add(rss, levelSamples)
	if isOver {
		return Ended
	}
	return Abandoned
}

// threshold is how much above the level a spike begins, in bytes.
func (d *Detector) threshold() int64 {
	return max(minHeight, int64(minHeightShare*float64(d.level)),
		d.noise.quantile(0.5)+noiseFactor*d.noise.deviation())
}

// InSpike reports whether RSS is above the level, in a possible spike.
func (d *Detector) InSpike() bool { return d.inSpike }

// height is the height of an RSS above the level, in bytes.
func (d *Detector) height(rss int64) int64 { return rss - d.level }

// isFalling is true of a spike whose peak is over: it is too late for a snapshot.
func (d *Detector) isFalling() bool { return 10*d.height(d.last) < 9*d.height(d.peak) }

// hasRisen is true of a spike that does not rise any more, or little.
func (d *Detector) hasRisen() bool { return 10*(d.last-d.prior) < d.height(d.last) }

// A ring has the latest values.
type ring struct {
	values []int64
	next   int // the oldest, once there are as many as there may be
}

func (r *ring) add(value int64, most int) {
	if len(r.values) < most {
		r.values = append(r.values, value)
		return
	}
	r.values[r.next] = value
	r.next = (r.next + 1) % most
}

// quantile is the value below which a share of the values lies; 0 without values.
func (r *ring) quantile(share float64) int64 {
	if len(r.values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(r.values))
	return sorted[int(share*float64(len(sorted)-1))]
}

// deviation is the median absolute deviation of the values.
func (r *ring) deviation() int64 {
	median, deviations := r.quantile(0.5), ring{}
	for _, value := range r.values {
		deviations.values = append(deviations.values, max(value-median, median-value))
	}
	return deviations.quantile(0.5)
}

// rssOf is the RSS of a process at a snapshot; Unknown where its pages were not scanned.
func rssOf(s *growth.Snapshot, pid int) int64 {
	for _, r := range s.Residents {
		if r.PID == pid {
			return r.RSS
		}
	}
	return growth.Unknown
}
