package estimate

import (
	"github.com/allocscope/allocscope/growth"
)

// A MappedObject is a large object, for which malloc has made a mapping of its own (IS_MMAPPED of
// glibc). Source mapping sees it being born and freed at all times, also while the probes of the
// allocator are closed.
type MappedObject struct {
	LiveObject        // Weight is 1
	Born       uint64 // ns, CLOCK_MONOTONIC
	Resident   int64  // bytes
}

// AddMapped adds objects of a process to its holdings, and returns them as live objects. They are
// those that no probe has seen (Schedule.Unprobed). stacks returns the stack of an ID.
func (e *Estimator) AddMapped(
	held Holdings, objects []MappedObject, stacks func(id uint64) *growth.Stack,
) (live []LiveObject) {
	sums := make(map[uint64]*StackTotals)
	for i := range objects {
		o := &objects[i]
		bin, ok := e.bins.Index(o.Born)
		if !ok {
			continue
		}

		TotalsOf(sums, o.Stack).AddLive(o.Size, Estimate{Weight: o.Weight, Alive: 1, Burst: -1}, bin)
		e.totals.addMapped(o)
		live = append(live, o.LiveObject)
	}

	for id, sum := range sums {
		held.Add(stacks(id), growth.KindHeap, "", sum)
	}
	return live
}
