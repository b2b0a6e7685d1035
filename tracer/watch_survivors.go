package tracer

import (
	"time"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer/liveness"
	"github.com/allocscope/allocscope/tracer/process"
)

// pollSurvivors looks at all survivors where that is due and no probe is open, so that nothing is added to the live map
// meanwhile, and deletes those that are dead.
func (w *watch) CheckLiveness() {
	v := &w.survivors
	w.mu.Lock()
	byTarget := v.due(time.Now(), w.log.isOpen())
	w.mu.Unlock()
	if byTarget == nil {
		return
	}
	v.cost = process.ProcessorTime(func() {
		for tgid, objects := range byTarget {
			w.pollTarget(tgid, objects)
		}
	})
}

// pollTarget looks at the survivors of a process, if it is still there and executes what is traced.
func (w *watch) pollTarget(tgid uint32, objects []liveness.Object) {
	w.reading.Lock()
	defer w.reading.Unlock()
	t := w.targets.find(tgid)
	if t == nil || !t.lives() {
		return
	}
	looks, err := w.allocatorOf(t).lookAt(t.process, objects)
	if err != nil || t.check() != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.targets.find(tgid) == t {
		deleteAll(w.kernel.Maps[bpf.KernelMapLive], w.survivors.settle(tgid, looks))
	}
}

// allocatorOf a target is looked for once.
func (w *watch) allocatorOf(t *target) allocator {
	pid := uint32(t.process.PID)
	w.mu.Lock()
	a, ok := w.survivors.allocators[pid]
	w.mu.Unlock()
	if ok {
		return a
	}
	a = findAllocator(t.process)
	w.mu.Lock()
	defer w.mu.Unlock()
	if t.check() == nil && w.targets.find(pid) == t { // else what was found may be of something else
		w.survivors.allocators[pid] = a
	}
	return a
}

// printNew takes the fingerprints of what was born in a window that has just ended.
func (w *watch) printNew(ended spell) {
	for tgid, objects := range w.survivors.newSince(ended.from) {
		t := w.targets.find(tgid)
		if t == nil || !t.lives() {
			continue
		}
		prints, err := liveness.Fingerprints(t.process, objects)
		if err != nil {
			continue // what they hold tells nothing then
		}
		w.survivors.setPrints(tgid, objects, prints)
	}
}
