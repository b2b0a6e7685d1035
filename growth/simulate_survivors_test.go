package growth

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// The simulated windows: calls are watched for half a second now and then, and what was born then is looked at from outside every
// five seconds. Of this a session makes what it knows.
const (
	windowLength   = 0.5
	windowPoll     = 5.0
	windowInterval = 64 << 10
	// windowDeathsFound is the share of dead objects, their places free, that a poll finds.
	windowDeathsFound = 0.97
	movingWindows     = 4
)

// A windowScene is a trace of so many seconds, in which windows are open for a share of the time.
type windowScene struct {
	duty, until float64
	// pages are looked at: the kernel counts what is truly held.
	pages bool
	// alike are objects of one site: what is in them tells nothing.
	alike bool
}

// maturity is a fifth of a short trace.
func (s windowScene) maturity() float64 { return min(60, max(10, s.until/5)) }

// every so many seconds is a snapshot.
func (s windowScene) every() float64 { return s.until / 40 }

// from is where the stacks are judged from, in seconds.
func (s windowScene) from() float64 { return max(s.until/10, s.maturity()) }

// A simulatedSite is one stack. Bytes are allocated at a rate, in objects of about one size.
type simulatedSite struct {
	name  string
	leaks bool
	size  float64
	// rate in bytes per second at a moment; births come evenly at that rate within each stretch of the burst's period.
	rate func(at float64) float64
	// life of an object that is born at a moment; +Inf: it is never freed.
	life func(random *rand.Rand, birth float64) float64
	// retaken is the probability that another object of the same site takes the place of one that dies, before a poll; lost
	// that one of another site does, which stays.
	retaken, lost float64
	// held is what is alive of the site at a moment, in bytes: all that was ever allocated.
	held  func(at float64) float64
	class uint64
}

// An openWindow is when calls were watched, in seconds, and how many times its length it stands for.
type openWindow struct{ start, end, factor float64 }

// randomWindows have spacings as package govern makes them; duty is the share of the time within windows. Each stands for its part
// of the time of four.
func randomWindows(random *rand.Rand, duty, until float64) []openWindow {
	var windows []openWindow
	last := 0.0
	for {
		start := last + windowLength*(1/duty-1)*min(random.ExpFloat64(), 3)/0.95
		end := start + windowLength
		if end > until {
			return windows
		}
		windows = append(windows, openWindow{start: start, end: end})
		few := windows[max(0, len(windows)-movingWindows):]
		since := 0.0
		if before := len(windows) - 1 - len(few); before >= 0 {
			since = windows[before].end
		}
		windows[len(windows)-1].factor = (end - since) / (windowLength * float64(len(few)))
		last = end
	}
}

// A survivor is a sampled object as a session knows it: gone is when it was found dead, for whatever reason.
type survivor struct {
	window       int
	birth, gone  float64
	bytes, extra float64 // w and w(w - s), the window's factor included
	seenToDie    bool    // in a window
	changed      float64 // when another object had taken its place unseen; +Inf: never
}

// survivorsOf draws what is sampled of a site in the windows.
func survivorsOf(random *rand.Rand, site simulatedSite, windows []openWindow) []survivor {
	var out []survivor
	share := 1 - math.Exp(-site.size/windowInterval)
	for k, w := range windows {
		const parts = 50 // of a window, within which the rate is even
		for part := range parts {
			at := w.start + (float64(part)+random.Float64())*windowLength/parts
			for range poisson(random, site.rate(at)*windowLength/parts/site.size*share) {
				weight := site.size / share * w.factor
				s := survivor{window: k, birth: at, bytes: weight, extra: weight * (weight - site.size)}
				s.gone, s.seenToDie, s.changed = site.goneAt(random, at, windows)
				out = append(out, s)
			}
		}
	}
	return out
}

// goneAt follows one place of memory, which objects of the site take one after another, until one is seen to die.
func (s *simulatedSite) goneAt(random *rand.Rand, birth float64, windows []openWindow) (gone float64, inWindow bool, changed float64) {
	at, changed := birth, math.Inf(1)
	for {
		at += s.life(random, at)
		if at > windows[len(windows)-1].end {
			return at, false, changed // after the trace, or all but
		}
		next, _ := slices.BinarySearchFunc(windows, at, func(w openWindow, at float64) int {
			if w.end < at {
				return -1
			}
			return 1
		})
		if next < len(windows) && at >= windows[next].start {
			return at, true, changed
		}
		switch luck := random.Float64(); {
		case luck < s.retaken:
			changed = min(changed, at)
			continue
		case luck < s.retaken+s.lost:
			return math.Inf(1), false, min(changed, at)
		}
		found := math.Ceil(at/windowPoll) * windowPoll
		for random.Float64() > windowDeathsFound {
			found += windowPoll
		}
		return found, false, changed
	}
}

func poisson(random *rand.Rand, mean float64) (n int) {
	for left := random.ExpFloat64(); left < mean; left += random.ExpFloat64() {
		n++
	}
	return n
}

