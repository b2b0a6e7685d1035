package tracer

import (
	"cmp"
	"slices"
	"time"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/addrspace"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/residency"
)

// Snapshot reads what is alive in all traced processes, and what all processes of the tree have in memory. Of one that has
// ended it gives what was alive at the end, without mappings. What is alive is split by the time of its birth at the moments
// given, in order, since the start of the trace.
func (s *Session) Snapshot(born ...time.Duration) (*growth.Snapshot, error) {
	began := time.Now()
	snapshot := &growth.Snapshot{Elapsed: s.Elapsed(), Interval: s.watch.currentInterval()}
	sums := make(map[origin]*sum)
	ends := s.bins(snapshot, born)
	devices, err := s.readDevices(ends)
	if err != nil {
		return nil, err
	}
	books, objects, err := s.readHeap(snapshot, sums, devices, ends)
	if err != nil {
		return nil, err
	}
	s.notices.flush() // and with it every stack that the above may name
	held := make(holdings)
	for from, sum := range sums {
		if t := s.target(from.tgid); t != nil {
			held.add(t.stacks.get(from.stack), growth.KindHeap, "", sum)
		}
	}
	if err := s.look(snapshot, held, objects, devices.pins); err != nil {
		return nil, err
	}
	devices.addTo(s, snapshot, held)
	growth.FillDevices(snapshot)
	held.weigh(books)
	snapshot.Holdings = held.list()
	snapshot.Took = time.Since(began)
	return snapshot, nil
}

// readHeap reads what is alive of the heap, and what has been allocated, on GPUs too.
func (s *Session) readHeap(snapshot *growth.Snapshot, sums map[origin]*sum, devices *deviceBooks, born bins) (*books, liveObjects, error) {
	s.watch.mu.Lock()
	defer s.watch.mu.Unlock()
	snapshot.Watch = s.watch.describe(s.started)
	books := s.watch.open(monotonic(), joined(s.list()))
	objects, err := s.readLive(books, sums, born)
	if err != nil {
		return nil, nil, err
	}
	for _, o := range objects {
		snapshot.LiveObjects += len(o)
	}
	return books, objects, s.readTallies(sums, devices)
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

// reconcile brings the address space up to date and gives the maps, which are only believed if no call fell into their
// reading; nil: they could not be had.
func (t *target) reconcile(calls []bpf.KernelNotice) []process.Mapping {
	var maps []process.Mapping
	for range 3 {
		var err error
		if maps, err = t.process.Maps(); err != nil {
			break
		}
		t.apply(calls, maps)
		if calls = t.session.notices.take(t.process.PID); len(calls) == 0 {
			t.vanished += t.space.Reconcile(maps).Vanished
			return maps
		}
	}
	t.apply(calls, nil)
	return maps
}

// addMappings adds what the program has mapped since the attach: the bytes that have been touched. What the allocator mapped
// does not count: its contents are in the live map.
func (t *target) addMappings(to holdings, l *look, totals *growth.MappingTotals) {
	kinds := make(map[addrspace.Holder]growth.Kind)
	last := uint64(0)
	for i := range l.areas {
		a := &l.areas[i]
		if !a.known || a.Origin == addrspace.BeforeAttach {
			continue
		}
		length := int64(a.span().Len())
		totals.Reserved += length
		totals.Unmeasured += int64(l.unread.And(residency.Spans{a.span()}).Len())
		if a.Origin == addrspace.Unseen {
			totals.Unknown += length
			a.Stack = unseen
		}
		if a.heap {
			totals.Allocator += length
			continue
		}
		bytes := l.bytes(a)
		touched := bytes.InMemory() + bytes.Swapped
		totals.Touched += touched
		h := to.of(a.shownAt(t.stacks.get(a.Stack)), a.mapped())
		kinds[addrspace.Holder{Stack: a.Stack, Kind: a.Kind}] = a.mapped()
		if a.Interval.Start != last { // an interval may be of several areas
			h.InuseObjects++
			h.Samples++
		}
		last = a.Interval.Start
		h.InuseBytes += touched
	}
	t.addTallies(to, kinds)
}

// addTallies adds what has been mapped since the attach, mapped still or not. Of what is mapped it is known what it is.
func (t *target) addTallies(to holdings, kinds map[addrspace.Holder]growth.Kind) {
	for key, tally := range t.space.Tallies() {
		stack := t.stacks.get(key.Stack)
		h := to.of(stack, cmp.Or(kinds[key], key.Kind))
		h.AllocObjects += float64(tally.Calls)
		h.AllocBytes += float64(tally.Bytes)
	}
}

// holdings are put together from the live map, the mappings and the pages.
type holdings map[holder]*entry

// An entry is a holding and the evidence for it.
type entry struct {
	growth.Holding
	seen sightings
}

// A holder is a stack and the kind of memory it holds.
type holder struct {
	stack uint64
	pid   int
	kind  growth.Kind
	gpu   string
}

func (h holdings) of(stack *growth.Stack, kind growth.Kind) *growth.Holding {
	return &h.entry(stack, kind, "").Holding
}

func (h holdings) entry(stack *growth.Stack, kind growth.Kind, gpu string) *entry {
	key := holder{stack.ID, stack.PID, kind, gpu}
	found, ok := h[key]
	if !ok {
		found = &entry{Holding: growth.Holding{Stack: stack, Kind: kind, GPU: gpu}}
		h[key] = found
	}
	return found
}

// add adds what a stack holds of a kind.
func (h holdings) add(stack *growth.Stack, kind growth.Kind, gpu string, sum *sum) {
	to := h.entry(stack, kind, gpu)
	to.InuseObjects += sum.inuseObjects
	to.InuseBytes += sum.inuseBytes
	to.Samples += sum.samples
	to.Variance += sum.variance
	to.AllocObjects += sum.allocObjects
	to.AllocBytes += sum.allocBytes
	for _, b := range sum.births {
		to.AddBirth(b)
	}
	if sum.seen != nil {
		to.seen.merge(sum.seen)
	}
}

// weigh makes the evidence of what was seen in windows.
func (h holdings) weigh(books *books) {
	for _, entry := range h {
		if entry.seen.windows != nil {
			entry.seen.weigh(&entry.Holding, books)
		}
	}
}

func (h holdings) list() []growth.Holding {
	list := make([]growth.Holding, 0, len(h))
	for _, entry := range h {
		list = append(list, entry.Holding)
	}
	return list
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
