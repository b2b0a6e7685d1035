package tracer

import (
	"cmp"
	"slices"
	"time"

	attribution "github.com/allocscope/allocscope/growth/gpu"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/addrspace"
	"github.com/allocscope/allocscope/tracer/estimate"
	"github.com/allocscope/allocscope/tracer/gpu"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/residency"
	"github.com/allocscope/allocscope/tracer/residency/pages"
	"github.com/allocscope/allocscope/tracer/stack"
)

// Snapshot reads what is alive in all targets, and the resident memory of all processes of the
// tree. A target that has ended contributes what was alive at its end, without mappings. Live
// memory is split by the time of its allocation at the given moments, in order, since the start of
// the trace.
func (s *Session) Snapshot(born ...time.Duration) (*growth.Snapshot, error) {
	began := time.Now()
	snapshot := &growth.Snapshot{Elapsed: s.Elapsed(), Interval: s.probing.Interval()}
	bins := setBins(snapshot, s.started, born)

	onGPUs, err := gpu.ReadLive(s.kernel, bins)
	if err != nil {
		return nil, err
	}
	sums := make(map[stack.Key]*estimate.StackTotals)
	estimator, err := s.readHeap(snapshot, sums, onGPUs, bins)
	if err != nil {
		return nil, err
	}

	s.events.flush() // so that each stack of the sums has been reported
	held := make(estimate.Holdings)
	for key, sum := range sums {
		if t := s.targets.find(key.TGID); t != nil {
			held.Add(t.stacks.Get(key.ID), growth.KindHeap, "", sum)
		}
	}
	held.AddEvidence(estimator)

	if err := s.scanner.addTo(snapshot, held, s.objects, onGPUs.Pins); err != nil {
		return nil, err
	}

	s.gpus.addTo(onGPUs, snapshot, held)
	attribution.Attribute(snapshot)
	snapshot.Holdings = held.List()
	snapshot.Took = time.Since(began)
	return snapshot, nil
}

// readHeap reads the live map, and what has been allocated since tracing started, on GPUs too. It
// sets the session's objects.
func (s *Session) readHeap(
	snapshot *growth.Snapshot, sums map[stack.Key]*estimate.StackTotals, onGPUs *gpu.Totals,
	bins estimate.BirthBins,
) (*estimate.Estimator, error) {
	s.probing.mu.Lock()
	defer s.probing.mu.Unlock()

	snapshot.Heap = s.probing.describe(s.started)
	estimator := s.probing.estimator(tracedSince(s.targets.list()))
	objects, err := estimate.ReadLive(s.kernel, estimator, sums, bins, s.objects)
	s.objects = objects
	if err != nil {
		return nil, err
	}
	for _, ofProcess := range objects {
		snapshot.LiveObjects += len(ofProcess)
	}
	return estimator, s.probing.readTallies(sums, onGPUs)
}

// setBins sets the snapshot's bins, and returns their ends in ns, CLOCK_MONOTONIC, as started is.
func setBins(
	snapshot *growth.Snapshot, started uint64, born []time.Duration,
) estimate.BirthBins {
	var ends estimate.BirthBins
	for _, end := range append(slices.Clip(born), snapshot.Elapsed) {
		if end <= snapshot.Elapsed {
			snapshot.Bins = append(snapshot.Bins, end)
			ends = append(ends, started+uint64(end))
		}
	}
	return ends
}

// reconcile updates the address space by calls, corrects it by the maps, and returns these; nil:
// they could not be read. Maps correct nothing if a call was made while they were being read.
func (t *target) reconcile(calls []bpf.Event) []process.Mapping {
	const attempts = 3
	var maps []process.Mapping
	for range attempts {
		var err error
		if maps, err = t.process.Maps(); err != nil {
			break
		}
		t.applyCalls(calls, maps)
		if calls = t.session.events.takeCalls(t.process.PID); len(calls) == 0 {
			t.vanished += t.space.Reconcile(maps).Vanished
			return maps
		}
	}
	t.applyCalls(calls, nil)
	return maps
}

// addMappings adds the touched bytes of what the program has mapped since tracing started.
// Mappings of the allocator count nothing: the live map has their contents.
func (t *target) addMappings(
	held estimate.Holdings, scan *residency.Scan, totals *growth.MappingTotals,
) {
	kinds := make(map[addrspace.Key]growth.Kind)
	lastInterval := uint64(0)
	for i := range scan.Segments {
		segment := &scan.Segments[i]
		if !segment.HasInterval || segment.Origin == addrspace.BeforeTracing {
			continue
		}

		length := int64(segment.Span().Len())
		totals.Reserved += length
		totals.Unmeasured += int64(scan.Unread.Intersect(pages.Spans{segment.Span()}).Len())
		if segment.Origin == addrspace.Unobserved {
			totals.Unknown += length
			segment.Stack = stack.UnobservedID
		}
		if segment.Heap {
			totals.Allocator += length
			continue
		}

		bytes := scan.Bytes(segment)
		touched := bytes.InMemory() + bytes.Swapped
		totals.Touched += touched
		kind := segment.MappedKind()
		kinds[addrspace.Key{Stack: segment.Stack, Kind: segment.Kind}] = kind

		h := held.Get(segment.StackUnderName(t.stacks.Get(segment.Stack)), kind)
		if segment.Interval.Start != lastInterval { // an interval may have several segments
			h.InuseObjects++
			h.Samples++
		}
		lastInterval = segment.Interval.Start
		h.InuseBytes += touched
	}
	t.addTallies(held, kinds)
}

// addTallies adds what has been mapped since tracing started, whether it still is or not. kinds are
// those of what still is.
func (t *target) addTallies(held estimate.Holdings, kinds map[addrspace.Key]growth.Kind) {
	for key, tally := range t.space.Mapped() {
		h := held.Get(t.stacks.Get(key.Stack), cmp.Or(kinds[key], key.Kind))
		h.AllocObjects += float64(tally.Calls)
		h.AllocBytes += float64(tally.Bytes)
	}
}

// addReleases adds what the process has given back to the kernel.
func (t *target) addReleases(snapshot *growth.Snapshot) {
	for key, tally := range t.space.Released() {
		snapshot.Releases = append(snapshot.Releases, growth.Release{
			Stack: t.stacks.Get(key.Stack), Call: key.Call, Calls: tally.Calls, Bytes: tally.Bytes,
		})
		if key.Call == "madvise" {
			snapshot.Mappings.Released += tally.Bytes
		} else {
			snapshot.Mappings.Unmapped += tally.Bytes
		}
	}
}
