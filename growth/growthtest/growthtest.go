// Package growthtest has frames and simulated traces for the tests of growth's packages.
package growthtest

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/allocscope/allocscope/growth"
)

// PythonFrame returns a frame of a Python function.
func PythonFrame(function, file string, line int) growth.Frame {
	return growth.Frame{Function: function, File: file, Line: line, Python: true}
}

// NativeFrame returns a frame of a native function in a module.
func NativeFrame(function, module string) growth.Frame {
	return growth.Frame{Function: function, Module: &growth.Module{Path: module}}
}

// The simulated trace: a snapshot every 45 s for an hour, of which the first quarter is before the
// window. Times are in seconds.
const (
	Every = 45.0
	From  = 900.0
	To    = 3600.0
	// objectsPerStack is about how many objects a stack allocates.
	objectsPerStack = 2000
)

// An Object lives from birth to death, in seconds.
type Object struct {
	Birth, Death float64
	Size         float64
}

// IsAlive is true if the object is alive at a moment, in seconds.
func (o *Object) IsAlive(at float64) bool { return o.Birth <= at && o.Death > at }

// A Family draws the objects of one stack. rate is in bytes per second while it allocates.
type Family struct {
	Name  string
	Leaks bool
	Draw  func(random *rand.Rand, rate float64) []Object
}

func never(float64) float64 { return math.Inf(1) }

// Families are the behaviours of stacks.
var Families = []Family{
	{"leak", true, func(random *rand.Rand, rate float64) []Object {
		return AllocateEvenly(random, rate, 0, To, never)
	}},
	{"transient", false, func(random *rand.Rand, rate float64) []Object {
		life := LogUniform(random, 1, 300)
		return AllocateEvenly(random, 8*rate, 0, To, func(birth float64) float64 {
			return birth + random.ExpFloat64()*life
		})
	}},
	{"cache that fills", false, func(random *rand.Rand, rate float64) []Object {
		start := random.Float64() * From
		full := From + (0.05+0.4*random.Float64())*(To-From)
		return AllocateEvenly(random, 3*rate, start, full, never)
	}},
	{"refilled each epoch", false, func(random *rand.Rand, rate float64) []Object {
		epoch, phase := LogUniform(random, 100, 2000), random.Float64()
		return AllocateEvenly(random, 8*rate, 0, To, func(birth float64) float64 {
			return (math.Floor(birth/epoch+phase) + 1 - phase) * epoch
		})
	}},
	{"single allocation", false, func(random *rand.Rand, rate float64) []Object {
		at := random.Float64() * To
		return AllocateEvenly(random, 1000*rate, at, at+1, never)
	}},
	{"growth then release", false, func(random *rand.Rand, rate float64) []Object {
		start := random.Float64() * 1800
		release := start + 300 + random.Float64()*(To-start-300)
		return AllocateEvenly(
			random,
			2*rate,
			start,
			release,
			func(float64) float64 { return release },
		)
	}},
	{"before the window", false, func(random *rand.Rand, rate float64) []Object {
		return AllocateEvenly(random, rate, 0, From, never)
	}},
}

// LogUniform draws a value whose logarithm is uniform.
func LogUniform(random *rand.Rand, from, to float64) float64 {
	return from * math.Pow(to/from, random.Float64())
}

// AllocateEvenly draws objects of one typical size, at random moments from start to end.
func AllocateEvenly(
	random *rand.Rand, rate, start, end float64, death func(birth float64) float64,
) []Object {
	total := rate * (end - start)
	typical := max(total/objectsPerStack, LogUniform(random, 64, 64<<10))
	var objects []Object
	for at := start; ; {
		at += random.ExpFloat64() * typical / rate
		if at >= end {
			return objects
		}
		size := math.Ceil(typical * math.Exp(0.5*random.NormFloat64()-0.125))
		objects = append(objects, Object{at, death(at), size})
	}
}

// SampledBytewise takes the objects hit by points that are an exponential number of bytes apart, as
// the probes do.
func SampledBytewise(random *rand.Rand, objects []Object, interval float64) []Object {
	var taken []Object
	next := random.ExpFloat64() * interval
	for _, o := range objects {
		if next -= o.Size; next < 0 {
			taken = append(taken, o)
			next = random.ExpFloat64() * interval
		}
	}
	return taken
}

// TrueGrowth of the window, in bytes.
func TrueGrowth(objects []Object) float64 {
	var sum float64
	for i := range objects {
		o := &objects[i]
		if o.IsAlive(To) {
			sum += o.Size
		}
		if o.IsAlive(From) {
			sum -= o.Size
		}
	}
	return sum
}

// Trace returns the snapshots of stacks of sampled objects. The ID of a stack is its index plus 1.
func Trace(sampled [][]Object, interval float64) []*growth.Snapshot {
	var snapshots []*growth.Snapshot
	var bins []time.Duration
	for at := 0.0; at <= To; at += Every {
		bins = append(bins, time.Duration(at*float64(time.Second)))
		snapshots = append(snapshots, &growth.Snapshot{
			Elapsed: bins[len(bins)-1], Interval: uint64(interval), Bins: slices.Clone(bins),
		})
	}

	for i, objects := range sampled {
		stack := &growth.Stack{ID: uint64(i + 1), PID: 1}
		for at, h := range holdingsOf(objects, interval, len(snapshots)) {
			if h.Samples > 0 {
				h.Stack = stack
				snapshots[at].Holdings = append(snapshots[at].Holdings, h)
			}
		}
	}

	return snapshots
}

// holdingsOf returns the memory alive at each snapshot, with births at the last.
func holdingsOf(objects []Object, interval float64, snapshots int) []growth.Holding {
	// Changes since the snapshot before, then sums.
	held, variance := make([]float64, snapshots+1), make([]float64, snapshots+1)
	holdings := make([]growth.Holding, snapshots+1)
	births := make([]growth.Birth, snapshots+1)
	for _, o := range objects {
		weight := o.Size / (1 - math.Exp(-o.Size/interval))
		born, freed := snapshotFrom(o.Birth, snapshots), snapshotFrom(o.Death, snapshots)
		for i, at := range []int{born, freed} {
			sign := float64(1 - 2*i)
			held[at] += sign * weight
			variance[at] += sign * weight * (weight - o.Size)
			holdings[at].Samples += int64(sign)
		}
		if freed == snapshots {
			births[born].InuseBytes += weight
			births[born].Variance += weight * (weight - o.Size)
		}
	}

	for at := range snapshots {
		h := &holdings[at]
		if at > 0 {
			held[at] += held[at-1]
			variance[at] += variance[at-1]
			h.Samples += holdings[at-1].Samples
		}
		h.Kind, h.InuseBytes, h.Variance = growth.KindHeap, int64(
			math.Round(held[at]),
		), variance[at]
	}

	last := &holdings[snapshots-1]
	for bin, b := range births[:snapshots] {
		if b.InuseBytes > 0 {
			last.Births = append(
				last.Births,
				growth.Birth{Bin: bin, InuseBytes: b.InuseBytes, Variance: b.Variance},
			)
		}
	}

	return holdings[:snapshots]
}

// snapshotFrom is the index of the first snapshot at a moment in seconds or later; their number
// without one.
func snapshotFrom(moment float64, snapshots int) int {
	return int(min(math.Ceil(moment/Every), float64(snapshots)))
}
