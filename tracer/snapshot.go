package tracer

import (
	"cmp"
	"slices"
	"time"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/gpu"
	"github.com/allocscope/allocscope/tracer/addrspace"
	"github.com/allocscope/allocscope/tracer/estimate"
	nvml "github.com/allocscope/allocscope/tracer/gpu"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/residency"
	"github.com/allocscope/allocscope/tracer/residency/pages"
	"github.com/allocscope/allocscope/tracer/stack"
)

// Snapshot reads what is alive in all traced processes, and what all processes of the tree have in memory. Of one that has
// ended it gives what was alive at the end, without mappings. What is alive is split by the time of its birth at the moments
// given, in order, since the start of the trace.
func (s *Session) Snapshot(born ...time.Duration) (*growth.Snapshot, error) {
	began := time.Now()
	snapshot := &growth.Snapshot{Elapsed: s.Elapsed(), Interval: s.probing.Interval()}
	sums := make(map[stack.Key]*estimate.StackTotals)
	ends := s.bins(snapshot, born)
	devices, err := nvml.ReadLive(s.kernel, ends)
	if err != nil {
		return nil, err
	}
	books, objects, err := s.readHeap(snapshot, sums, devices, ends)
	if err != nil {
		return nil, err
	}
	s.events.flush() // and with it every stack that the above may name
	held := make(estimate.Holdings)
	for from, sum := range sums {
		if t := s.targets.find(from.TGID); t != nil {
			held.Add(t.stacks.Get(from.ID), growth.KindHeap, "", sum)
		}
	}
	if err := s.scanner.addTo(snapshot, held, objects, devices.Pins); err != nil {
		return nil, err
	}
	s.gpus.addTo(devices, snapshot, held)
	gpu.Attribute(snapshot)
	held.AddEvidence(books)
	snapshot.Holdings = held.List()
	snapshot.Took = time.Since(began)
	return snapshot, nil
}

// readHeap reads what is alive of the heap, and what has been allocated, on GPUs too.
func (s *Session) readHeap(snapshot *growth.Snapshot, sums map[stack.Key]*estimate.StackTotals, devices *nvml.Totals, born estimate.BirthBins) (*estimate.Estimator, estimate.LiveObjects, error) {
	s.probing.mu.Lock()
	defer s.probing.mu.Unlock()
	snapshot.Heap = s.probing.describe(s.started)
	books := s.probing.estimator(tracedSince(s.targets.list()))
	objects, err := estimate.ReadLive(s.kernel, books, sums, born, s.objects)
	s.objects = objects
	if err != nil {
		return nil, nil, err
	}
	for _, o := range objects {
		snapshot.LiveObjects += len(o)
	}
	return books, objects, s.probing.readTallies(sums, devices)
}

// bins writes the ends of the bins of birth into the snapshot, and gives them as the kernel side counts.
func (s *Session) bins(snapshot *growth.Snapshot, born []time.Duration) estimate.BirthBins {
	var ends estimate.BirthBins
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
func (t *target) reconcile(calls []bpf.Event) []process.Mapping {
	var maps []process.Mapping
	for range 3 {
		var err error
		if maps, err = t.process.Maps(); err != nil {
			break
		}
		t.apply(calls, maps)
		if calls = t.session.events.takeCalls(t.process.PID); len(calls) == 0 {
			t.vanished += t.space.Reconcile(maps).Vanished
			return maps
		}
	}
	t.apply(calls, nil)
	return maps
}

// addMappings adds what the program has mapped since the attach: the bytes that have been touched. What the allocator mapped
// does not count: its contents are in the live map.
func (t *target) addMappings(to estimate.Holdings, l *residency.Scan, totals *growth.MappingTotals) {
	kinds := make(map[addrspace.Key]growth.Kind)
	last := uint64(0)
	for i := range l.Segments {
		a := &l.Segments[i]
		if !a.HasInterval || a.Origin == addrspace.BeforeTracing {
			continue
		}
		length := int64(a.Span().Len())
		totals.Reserved += length
		totals.Unmeasured += int64(l.Unread.Intersect(pages.Spans{a.Span()}).Len())
		if a.Origin == addrspace.Unobserved {
			totals.Unknown += length
			a.Stack = stack.UnobservedID
		}
		if a.Heap {
			totals.Allocator += length
			continue
		}
		bytes := l.Bytes(a)
		touched := bytes.InMemory() + bytes.Swapped
		totals.Touched += touched
		h := to.Get(a.StackUnderName(t.stacks.Get(a.Stack)), a.MappedKind())
		kinds[addrspace.Key{Stack: a.Stack, Kind: a.Kind}] = a.MappedKind()
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
func (t *target) addTallies(to estimate.Holdings, kinds map[addrspace.Key]growth.Kind) {
	for key, tally := range t.space.Mapped() {
		stack := t.stacks.Get(key.Stack)
		h := to.Get(stack, cmp.Or(kinds[key], key.Kind))
		h.AllocObjects += float64(tally.Calls)
		h.AllocBytes += float64(tally.Bytes)
	}
}

// addReleases adds what was given back to the kernel.
func (t *target) addReleases(snapshot *growth.Snapshot) {
	for by, tally := range t.space.Released() {
		release := growth.Release{Stack: t.stacks.Get(by.Stack), Call: by.Call, Calls: tally.Calls, Bytes: tally.Bytes}
		snapshot.Releases = append(snapshot.Releases, release)
		if by.Call == "madvise" {
			snapshot.Mappings.Released += tally.Bytes
		} else {
			snapshot.Mappings.Unmapped += tally.Bytes
		}
	}
}
