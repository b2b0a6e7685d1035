package estimate

import (
	"fmt"
	"slices"
	"time"

	"github.com/cilium/ebpf"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/stack"
)

// BirthBins has the ends of time bins, in order, in ns, CLOCK_MONOTONIC. The last one is now.
type BirthBins []uint64

// SetBins sets the bins of a snapshot, which end at moments since the start of the trace and at the
// snapshot, and returns them. started is in ns, CLOCK_MONOTONIC.
func SetBins(snapshot *growth.Snapshot, started uint64, ends []time.Duration) (bins BirthBins) {
	for _, end := range append(slices.Clip(ends), snapshot.Elapsed) {
		if end <= snapshot.Elapsed {
			snapshot.Bins = append(snapshot.Bins, end)
			bins = append(bins, started+uint64(end))
		}
	}
	return bins
}

// Index returns the bin of a moment; false: the moment is after the last bin.
func (b BirthBins) Index(moment uint64) (bin int, ok bool) {
	bin, _ = slices.BinarySearch(b, moment)
	return bin, bin < len(b)
}

// LiveObject is a sampled allocation that is alive.
type LiveObject struct {
	Address, Size, Stack uint64  // Size in bytes; Stack is the kernel side's ID
	Weight               float64 // number of live objects that it represents
}

// LiveObjects has the live objects of each process, by PID.
type LiveObjects map[uint32][]LiveObject

// Pin is pinned memory of the host.
type Pin struct {
	mem.Span
	Stack uint64
}

// maxBelievedBytes bounds the sum of the objects of a process: that is how much it can address. A
// process with a malloc of its own can make up any sizes.
const maxBelievedBytes = 1 << 47

// believedBytes sums the sizes of the objects of each process, by PID.
type believedBytes map[uint32]uint64

// limit makes the bytes of one more object, or the bytes that it represents by its producer, at
// most the rest of maxBelievedBytes.
func (b believedBytes) limit(tgid uint32, a *bpf.Allocation) {
	isWeighted, left := a.Weight != 0, maxBelievedBytes-b[tgid]
	if isWeighted {
		a.Weight = min(a.Weight, left)
		left = a.Weight
	}
	a.Size = min(a.Size, left)
	b[tgid] += max(a.Size, a.Weight)
}

// ReadLive adds the objects of the live maps of heap and tensors to sums, and returns them in no
// particular order. An object that counts only after the last bin is left out: it belongs to a
// later snapshot. ReadLive takes over the memory of last, the result of the previous call.
func ReadLive(
	k *kernel.Kernel, estimator *Estimator, sums map[stack.Key]*StackTotals, last LiveObjects,
) (LiveObjects, error) {
	objects, sizes := last.emptied(), make(believedBytes)
	add := func(key *bpf.Address, a *bpf.Allocation) {
		sizes.limit(key.Tgid, a)
		estimate := estimator.estimate(key, a)
		bin, ok := estimator.bins.Index(estimate.countedFrom)
		if !ok {
			return
		}

		estimator.totals.add(a, estimate)
		of := stack.Key{TGID: key.Tgid, ID: a.Stack}
		TotalsOf(sums, of).AddLive(a.Size, estimate, bin)
		objects[key.Tgid] = append(objects[key.Tgid], LiveObject{
			Address: key.Address,
			Size:    a.Size,
			Stack:   a.Stack,
			Weight:  estimate.Weight * estimate.Alive,
		})
	}
	for _, m := range []*ebpf.Map{k.Live, k.Tensors} {
		if err := kernel.ReadMap(m, add); err != nil {
			return nil, fmt.Errorf("read live allocations: %w", err)
		}
	}

	for key, sum := range sums {
		if rate := estimator.tracker.HazardRates[key]; rate != nil && sum.evidence != nil {
			sum.evidence.hazardRate = *rate
		}
	}
	return objects, nil
}

// emptied returns a map with the memory of o, but for processes without objects.
func (o LiveObjects) emptied() LiveObjects {
	empty := make(LiveObjects, len(o))
	for tgid, objects := range o {
		if len(objects) > 0 {
			empty[tgid] = objects[:0]
		}
	}
	return empty
}