// hazardsUntil is what was learnt of a site's objects by each of the moments.
func hazardsUntil(survivors []survivor, windows []openWindow, moments []float64) []Hazard {
	hazards := make([]Hazard, len(moments))
	at := func(moment float64, s survivor) *Fate {
		i, _ := slices.BinarySearch(moments, moment)
		return hazards[min(i, len(moments)-1)].At(seconds(moment - s.birth))
	}
	for _, s := range survivors {
		last := moments[len(moments)-1]
		for _, w := range windows[s.window+1:] {
			if w.start > s.gone {
				break
			}
			at(w.end, s).Exposure += min(s.gone, w.end) - w.start
		}
		for polled := s.birth + windowPoll; polled <= min(s.gone, last); polled += windowPoll {
			at(polled-windowPoll, s).Followed += windowPoll
		}
		switch {
		case s.gone > last, s.gone <= windows[s.window].end:
		case s.seenToDie:
			at(s.gone, s).Deaths++
		default:
			at(max(s.birth, s.gone-windowPoll), s).Found++
		}
	}
	for i := 1; i < len(hazards); i++ {
		hazards[i].Add(&hazards[i-1])
	}
	return hazards
}

func seconds(x float64) time.Duration { return time.Duration(x * float64(time.Second)) }

// snapshots of a process with these sites; the ID of a stack is its index plus 1.
func (s windowScene) snapshots(random *rand.Rand, sites []simulatedSite) []*Snapshot {
	windows := randomWindows(random, s.duty, s.until)
	moments, trace := s.unwatched(windows)
	if s.pages {
		for i, at := range moments {
			held := 100e6
			for _, site := range sites {
				held += site.held(at)
			}
			free := Holding{Stack: NamedStack(1, "[heap: free or not told yet]"), Kind: KindUntold, ResidentBytes: int64(held)}
			trace[i].Holdings = append(trace[i].Holdings, free)
		}
	}
	for i, site := range sites {
		b := books{alike: s.alike, maturity: s.maturity(), moments: moments, survivors: survivorsOf(random, site, windows)}
		b.hazards = hazardsUntil(b.survivors, windows, moments)
		for _, w := range windows {
			b.factors = append(b.factors, w.factor)
		}
		for k := range moments {
			if h := b.holding(k, trace[k].Watch.Windows); h.Samples > 0 {
				h.Stack, h.Sighting.SizeClass = &Stack{ID: uint64(i + 1), PID: 1}, site.class
				trace[k].Holdings = append(trace[k].Holdings, h)
			}
		}
	}
	return trace
}

// unwatched are the snapshots without what is held.
func (s windowScene) unwatched(windows []openWindow) (moments []float64, trace []*Snapshot) {
	var bins []time.Duration
	var factors float64
	open := 0
	for at := 0.0; at <= s.until; at += s.every() {
		for ; open < len(windows) && windows[open].end <= at; open++ {
			factors += windows[open].factor
		}
		moments, bins = append(moments, at), append(bins, seconds(at))
		trace = append(trace, &Snapshot{
			Elapsed: seconds(at), Interval: windowInterval, Bins: slices.Clone(bins),
			Watch: Watch{Windows: open, Open: seconds(windowLength * float64(open)), Lag: seconds(s.maturity()), Factor: factors / float64(max(1, open))},
		})
	}
	return moments, trace
}

// books are what a session knows of one site at each of the moments.
type books struct {
	alike     bool
	maturity  float64
	moments   []float64
	survivors []survivor
	hazards   []Hazard
	factors   []float64
}

// holding at a moment, after so many windows: what is mature and was not found dead, born when it has matured, and less by what
// may have died unseen.
func (b *books) holding(k, windows int) Holding {
	at, survival := b.moments[k], b.hazards[k].Survival()
	h := Holding{Kind: KindHeap, Sighting: &Sighting{Hazard: b.hazards[k]}}
	var sums []WindowSum
	var bytes float64
	for _, s := range b.survivors {
		mature := s.birth + b.maturity
		if mature > at || s.gone <= at || s.window >= windows {
			continue
		}
		alive, unsure := survival.At(seconds(at - s.birth))
		h.Samples++
		h.Sighting.Same += one(s.changed > at)
		bytes += s.bytes * alive
		bin, _ := slices.BinarySearch(b.moments, mature)
		h.AddBirth(Birth{Bin: bin, InuseBytes: s.bytes * alive, Variance: s.extra * alive * alive})
		if len(sums) == 0 || sums[len(sums)-1].Window != s.window {
			sums = append(sums, WindowSum{Window: s.window})
		}
		sums[len(sums)-1].Bytes += s.bytes * alive
		sums[len(sums)-1].Variance += s.extra * alive * alive
		sums[len(sums)-1].Error += s.bytes * unsure
	}
	h.Sighting.Printed, h.Sighting.Differ = int(h.Samples), 1-float64(one(b.alike))
	h.Sighting.Windows, h.Sighting.Dispersion = len(sums), Dispersion(sums, b.factors[:windows])
	h.InuseBytes = int64(math.Round(bytes))
	for i := range h.Births {
		h.Births[i].Variance *= h.Sighting.Dispersion
		h.Variance += h.Births[i].Variance
	}
	return h
}
