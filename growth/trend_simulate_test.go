package growth

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// The simulated trace: a snapshot every 45 s for an hour, of which the first quarter is before the window.
const (
	simulatedEvery = 45.0
	simulatedFrom  = 900.0
	simulatedTo    = 3600.0
	// simulatedObjects is about how many objects a stack allocates.
	simulatedObjects = 2000
)

var simulatedWindow = Window{From: simulatedFrom * time.Second, To: simulatedTo * time.Second}

// A simulatedObject lives from birth to death, in seconds.
type simulatedObject struct {
	birth, death float64
	size         float64
}

// A simulatedFamily draws the objects of one stack. rate is in bytes per second while it allocates.
type simulatedFamily struct {
	name  string
	leaks bool
	draw  func(random *rand.Rand, rate float64) []simulatedObject
}

var simulatedFamilies = []simulatedFamily{
	{"leak", true, func(random *rand.Rand, rate float64) []simulatedObject {
		return allocateEvenly(random, rate, 0, simulatedTo, func(float64) float64 { return math.Inf(1) })
	}},
	{"churn", false, func(random *rand.Rand, rate float64) []simulatedObject {
		life := logUniform(random, 1, 300)
		return allocateEvenly(random, 8*rate, 0, simulatedTo, func(birth float64) float64 { return birth + random.ExpFloat64()*life })
	}},
	{"cache that fills", false, func(random *rand.Rand, rate float64) []simulatedObject {
		start := random.Float64() * simulatedFrom
		full := simulatedFrom + (0.05+0.4*random.Float64())*(simulatedTo-simulatedFrom)
		return allocateEvenly(random, 3*rate, start, full, func(float64) float64 { return math.Inf(1) })
	}},
	{"epoch refill", false, func(random *rand.Rand, rate float64) []simulatedObject {
		epoch, phase := logUniform(random, 100, 2000), random.Float64()
		return allocateEvenly(random, 8*rate, 0, simulatedTo, func(birth float64) float64 {
			return (math.Floor(birth/epoch+phase) + 1 - phase) * epoch
		})
	}},
	{"one-off", false, func(random *rand.Rand, rate float64) []simulatedObject {
		at := random.Float64() * simulatedTo
		return allocateEvenly(random, 1000*rate, at, at+1, func(float64) float64 { return math.Inf(1) })
	}},
	{"growth then release", false, func(random *rand.Rand, rate float64) []simulatedObject {
		start := random.Float64() * 1800
		release := start + 300 + random.Float64()*(simulatedTo-start-300)
		return allocateEvenly(random, 2*rate, start, release, func(float64) float64 { return release })
	}},
	{"nothing but a rest", false, func(random *rand.Rand, rate float64) []simulatedObject {
		return allocateEvenly(random, rate, 0, simulatedFrom, func(float64) float64 { return math.Inf(1) })
	}},
}

// busyLeak keeps 2 % of what ten threads allocate, and frees the rest within a minute or so.
func busyLeak(random *rand.Rand, rate float64) []simulatedObject {
	var objects []simulatedObject
	for range 10 {
		objects = append(objects, allocateEvenly(random, 5*rate, 0, simulatedTo, func(birth float64) float64 {
			if random.Float64() < 0.02 {
				return math.Inf(1)
			}
			return birth + random.ExpFloat64()*30
		})...)
	}
	return objects
}

func logUniform(random *rand.Rand, from, to float64) float64 {
	return from * math.Pow(to/from, random.Float64())
}

// allocateEvenly draws objects of one typical size, at random moments from start to end.
func allocateEvenly(random *rand.Rand, rate, start, end float64, death func(birth float64) float64) []simulatedObject {
	total := rate * (end - start)
	typical := max(total/simulatedObjects, logUniform(random, 64, 64<<10))
	var objects []simulatedObject
	for at := start; ; {
		at += random.ExpFloat64() * typical / rate
		if at >= end {
			return objects
		}
		size := math.Ceil(typical * math.Exp(0.5*random.NormFloat64()-0.125))
		objects = append(objects, simulatedObject{at, death(at), size})
	}
}

// sampledBytewise takes the objects that points fall into which lie an exponential number of bytes apart, as the probes do.
func sampledBytewise(random *rand.Rand, objects []simulatedObject, interval float64) []simulatedObject {
	var taken []simulatedObject
	next := random.ExpFloat64() * interval
	for _, o := range objects {
		if next -= o.size; next < 0 {
			taken = append(taken, o)
			next = random.ExpFloat64() * interval
		}
	}
	return taken
}

// trueGrowth of the window, in bytes.
func trueGrowth(objects []simulatedObject) float64 {
	var growth float64
	for _, o := range objects {
		if o.birth <= simulatedTo && o.death > simulatedTo {
			growth += o.size
		}
		if o.birth <= simulatedFrom && o.death > simulatedFrom {
			growth -= o.size
		}
	}
	return growth
}

// simulatedTrace is the snapshots of stacks of sampled objects; the ID of a stack is its index plus 1.
func simulatedTrace(sampled [][]simulatedObject, interval float64) []*Snapshot {
	var snapshots []*Snapshot
	var bins []time.Duration
	for at := 0.0; at <= simulatedTo; at += simulatedEvery {
		bins = append(bins, time.Duration(at*float64(time.Second)))
		snapshots = append(snapshots, &Snapshot{Elapsed: bins[len(bins)-1], Interval: uint64(interval), Bins: slices.Clone(bins)})
	}
	for i, objects := range sampled {
		stack := &Stack{ID: uint64(i + 1), PID: 1}
		for at, h := range holdingsOf(objects, interval, len(snapshots)) {
			if h.Samples > 0 {
				h.Stack = stack
				snapshots[at].Holdings = append(snapshots[at].Holdings, h)
			}
		}
	}
	return snapshots
}

// holdingsOf is what is alive at each snapshot, with births at the last.
func holdingsOf(objects []simulatedObject, interval float64, snapshots int) []Holding {
	held, variance := make([]float64, snapshots+1), make([]float64, snapshots+1) // what is added since the snapshot before
	holdings := make([]Holding, snapshots+1)
	births := make([]Birth, snapshots+1)
	for _, o := range objects {
		weight := o.size / (1 - math.Exp(-o.size/interval))
		born, freed := firstSnapshotFrom(o.birth, snapshots), firstSnapshotFrom(o.death, snapshots)
		for i, at := range []int{born, freed} {
			sign := float64(1 - 2*i)
			held[at] += sign * weight
			variance[at] += sign * weight * (weight - o.size)
			holdings[at].Samples += int64(sign)
		}
		if freed == snapshots {
			births[born].InuseBytes += weight
			births[born].Variance += weight * (weight - o.size)
		}
	}
	for at := range snapshots {
		h := &holdings[at]
		if at > 0 {
			held[at] += held[at-1]
			variance[at] += variance[at-1]
			h.Samples += holdings[at-1].Samples
		}
		h.Kind, h.InuseBytes, h.Variance = KindHeap, int64(math.Round(held[at])), variance[at]
	}
	for bin, b := range births[:snapshots] {
		if b.InuseBytes > 0 {
			holdings[snapshots-1].Births = append(holdings[snapshots-1].Births, Birth{bin, b.InuseBytes, b.Variance})
		}
	}
	return holdings[:snapshots]
}

// firstSnapshotFrom is the index of the first snapshot at a moment (seconds) or after it; their number where none is.
func firstSnapshotFrom(moment float64, snapshots int) int {
	return int(min(math.Ceil(moment/simulatedEvery), float64(snapshots)))
}
