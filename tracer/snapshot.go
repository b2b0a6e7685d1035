package tracer

import (
	"slices"
	"time"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/growth"
	attribution "github.com/allocscope/allocscope/growth/gpu"
	"github.com/allocscope/allocscope/tracer/addrspace"
	"github.com/allocscope/allocscope/tracer/estimate"
	"github.com/allocscope/allocscope/tracer/gpu"
	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/source"
	"github.com/allocscope/allocscope/tracer/stack"
)

// Snapshot reads the live memory of all targets, and the resident memory of all processes of the
// tree. A target that has ended contributes the memory that was alive at its end, without mappings.
// Live memory is split by the time of its allocation at the given moments, in order, since the
// start of the trace.
func (s *Session) Snapshot(born ...time.Duration) (*growth.Snapshot, error) {
	s.following.Lock()
	defer s.following.Unlock()
	snapshot, estimator, err := s.snapshot(born)
	if err != nil {
		return nil, err
	}
	s.probing.calibrate(estimator, snapshot)
	return snapshot, nil
}

// SpikeSnapshot is Snapshot for one between the others, within a spike of RSS. It changes nothing
// for these: memory that is free again in a moment must not calibrate the estimates from bursts.
func (s *Session) SpikeSnapshot() (*growth.Snapshot, error) {
	s.following.Lock()
	defer s.following.Unlock()
	snapshot, _, err := s.snapshot(nil)
	return snapshot, err
}

// A Moment is when a snapshot is taken.
type Moment struct {
	InSpike bool // RSS is in a spike: snapshots have the memory that came into RAM since those before
	AtEnd   bool // of the trace: malloc's heaps are walked, whatever walks have cost before
}

// SetMoment sets the moment of the snapshots to come.
func (s *Session) SetMoment(m Moment) {
	s.scanner.moment = m
	if m.AtEnd && s.runner != nil {
		s.runner.End()
	}
}

func (s *Session) snapshot(
	born []time.Duration,
) (*growth.Snapshot, *estimate.Estimator, error) {
	began := time.Now()
	snapshot := &growth.Snapshot{Elapsed: s.Elapsed(), Interval: s.probing.Interval()}
	bins := estimate.SetBins(snapshot, s.started, born)

	caches, lists := s.gpus.readCaches() // before the sampled blocks, which it may refute
	onGPUs, err := s.probing.readGPUs(bins, lists)
	if err != nil {
		return nil, nil, err
	}
	sums := make(map[stack.Key]*estimate.StackTotals)
	estimator, err := s.readHeap(snapshot, sums, onGPUs, bins)
	if err != nil {
		return nil, nil, err
	}

	s.events.Flush() // so that each stack of the sums has been reported
	if _, snapshot.Losses, err = s.counters(); err != nil {
		return nil, nil, err
	}
	held := make(estimate.Holdings)
	for key, sum := range sums {
		if t := s.targets.find(key.TGID); t != nil {
			held.Add(t.stackOf(key.ID, sum), growth.KindHeap, "", sum)
		}
	}
	held.AddEvidence(estimator)

	s.scanner.estimator = estimator
	if err := s.scanner.addTo(snapshot, held, s.objects, onGPUs.Pins); err != nil {
		return nil, nil, err
	}
	s.walks.Add(int64(s.scanner.walkTime))

	s.gpus.addTo(onGPUs, caches, snapshot, held, s.started)
	attribution.Attribute(snapshot)
	snapshot.Holdings = held.List()
	s.probing.forgetStacks()
	snapshot.Took = time.Since(began)
	return snapshot, estimator, nil
}

// stackOf returns the stack that has allocated these totals.
func (t *target) stackOf(id uint64, totals *estimate.StackTotals) *growth.Stack {
	if totals.Holds() {
		return t.stacks.Get(id)
	}
	return t.stacks.GetUnheld(id)
}

// readHeap reads the live map, and the memory allocated since tracing started, on GPUs too. It sets
// the session's objects.
func (s *Session) readHeap(
	snapshot *growth.Snapshot, sums map[stack.Key]*estimate.StackTotals, onGPUs *gpu.Totals,
	bins estimate.BirthBins,
) (*estimate.Estimator, error) {
	s.probing.mu.Lock()
	defer s.probing.mu.Unlock()

	snapshot.Heap = s.probing.describe(s.started)
	estimator := s.probing.estimator(tracedSince(s.targets.list()), bins)
	objects, err := estimate.ReadLive(s.kernel, estimator, sums, s.objects)
	s.objects = objects
	if err != nil {
		return nil, err
	}
	for _, ofProcess := range objects {
		snapshot.LiveObjects += len(ofProcess)
	}
	s.liveObjects.Store(int64(snapshot.LiveObjects))
	return estimator, s.probing.tallies.read(sums, onGPUs, s.probing.schedule.InBurst())
}

// reconcile updates the address space by the calls that were kept, and corrects it by the maps. It
// returns these, or nil if they could not be read, and the ranges that the calls have released. The
// maps correct no memory for which calls were made in all attempts.
func (t *target) reconcile(
	events *eventReader,
) (maps []process.Mapping, released []addrspace.Release) {
	const attempts = 3
	calls := events.takeCalls(t.process.PID)
	pairs := source.ReadMappingPairs(t.kernel, t.process.PID)
	for attempt := 1; attempt <= attempts; attempt++ {
		var err error
		if maps, err = t.process.Maps(); err != nil {
			break
		}
		released = append(released, t.applyCalls(calls, pairs, maps)...)
		before := pairs
		calls = events.takeCalls(t.process.PID)
		pairs = source.ReadMappingPairs(t.kernel, t.process.PID)

		meanwhile := addrspace.ChangesOf(calls)
		meanwhile.Unknown = !slices.Equal(before, pairs)
		isQuiet := len(calls) == 0 && !meanwhile.Unknown
		if isQuiet || attempt == attempts {
			t.vanished += t.space.Reconcile(maps, meanwhile).Vanished
		}
		if isQuiet {
			return maps, released
		}
	}
	return maps, append(released, t.applyCalls(calls, pairs, maps)...)
}

// applyCalls returns the ranges that the calls have released.
func (t *target) applyCalls(
	calls []bpf.Event, pairs []addrspace.Pair, maps []process.Mapping,
) (released []addrspace.Release) {
	var isAllocator func(id uint64) bool
	if t.sources.Heap.Status().Attached || t.sources.Tensors.Active() {
		isAllocator = func(id uint64) bool {
			s, ok := t.stacks.Find(id)
			return ok && t.sources.Heap.Code.HasCalled(s)
		}
	}
	released = t.space.Apply(calls, maps, isAllocator)
	t.space.CountPairs(pairs, isAllocator != nil)

	if t.pages != nil {
		spans := make([]mem.Span, len(released))
		for i, r := range released {
			spans[i] = r.Span
		}
		t.pages.Forget(mem.MergeSpans(spans))
	}
	return released
}

// forgetReleased forgets the faults of pages that have been released since, and returns the others.
func (t *target) forgetReleased(
	faults []source.Fault, released []addrspace.Release,
) (kept []source.Fault) {
	kept, gone := source.SplitReleased(faults, released)
	source.ForgetFaults(t.kernel, uint32(t.process.PID), gone)
	return kept
}
