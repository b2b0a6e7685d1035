package trend

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/allocscope/allocscope/growth/growthtest"

	"github.com/allocscope/allocscope/growth"
)

// The simulated bursts: the allocator is probed for half a second now and then, and the objects
// born then are checked from outside every five seconds.
const (
	burstSeconds  = 0.5
	checkSeconds  = 5.0
	burstInterval = 64 << 10
	// foundShare of the dead objects whose chunks are free is found by a check.
	foundShare   = 0.97
	movingBursts = 4
)

// A burstScene is a trace of so many seconds, with bursts for a share of the time.
type burstScene struct {
	duty, until float64
	// pages are scanned: the resident heap is known.
	pages bool
	// alike: all objects of a site have the same fingerprint.
	alike bool
}

// maturity is a fifth of a short trace.
func (s burstScene) maturity() float64 { return min(60, max(10, s.until/5)) }

func (s burstScene) every() float64 { return s.until / 40 }

// from is the start of the window, in seconds.
func (s burstScene) from() float64 { return max(s.until/10, s.maturity()) }

// A simulatedSite is one stack. Bytes are allocated at a rate, in objects of about one size.
type simulatedSite struct {
	name  string
	leaks bool
	size  float64
	// rate in bytes per second at a moment; births are even at that rate for a moment.
	rate func(at float64) float64
	// life of an object that is born at a moment; +Inf: it is never freed.
	life func(random *rand.Rand, birth float64) float64
	// reused is the probability that an object of the site reuses the chunk of a dead one before a
	// check; lost that one of another site does, which is never freed.
	reused, lost float64
	// held is the live bytes of the site at a moment, of all that it ever allocated.
	held  func(at float64) float64
	class uint64
}

// A burst is a period of probing in seconds. It represents extrapolation times its length.
type burst struct{ start, end, extrapolation float64 }

// randomBursts have the pauses of the overhead controller; duty is the share of the time in bursts.
// Each represents its part of the time of four.
func randomBursts(random *rand.Rand, duty, until float64) []burst {
	var bursts []burst
	last := 0.0
	for {
		start := last + burstSeconds*(1/duty-1)*min(random.ExpFloat64(), 3)/0.95
		end := start + burstSeconds
		if end > until {
			return bursts
		}
		bursts = append(bursts, burst{start: start, end: end})
		few := bursts[max(0, len(bursts)-movingBursts):]
		since := 0.0
		if before := len(bursts) - 1 - len(few); before >= 0 {
			since = bursts[before].end
		}
		bursts[len(bursts)-1].extrapolation = (end - since) / (burstSeconds * float64(len(few)))
		last = end
	}
}

// A trackedObject is a sampled object; gone is when it was found dead.
type trackedObject struct {
	index        int
	birth, gone  float64
	bytes, extra float64 // w and w(w - s), extrapolated
	diedInBurst  bool    // freed in a burst
	changed      float64 // when its chunk was reused unseen; +Inf: never
}

// trackedOf draws the objects of a site that are sampled in the bursts.
func trackedOf(random *rand.Rand, site simulatedSite, bursts []burst) []trackedObject {
	var out []trackedObject
	share := 1 - math.Exp(-site.size/burstInterval)
	for k, w := range bursts {
		const parts = 50 // of a burst, within which the rate is even
		for part := range parts {
			at := w.start + (float64(part)+random.Float64())*burstSeconds/parts
			for range poisson(random, site.rate(at)*burstSeconds/parts/site.size*share) {
				weight := site.size / share * w.extrapolation
				s := trackedObject{
					index: k, birth: at, bytes: weight, extra: weight * (weight - site.size),
				}
				s.gone, s.diedInBurst, s.changed = site.goneAt(random, at, bursts)
				out = append(out, s)
			}
		}
	}

	return out
}

