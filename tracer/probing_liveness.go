package tracer

import (
	"time"

	"github.com/allocscope/allocscope/tracer/estimate"
	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/liveness"
	"github.com/allocscope/allocscope/tracer/process"
)

// pollSurvivors looks at all survivors where that is due and no probe is open, so that nothing is added to the live map
// meanwhile, and deletes those that are dead.
func (w *probing) CheckLiveness() {
	v := &w.tracker
	w.mu.Lock()
	byTarget := v.Due(time.Now(), w.schedule.IsOpen())
	w.mu.Unlock()
	if byTarget == nil {
		return
	}
	v.CheckCost = process.MeasureCPUTime(func() {
		for tgid, objects := range byTarget {
			w.pollTarget(tgid, objects)
		}
	})
}

// pollTarget looks at the survivors of a process, if it is still there and executes what is traced.
func (w *probing) pollTarget(tgid uint32, objects []liveness.Object) {
	w.reading.Lock()
	defer w.reading.Unlock()
	t := w.targets.find(tgid)
	if t == nil || !t.isAlive() {
		return
	}
	looks, err := w.allocatorOf(t).CheckObjects(t.process, objects)
	if err != nil || t.check() != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.targets.find(tgid) == t {
		kernel.DeleteKeys(w.kernel.Live, w.tracker.Apply(tgid, looks))
	}
}

// allocatorOf a target is looked for once.
func (w *probing) allocatorOf(t *target) liveness.ProcessAllocator {
	pid := uint32(t.process.PID)
	w.mu.Lock()
	a, ok := w.tracker.Allocators[pid]
	w.mu.Unlock()
	if ok {
		return a
	}
	a = liveness.AllocatorOf(t.process)
	w.mu.Lock()
	defer w.mu.Unlock()
	if t.check() == nil && w.targets.find(pid) == t { // else what was found may be of something else
		w.tracker.Allocators[pid] = a
	}
	return a
}

// printNew takes the fingerprints of what was born in a window that has just ended.
func (w *probing) fingerprintNew(ended estimate.ProbePeriod) {
	for tgid, objects := range w.tracker.NewSince(ended.From) {
		t := w.targets.find(tgid)
		if t == nil || !t.isAlive() {
			continue
		}
		prints, err := liveness.Fingerprints(t.process, objects)
		if err != nil {
			continue // what they hold tells nothing then
		}
		w.tracker.SetFingerprints(tgid, objects, prints)
	}
}
