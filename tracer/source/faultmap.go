package source

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sort"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer/addrspace"
	"github.com/allocscope/allocscope/tracer/kernel"
)

// keptFaults is how many faults are kept in the kernel's map when it fills.
const keptFaults = kernel.MaxFaults / 4

// A FaultThinner keeps room in the kernel's map of page faults, so that faults of the first minutes
// do not fill it for good.
type FaultThinner struct {
	Kernel *kernel.Kernel

	kept  uint64 // faults in the map when it was read last
	taken uint64 // faults that had been sampled by then
}

// Thin thins the map if it may be more than half full. It keeps some of the faults at random, with
// weights such that each sum of weights keeps its expectation. A fault that is sampled meanwhile
// may be lost.
func (r *FaultThinner) Thin() error {
	counters, err := kernel.ReadCounters(r.Kernel.Counters)
	if err != nil {
		return err
	}
	taken := counters[bpf.CountFaults]
	if r.kept+taken-r.taken <= kernel.MaxFaults/2 { // the same page may have been sampled twice
		return nil
	}

	var keys []bpf.Address
	var faults []bpf.Fault
	err = kernel.ReadMap(r.Kernel.Faults, func(key *bpf.Address, f *bpf.Fault) {
		keys, faults = append(keys, *key), append(faults, *f)
	})
	if err != nil {
		return fmt.Errorf("read page faults: %w", err)
	}

	thinned, left := thinFaults(keys, faults, keptFaults)
	kernel.DeleteKeys(r.Kernel.Faults, left)
	r.kept, r.taken = uint64(len(keys)-len(left)), taken
	if len(thinned.keys) == 0 {
		return nil
	}
	if _, err := r.Kernel.Faults.BatchUpdate(thinned.keys, thinned.faults, nil); err != nil {
		return fmt.Errorf("weigh page faults: %w", err)
	}
	return nil
}

// reweightedFaults are faults that got another weight.
type reweightedFaults struct {
	keys   []bpf.Address
	faults []bpf.Fault
}

// thinFaults draws about so many faults at most, and returns the drawn faults that have a new
// weight and the keys of the faults left out. A fault of weight w is kept with probability min(1,
// w/τ), and then has the weight max(w, τ). That is threshold sampling (Duffield, Lund, Thorup
// 2005): it has the least sum of variances for the number of faults.
func thinFaults(keys []bpf.Address, faults []bpf.Fault, most int) (w reweightedFaults, left []bpf.Address) {
	threshold := thresholdOf(faults, most)
	for i, f := range faults {
		switch {
		case f.Period >= threshold:
		case rand.Uint32N(threshold) < f.Period:
			f.Period = threshold
			w.keys, w.faults = append(w.keys, keys[i]), append(w.faults, f)
		default:
			left = append(left, keys[i])
		}
	}
	return w, left
}

// thresholdOf returns a threshold τ at which no more than so many faults are kept on average.
func thresholdOf(faults []bpf.Fault, most int) uint32 {
	threshold := uint32(1)
	for threshold < math.MaxUint32/2 {
		expected := 0.0
		for _, f := range faults {
			expected += min(1, float64(f.Period)/float64(threshold))
		}
		if expected <= float64(most) {
			break
		}
		threshold *= 2
	}
	return threshold
}

// SplitReleased separates the faults of pages that have been released since. faults are sorted by
// page. It returns the others, and the pages that were released.
func SplitReleased(faults []Fault, released []addrspace.Release) (kept []Fault, gone []uint64) {
	if len(released) == 0 {
		return faults, nil
	}
	released = slices.SortedFunc(slices.Values(released), func(a, b addrspace.Release) int {
		return cmp.Compare(b.Time, a.Time)
	})

	// The newest release of a page decides. next[i] leads to the first fault from i on that none
	// has decided yet, so that ranges which overlap cost no more than others.
	next := make([]int, len(faults)+1)
	for i := range next {
		next[i] = i
	}
	undecided := func(i int) int {
		for next[i] != i {
			next[i] = next[next[i]]
			i = next[i]
		}
		return i
	}

	isGone := make([]bool, len(faults))
	for _, r := range released {
		first := sort.Search(len(faults), func(i int) bool { return faults[i].Page >= r.Start })
		i := undecided(first)
		for i < len(faults) && faults[i].Page < r.End {
			isGone[i] = faults[i].Time < r.Time
			next[i] = i + 1
			i = undecided(i)
		}
	}

	for i, f := range faults {
		if isGone[i] {
			gone = append(gone, f.Page)
		} else {
			kept = append(kept, f)
		}
	}
	return kept, gone
}