// goneAt follows one chunk, which objects of the site reuse, until one is found dead.
func (s *simulatedSite) goneAt(
	random *rand.Rand, birth float64, bursts []burst,
) (gone float64, inBurst bool, changed float64) {
	at, changed := birth, math.Inf(1)
	for {
		at += s.life(random, at)
		if at > bursts[len(bursts)-1].end {
			return at, false, changed // after the trace, or all but
		}
		next, _ := slices.BinarySearchFunc(bursts, at, func(w burst, at float64) int {
			if w.end < at {
				return -1
			}
			return 1
		})
		if next < len(bursts) && at >= bursts[next].start {
			return at, true, changed
		}
		switch luck := random.Float64(); {
		case luck < s.reused:
			changed = min(changed, at)
			continue
		case luck < s.reused+s.lost:
			return math.Inf(1), false, min(changed, at)
		}
		found := math.Ceil(at/checkSeconds) * checkSeconds
		for random.Float64() > foundShare {
			found += checkSeconds
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

// hazardsUntil returns the hazard rate of a site observed by each of the moments.
func hazardsUntil(tracked []trackedObject, bursts []burst, moments []float64) []growth.HazardRate {
	hazards := make([]growth.HazardRate, len(moments))
	at := func(moment float64, s trackedObject) *growth.DeathCounts {
		i, _ := slices.BinarySearch(moments, moment)
		return hazards[min(i, len(moments)-1)].At(seconds(moment - s.birth))
	}
	for _, s := range tracked {
		last := moments[len(moments)-1]
		for _, w := range bursts[s.index+1:] {
			if w.start > s.gone {
				break
			}
			at(w.end, s).ExposureSeconds += min(s.gone, w.end) - w.start
		}
		for polled := s.birth + checkSeconds; polled <= min(s.gone, last); polled += checkSeconds {
			at(polled-checkSeconds, s).TrackedSeconds += checkSeconds
		}
		switch {
		case s.gone > last, s.gone <= bursts[s.index].end:
		case s.diedInBurst:
			at(s.gone, s).Deaths++
		default:
			at(max(s.birth, s.gone-checkSeconds), s).FoundDead++
		}
	}

	for i := 1; i < len(hazards); i++ {
		hazards[i].Add(&hazards[i-1])
	}
	return hazards
}

func seconds(x float64) time.Duration { return time.Duration(x * float64(time.Second)) }

// snapshots of a process with these sites; the ID of a stack is its index plus 1.
func (s burstScene) snapshots(random *rand.Rand, sites []simulatedSite) []*growth.Snapshot {
	bursts := randomBursts(random, s.duty, s.until)
	moments, trace := s.emptySnapshots(bursts)
	if s.pages {
		for i, at := range moments {
			held := 100e6
			for _, site := range sites {
				held += site.held(at)
			}
			trace[i].Holdings = append(trace[i].Holdings, growth.Holding{
				Stack: growth.NamedStack(1, "[heap: unclassified]"), Kind: growth.KindUnclassified,
				ResidentBytes: int64(held),
			})
		}
	}

	for i, site := range sites {
		b := estimator{
			alike: s.alike, maturity: s.maturity(), moments: moments,
			tracked: trackedOf(random, site, bursts),
		}
		b.hazards = hazardsUntil(b.tracked, bursts, moments)
		for _, w := range bursts {
			b.extrapolations = append(b.extrapolations, w.extrapolation)
		}
		for k := range moments {
			if h := b.holding(k, trace[k].Heap.Bursts); h.Samples > 0 {
				h.Stack, h.Evidence.SizeClass = &growth.Stack{ID: uint64(i + 1), PID: 1}, site.class
				trace[k].Holdings = append(trace[k].Holdings, h)
			}
		}
	}

	return trace
}

func (s burstScene) emptySnapshots(bursts []burst) (moments []float64, trace []*growth.Snapshot) {
	var bins []time.Duration
	var extrapolations float64
	open := 0
	for at := 0.0; at <= s.until; at += s.every() {
		for ; open < len(bursts) && bursts[open].end <= at; open++ {
			extrapolations += bursts[open].extrapolation
		}
		moments, bins = append(moments, at), append(bins, seconds(at))
		trace = append(trace, &growth.Snapshot{
			Elapsed: seconds(at), Interval: burstInterval, Bins: slices.Clone(bins),
			Heap: growth.HeapCoverage{
				Bursts: open, Open: seconds(burstSeconds * float64(open)),
				Lag: seconds(s.maturity()), Extrapolation: extrapolations / float64(max(1, open)),
			},
		})
	}

	return moments, trace
}

// An estimator has a session's data on one site at each of the moments.
type estimator struct {
	alike          bool
	maturity       float64
	moments        []float64
	tracked        []trackedObject
	hazards        []growth.HazardRate
	extrapolations []float64
}

// holding at a moment, after so many bursts: mature objects that were not found dead, weighted by
// their survival.
func (b *estimator) holding(k, bursts int) growth.Holding {
	at, survival := b.moments[k], b.hazards[k].Survival()
	h := growth.Holding{
		Kind: growth.KindHeap, Evidence: &growth.BurstEvidence{HazardRate: b.hazards[k]},
	}
	var sums []growth.BurstSum
	var bytes float64
	for _, s := range b.tracked {
		mature := s.birth + b.maturity
		if mature > at || s.gone <= at || s.index >= bursts {
			continue
		}
		alive, unsure := survival.At(seconds(at - s.birth))
		h.Samples++
		h.Evidence.Unchanged += one(s.changed > at)
		bytes += s.bytes * alive
		bin, _ := slices.BinarySearch(b.moments, mature)
		birth := growth.Birth{Bin: bin, InuseBytes: s.bytes * alive, Variance: s.extra * alive * alive}
		h.AddBirth(birth)
		if len(sums) == 0 || sums[len(sums)-1].Burst != s.index {
			sums = append(sums, growth.BurstSum{Burst: s.index})
		}
		sum := &sums[len(sums)-1]
		sum.Bytes += birth.InuseBytes
		sum.Variance += birth.Variance
		sum.Error += s.bytes * unsure
	}

	h.Evidence.Fingerprinted, h.Evidence.Diversity = int(h.Samples), 1-float64(one(b.alike))
	h.Evidence.Bursts = len(sums)
	h.Evidence.Dispersion = growth.Dispersion(sums, b.extrapolations[:bursts])
	h.InuseBytes = int64(math.Round(bytes))
	for i := range h.Births {
		h.Births[i].Variance *= h.Evidence.Dispersion
		h.Variance += h.Births[i].Variance
	}
	return h
}

func constantly(rate float64) func(float64) float64 { return func(float64) float64 { return rate } }

func forever(*rand.Rand, float64) float64 { return math.Inf(1) }

// exponential lives of a mean length in seconds.
func exponential(life float64) func(*rand.Rand, float64) float64 {
	return func(random *rand.Rand, _ float64) float64 { return random.ExpFloat64() * life }
}

// inPhases of a rate: all of it comes in a part of each period.
func inPhases(rate, period, part, phase float64) func(float64) float64 {
	return func(at float64) float64 {
		if math.Mod(at/period+phase, 1) < part {
			return rate / part
		}
		return 0
	}
}

// leakingSites never free all of their objects, or a part of them.
func leakingSites(random *rand.Rand, rate float64) []simulatedSite {
	size := growthtest.LogUniform(random, 200, 64<<10)
	each := rate
	leak := func(name string, rate func(float64) float64) simulatedSite {
		return simulatedSite{
			name: name, leaks: true, size: size, rate: rate, life: forever,
			held: func(at float64) float64 { return each * at },
		}
	}
	mixed := simulatedSite{
		name: "leak of 2 % of transient objects", leaks: true, size: size,
		rate: constantly(50 * rate), reused: 0.25,
		held: func(at float64) float64 { return rate * at },
	}
	mixed.life = func(random *rand.Rand, _ float64) float64 {
		if random.Float64() < 0.02 {
			return math.Inf(1)
		}
		return random.ExpFloat64() * 20
	}
	return []simulatedSite{
		leak("leak", constantly(rate)),
		leak("leak in steps of 0.3 s", inPhases(rate, 0.3, 0.1, random.Float64())),
		leak("leak in bursts of 2 s each 20 s", inPhases(rate, 20, 0.1, random.Float64())), mixed,
	}
}

// steadySites hold the same at all times, except for the cache that fills.
func steadySites(random *rand.Rand, rate float64) []simulatedSite {
	var sites []simulatedSite
	add := func(name string, size float64, life func(*rand.Rand, float64) float64, reused float64) {
		sites = append(sites, simulatedSite{
			name: name, size: size, rate: constantly(rate), life: life, reused: reused,
			held: constantly(0),
		})
	}
	size := func() float64 { return growthtest.LogUniform(random, 200, 64<<10) }
	add("transient", size(), exponential(growthtest.LogUniform(random, 1, 100)), 0.25)
	for _, minutes := range []float64{2, 5, 10, 30} {
		kept := 60 * minutes
		add(fmt.Sprintf("cache of %v min", minutes), size(),
			func(*rand.Rand, float64) float64 { return kept }, 0.25)
	}
	// The worst case: one size, each chunk reused at once.
	for _, life := range []float64{10, 60, 300} {
		add(fmt.Sprintf("LRU of one size, %v s", life), size(), exponential(life), 1)
	}
	epoch, phase := growthtest.LogUniform(random, 100, 1000), random.Float64()
	add("refilled each epoch", size(), func(_ *rand.Rand, birth float64) float64 {
		return (math.Floor(birth/epoch+phase)+1-phase)*epoch - birth
	}, 0.25)
	full := growthtest.From + (0.05+0.4*random.Float64())*(growthtest.To-growthtest.From)
	fills := func(at float64) float64 {
		if at < full {
			return rate
		}
		return 0
	}
	return append(sites, simulatedSite{
		name: "cache that fills", size: size(), rate: fills, life: forever,
		held: func(at float64) float64 { return rate * min(at, full) },
	})
}

// A judgedSite is one simulated site: its true growth in bytes, and its judgement.
type judgedSite struct {
	simulatedSite
	truth float64
	StackTrend
}

func (s burstScene) judged(random *rand.Rand, sites []simulatedSite) []judgedSite {
	var judged []judgedSite
	for _, t := range JudgeStacks(s.snapshots(random, sites), Window{seconds(s.from()), seconds(s.until)}, math.NaN()) {
		if t.Kind != growth.KindHeap {
			continue
		}
		// The snapshot nearest to from, from which on all growth is from bursts.
		from := math.Ceil(s.maturity()/s.every()) * s.every()
		from = max(from, math.Round(s.from()/s.every())*s.every())
		site := sites[t.Stack.ID-1]
		truth := site.held(s.until-s.maturity()) - site.held(from-s.maturity())
		judged = append(judged, judgedSite{site, truth, t})
	}
	return judged
}

func (s burstScene) leaksIn(random *rand.Rand, runs int, rate float64) (judged []judgedSite) {
	for range runs {
		judged = append(judged, s.judged(random, leakingSites(random, rate))...)
	}
	return judged
}

// misses are the shares of the intervals that lie above the truth and below it.
func misses(judged []judgedSite) (above, below float64) {
	for _, s := range judged {
		above += float64(one(s.truth < s.Low-1)) / float64(len(judged))
		below += float64(one(s.truth > s.High+1)) / float64(len(judged))
	}
	return above, below
}

func TestSimulatedBursts(t *testing.T) {
	t.Run("intervals", func(t *testing.T) {
		var all []judgedSite
		for i, duty := range []float64{0.01, 0.02, 0.05} {
			random := rand.New(rand.NewPCG(21, uint64(i)))
			rate := growthtest.LogUniform(random, 50e3, 1e6)
			all = append(all, burstScene{duty: duty, until: 1200}.leaksIn(random, 30, rate)...)
		}
		above, below := misses(all)
		t.Logf("of %d intervals, %.3f lie above the truth, %.3f below", len(all), above, below)
		if len(all) < 300 || above+below > 0.09 {
			t.Error("too many do not hold the truth")
		}
	})

	t.Run("a leak is found and measured", func(t *testing.T) {
		random := rand.New(rand.NewPCG(22, 1))
		var all, found, far int
		for _, s := range (burstScene{duty: 0.05, until: 600, pages: true}).leaksIn(random, 20, 1e6) {
			if strings.Contains(s.name, "bursts") {
				continue // many bursts meet no allocation
			}
			all++
			found += one(s.Trend == growth.TrendAccumulating)
			far += one(math.Abs(s.Growth/s.truth-1) > 0.25)
		}
		t.Logf("of %d leaks %d are found, %d are off by more than a quarter", all, found, far)
		if all != 60 || found < 56 || far > 6 {
			t.Error("too few leaks of 1 MB/s are found in ten minutes at 5 %, or measured well")
		}
	})

	// A cache with lives of half the trace or longer looks like growth, with or without bursts.
	t.Run("no cache of steady size accumulates", func(t *testing.T) {
		for i, duty := range []float64{0.01, 0.02, 0.05} {
			random := rand.New(rand.NewPCG(23, uint64(i)))
			counts := make(map[growth.Trend]int)
			for range 6 {
				rate := growthtest.LogUniform(random, 10e3, 2e6)
				for _, s := range (burstScene{duty: duty, until: 3600}).judged(random, steadySites(random, rate)) {
					counts[s.Trend]++
					if s.Trend == growth.TrendAccumulating && s.name != "cache of 30 min" {
						t.Errorf("%v of the time probed: a %q of %.0f bytes/s accumulates: %+v",
							duty, s.name, rate, s.StackTrend)
					}
				}
			}
			t.Logf("%v of the time probed: %v", duty, counts)
		}
	})

	t.Run("growth beyond that of the heap is undecided", func(t *testing.T) {
		random := rand.New(rand.NewPCG(24, 1))
		reasons := make(map[growth.UndecidedReason]int)
		for range 10 {
			long := steadySites(random, 1e6)[4]
			for _, s := range (burstScene{duty: 0.05, until: 3600, pages: true}).judged(random, []simulatedSite{long}) {
				reasons[s.Undecided]++
				if s.Trend == growth.TrendAccumulating {
					t.Errorf("%s: %+v", s.name, s.StackTrend)
				}
			}
		}
		if reasons[growth.UndecidedHeapGrowth] == 0 {
			t.Errorf("no growth was undecided because the heap has not grown: %v", reasons)
		}
	})

	// Chunks of short-lived objects that a leak reuses stay alive for good.
	t.Run("a smaller stack of a leak's size class is undecided", func(t *testing.T) {
		random := rand.New(rand.NewPCG(25, 1))
		leak := leakingSites(random, 1e6)[0]
		robbed := simulatedSite{
			name: "robbed", size: leak.size, rate: constantly(1e6), life: exponential(100),
			lost: 0.3, class: 64,
		}
		robbed.held, leak.class = constantly(0), 64
		ghosts := 0
		for range 10 {
			for _, s := range (burstScene{duty: 0.05, until: 1200}).judged(random, []simulatedSite{leak, robbed}) {
				switch {
				case s.leaks && s.Trend != growth.TrendAccumulating:
					t.Errorf("the leak: %+v", s.StackTrend)
				case !s.leaks && s.Trend == growth.TrendAccumulating:
					t.Errorf("what the leak has taken the places of: %+v", s.StackTrend)
				}
				ghosts += one(s.Undecided == growth.UndecidedSizeClass)
			}
		}
		if ghosts == 0 {
			t.Error("nothing was undecided because of its size class")
		}
	})
}

func one(b bool) int {
	if b {
		return 1
	}
	return 0
}
