package tracer

import (
	"slices"
	"time"

	attribution "github.com/allocscope/allocscope/growth/gpu"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/addrspace"
	"github.com/allocscope/allocscope/tracer/estimate"
	"github.com/allocscope/allocscope/tracer/gpu"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/source"
	"github.com/allocscope/allocscope/tracer/stack"
)

// Snapshot reads what is alive in all targets, and the resident memory of all processes of the
// tree. A target that has ended contributes what was alive at its end, without mappings. Live
// memory is split by the time of its allocation at the given moments, in order, since the start of
// the trace.
func (s *Session) Snapshot(born ...time.Duration) (*growth.Snapshot, error) {
	began := time.Now()
	snapshot := &growth.Snapshot{Elapsed: s.Elapsed(), Interval: s.probing.Interval()}
	bins := estimate.SetBins(snapshot, s.started, born)

	onGPUs, err := gpu.ReadLive(s.kernel, bins)
	if err != nil {
		return nil, err
	}
	sums := make(map[stack.Key]*estimate.StackTotals)
	estimator, err := s.readHeap(snapshot, sums, onGPUs, bins)
	if err != nil {
		return nil, err
	}

	s.events.Flush() // so that each stack of the sums has been reported
	held := make(estimate.Holdings)
	for key, sum := range sums {
		if t := s.targets.find(key.TGID); t != nil {
			held.Add(t.stackOf(key.ID, sum), growth.KindHeap, "", sum)
		}
	}
	held.AddEvidence(estimator)

	s.scanner.estimator = estimator
	if err := s.scanner.addTo(snapshot, held, s.objects, onGPUs.Pins); err != nil {
		return nil, err
	}

	s.gpus.addTo(onGPUs, snapshot, held)
	attribution.Attribute(snapshot)
	snapshot.Holdings = held.List()
	s.probing.calibrate(estimator, snapshot)
	s.probing.forgetStacks()
	snapshot.Took = time.Since(began)
	return snapshot, nil
}

// stackOf returns the stack that has allocated these totals.
func (t *target) stackOf(id uint64, totals *estimate.StackTotals) *growth.Stack {
	if totals.Holds() {
		return t.stacks.Get(id)
	}
	return t.stacks.GetUnheld(id)
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
	return estimator, s.probing.readTallies(sums, onGPUs)
}

// reconcile updates the address space by the calls that were kept, corrects it by the maps, and
// returns these; nil: they could not be read. Maps correct nothing if a call was made while they
// were being read.
func (t *target) reconcile(events *eventReader) (maps []process.Mapping) {
	const attempts = 3
	calls := events.takeCalls(t.process.PID)
	pairs := source.ReadMappingPairs(t.kernel, t.process.PID)
	for range attempts {
		var err error
		if maps, err = t.process.Maps(); err != nil {
			break
		}
		t.applyCalls(calls, pairs, maps)
		before := pairs
		calls = events.takeCalls(t.process.PID)
		pairs = source.ReadMappingPairs(t.kernel, t.process.PID)
		if len(calls) == 0 && slices.Equal(before, pairs) {
			t.vanished += t.space.Reconcile(maps).Vanished
			return maps
		}
	}
	t.applyCalls(calls, pairs, maps)
	return maps
}

func (t *target) applyCalls(
	calls []bpf.Event, pairs []addrspace.Pair, maps []process.Mapping,
) {
	var isAllocator func(id uint64) bool
	if t.heap.Status().Attached || t.tensors.Active() {
		isAllocator = func(id uint64) bool {
			s, ok := t.stacks.Find(id)
			return ok && t.allocators.HasCalled(s)
		}
	}
	t.released = append(t.released, t.space.Apply(calls, maps, isAllocator)...)
	t.space.CountPairs(pairs, maps, isAllocator != nil)
}
