package tracer

import (
	"slices"
	"time"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/mapping"
)

// maxReadPages bounds the address space whose pages are looked at in one snapshot where the kernel has no PAGEMAP_SCAN.
const maxReadPages = 64 << 30 // bytes

// Snapshot reads what is alive in all traced processes. Of one that has ended it gives what was alive at the end, without
// mappings. What is alive is split by the time of its birth at the moments given, in order, since the start of the trace.
func (s *Session) Snapshot(born ...time.Duration) (*growth.Snapshot, error) {
	began := time.Now()
	snapshot := &growth.Snapshot{Elapsed: s.Elapsed(), Interval: s.Options.Interval}
	sums := make(map[origin]*sum)
	var err error
	if snapshot.LiveObjects, err = s.readLive(sums, s.bins(snapshot, born)); err != nil {
		return nil, err
	}
	if err := s.readTallies(sums); err != nil {
		return nil, err
	}
	s.notices.flush() // and with it every stack that the above may name
	held := make(holdings)
	for from, sum := range sums {
		if t := s.target(from.tgid); t != nil {
			held.add(t.stacks.get(from.stack), sum)
		}
	}
	for _, t := range s.list() {
		t.addTo(snapshot, held)
	}
	snapshot.Holdings = held.list()
	snapshot.Took = time.Since(began)
	return snapshot, nil
}

// bins writes the ends of the bins of birth into the snapshot, and gives them as the kernel side counts.
func (s *Session) bins(snapshot *growth.Snapshot, born []time.Duration) bins {
	var ends bins
	for _, at := range append(slices.Clip(born), snapshot.Elapsed) {
		if at <= snapshot.Elapsed {
			snapshot.Bins = append(snapshot.Bins, at)
			ends = append(ends, s.started+uint64(at))
		}
	}
	return ends
}

// addTo adds the mappings of a process that lives.
func (t *target) addTo(snapshot *growth.Snapshot, held holdings) {
	if t.lives() {
		t.reconcile(t.session.notices.take(t.process.PID))
	}
	if !t.lives() { // perhaps meanwhile
		return
	}
	snapshot.Alive = append(snapshot.Alive, t.process.PID)
	t.addMappings(held, &snapshot.Mappings)
	t.addReleases(snapshot)
	snapshot.Mappings.Vanished += t.vanished
}

// reconcile brings the address space up to date. The maps are only believed if no call fell into their reading.
func (t *target) reconcile(calls []bpf.KernelNotice) {
	for range 3 {
		maps, err := t.process.Maps()
		if err != nil {
			break
		}
		t.apply(calls, maps)
		if calls = t.session.notices.take(t.process.PID); len(calls) == 0 {
			t.vanished += t.space.Reconcile(maps).Vanished
			return
		}
	}
	t.apply(calls, nil)
}

// addMappings adds what the mapped memory holds: the bytes that have been touched.
func (t *target) addMappings(to holdings, totals *growth.MappingTotals) {
	for _, i := range t.space.Intervals() {
		if i.Origin == mapping.BeforeAttach {
			continue
		}
		touched, counted := t.measure(i, totals)
		if !counted {
			continue
		}
		if i.Origin == mapping.Unseen {
			i.Stack = unseen
		}
		h := to.of(t.stacks.get(i.Stack), i.Kind)
		h.InuseObjects++
		h.Samples++
		h.InuseBytes += touched
	}
	for key, tally := range t.space.Tallies() {
		h := to.of(t.stacks.get(key.Stack), key.Kind)
		h.AllocObjects += float64(tally.Calls)
		h.AllocBytes += float64(tally.Bytes)
	}
}

// holdings are put together from the live map and the mappings.
type holdings map[holder]*growth.Holding

type holder struct {
	stack *growth.Stack
	kind  growth.Kind
}

func (h holdings) of(stack *growth.Stack, kind growth.Kind) *growth.Holding {
	key := holder{stack, kind}
	found, ok := h[key]
	if !ok {
		found = &growth.Holding{Stack: stack, Kind: kind}
		h[key] = found
	}
	return found
}

// add adds what a stack holds of the heap.
func (h holdings) add(stack *growth.Stack, sum *sum) {
	to := h.of(stack, growth.KindHeap)
	to.InuseObjects += sum.inuseObjects
	to.InuseBytes += sum.inuseBytes
	to.Samples += sum.samples
	to.Variance += sum.variance
	to.AllocObjects += sum.allocObjects
	to.AllocBytes += sum.allocBytes
	for _, b := range sum.births {
		to.AddBirth(b)
	}
}

func (h holdings) list() []growth.Holding {
	list := make([]growth.Holding, 0, len(h))
	for _, holding := range h {
		list = append(list, *holding)
	}
	return list
}

// measure adds an interval to the totals and gives the bytes of it that have been touched. What the allocator mapped does
// not count: its contents are in the live map.
func (t *target) measure(i mapping.Interval, totals *growth.MappingTotals) (touched int64, counted bool) {
	totals.Reserved += int64(i.Len())
	if i.ByAllocator {
		totals.Allocator += int64(i.Len())
		return 0, false
	}
	if i.Origin == mapping.Unseen {
		totals.Unknown += int64(i.Len())
	}
	bytes, ok := t.touched(i, totals)
	if !ok {
		totals.Unmeasured += int64(i.Len())
	}
	totals.Touched += int64(bytes)
	return int64(bytes), true
}

// addReleases adds what was given back to the kernel.
func (t *target) addReleases(snapshot *growth.Snapshot) {
	for by, tally := range t.space.Releases() {
		release := growth.Release{Stack: t.stacks.get(by.Stack), Call: by.Call, Calls: tally.Calls, Bytes: tally.Bytes}
		snapshot.Releases = append(snapshot.Releases, release)
		if by.Call == "madvise" {
			snapshot.Mappings.Released += tally.Bytes
		} else {
			snapshot.Mappings.Unmapped += tally.Bytes
		}
	}
}

// touched counts the bytes of an interval that hold memory.
func (t *target) touched(i mapping.Interval, totals *growth.MappingTotals) (bytes uint64, ok bool) {
	if t.pages == nil || (!t.pages.Scans() && totals.Reserved-totals.Allocator > maxReadPages) {
		return 0, false
	}
	bytes, err := t.pages.Touched(i.Start, i.End)
	return bytes, err == nil
}
